"""Queues come, are found, labelled and emptied, and go: CreateQueue, DeleteQueue, GetQueueUrl,
ListQueues, ListDeadLetterSourceQueues, PurgeQueue, TagQueue, UntagQueue and ListQueueTags."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING

import msgspec

from nexo.doors.sqs_http.accounts import Place
from nexo.doors.sqs_http.errors import SqsError, invalid, invalid_value, missing
from nexo.doors.sqs_http.policies import learn_target
from nexo.doors.sqs_http.queue_attributes import changed_settings, shown_settings
from nexo.doors.sqs_http.shapes import (
    CreateQueueResult,
    GetQueueUrlResult,
    ListDeadLetterSourceQueuesResult,
    ListQueuesResult,
    ListQueueTagsResult,
)
from nexo.engine.listing import page
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX
from nexo.vocabulary.names import FIFO_SUFFIX, check_name, dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import (
        CreateQueueRequest,
        DeleteQueueRequest,
        GetQueueUrlRequest,
        ListDeadLetterSourceQueuesRequest,
        ListQueuesRequest,
        ListQueueTagsRequest,
        PurgeQueueRequest,
        TagQueueRequest,
        UntagQueueRequest,
    )
    from nexo.engine.queue_actor import QueueActor

RESULTS_MAX = 1_000
NAME_CHARS_MAX = 80
_TOKEN_CHARS_SHOWN = 200
_MINUTE_MS = 60_000
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")


async def create_queue(call: Call, request: CreateQueueRequest) -> CreateQueueResult:
    plain, given = request.queue_name or "", dict(request.attributes or {})
    is_fifo = _check_name(plain, given)
    name = call.addresses.scoped(plain, call.caller.place)
    call.check(name)
    await learn_target(call, given)
    known = call.engine.queues.get(name)
    if known is not None:
        _check_same(call, known, given)
        return CreateQueueResult(queue_url=call.url_of(name))
    now_ms = call.engine.now_ms()
    call.door.pauses.create(name, now_ms)
    tags = _check_tags(request.tags or {}, name)
    wanted = QueueSettings(
        max_attempts=None, fifo=is_fifo, deduplication="id" if is_fifo else "off", tags=tags
    )
    await call.engine.create_queue(name, changed_settings(call, name, wanted, given))
    return CreateQueueResult(queue_url=call.url_of(name))


async def delete_queue(call: Call, request: DeleteQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    call.door.pauses.delete(actor.name, actor.now_ms())
    await call.engine.delete_queue(actor.name)


async def get_queue_url(call: Call, request: GetQueueUrlRequest) -> GetQueueUrlResult:
    place = call.caller.place
    if request.queue_owner_aws_account_id:
        place = Place(request.queue_owner_aws_account_id, place.region)
    name = call.addresses.scoped(request.queue_name or "", place)
    return GetQueueUrlResult(queue_url=call.url_of(call.named(name).name))


async def list_queues(call: Call, request: ListQueuesRequest) -> ListQueuesResult:
    prefix, rights = request.queue_name_prefix or "", call.caller.rights

    def wanted(name: str) -> bool:
        place, plain = call.addresses.place_of(name)
        return place == call.caller.place and plain.startswith(prefix) and rights.knows(name)

    urls, token = await _page(call, wanted, request.max_results, request.next_token)
    return ListQueuesResult(queue_urls=urls or None, next_token=token)


async def purge_queue(call: Call, request: PurgeQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    call.door.pauses.purge(actor.name, actor.now_ms())
    await actor.purge()


async def list_dead_letter_source_queues(
    call: Call, request: ListDeadLetterSourceQueuesRequest
) -> ListDeadLetterSourceQueuesResult:
    target = call.queue(request.queue_url)
    rights = call.caller.rights

    def wanted(name: str) -> bool:
        return is_source(call, name, target.name) and rights.knows(name)

    urls, token = await _page(call, wanted, request.max_results, request.next_token)
    return ListDeadLetterSourceQueuesResult(queue_urls=urls or None, next_token=token)


async def tag_queue(call: Call, request: TagQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    settings = actor.settings
    if not request.tags:
        raise missing("Tags")
    tags = _check_tags({**settings.tags, **request.tags}, actor.name)
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, tags=tags))


async def untag_queue(call: Call, request: UntagQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    settings, gone = actor.settings, set(request.tag_keys or ())
    if not gone:
        raise invalid(_KEY_LENGTH)
    tags = {key: value for key, value in settings.tags.items() if key not in gone}
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, tags=tags))


async def list_queue_tags(call: Call, request: ListQueueTagsRequest) -> ListQueueTagsResult:
    actor = call.queue(request.queue_url)
    return ListQueueTagsResult(tags=actor.settings.tags or None)


def is_source(call: Call, name: str, target: str) -> bool:
    """Whether the dead letters of a queue go to this one."""
    settings = call.engine.queues[name].settings
    limited = settings.max_attempts is not None
    return limited and dead_letter_name(name, settings.dead_letter) == target


async def has_source(call: Call, target: str) -> bool:
    """Whether the dead letters of any queue go to this one."""
    if call.engine.transfers.has_fed(target):
        return True
    found, _ = await page(call.engine.queues, "", 1, lambda name: is_source(call, name, target))
    return bool(found)


def _check_name(plain: str, given: dict[str, str]) -> bool:
    """Whether a queue of this name is FIFO; refuses a name that it may not have."""
    flag = given.get("FifoQueue")
    is_fifo = flag is not None and flag.lower() == "true"
    if is_fifo:
        stem = plain.removesuffix(FIFO_SUFFIX)
        if stem == plain or not _NAME.fullmatch(stem) or len(plain) > NAME_CHARS_MAX:
            raise invalid(
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                "underscores, must end with .fifo suffix and be 1 to 80 in length"
            )
        del given["FifoQueue"]
    elif not _NAME.fullmatch(plain):
        raise invalid(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return is_fifo


def _check_same(call: Call, known: QueueActor, given: Mapping[str, str]) -> None:
    """A queue of the same name and attributes is the same queue; only what is given counts."""
    settings = known.settings
    wanted = changed_settings(call, known.name, settings, given)
    before = shown_settings(call.addresses, known.name, settings)
    after = shown_settings(call.addresses, known.name, wanted)
    for attribute in given:
        if before.get(attribute) != after.get(attribute):
            raise SqsError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{attribute}",
            )


async def _page(
    call: Call, wanted: Callable[[str], bool], limit: int | None, token: str | None
) -> tuple[list[str], str | None]:
    """One page of URLs in the order of names, and what continues it."""
    if limit is not None and not 1 <= limit <= RESULTS_MAX:
        raise invalid_value(
            limit, "MaxResults", f"MaxResults must be an integer between 1 and {RESULTS_MAX}."
        )
    after = _read_token(token) if token else ""
    names, last = await page(call.engine.queues, after, limit or RESULTS_MAX, wanted)
    more = limit is not None and last is not None
    following = b64encode(names[-1].encode()).decode() if more else None
    return [call.url_of(name) for name in names], following


def _read_token(token: str) -> str:
    try:
        name = b64decode(token, validate=True).decode()
        check_name(name)
    except (NotBase64, ValueError, InvalidArgument):
        told = token if len(token) < _TOKEN_CHARS_SHOWN else token[:_TOKEN_CHARS_SHOWN] + "…"
        raise invalid_value(told, "NextToken", "Invalid NextToken value.") from None
    return name


_KEY_LENGTH = f"Tag keys must be between 1 and {TAG_KEY_CHARS_MAX} characters in length."


def _check_tags(tags: dict[str, str], name: str) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        raise invalid(f"Too many tags added for queue {name.rpartition('/')[2]}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX:
            raise invalid(_KEY_LENGTH)
        if key.lower().startswith("aws:"):
            raise invalid("aws: prefixed tag key names are not allowed for external use.")
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise invalid(f"Tag values must have at most {TAG_VALUE_CHARS_MAX} characters.")
    return tags


class Pauses:
    """The two waits that AWS imposes, off unless they are wanted: a queue is purged at most once a
    minute, and a name is free again a minute after its queue was deleted."""

    def __init__(self, is_on: bool = False) -> None:
        self._is_on = is_on
        self._purged: dict[str, int] = {}
        self._deleted: dict[str, int] = {}

    def purge(self, name: str, now_ms: int) -> None:
        if self._is_on:
            if _recent(self._purged, name, now_ms):
                plain = name.rpartition("/")[2]
                raise SqsError(
                    "PurgeQueueInProgress",
                    f"Only one PurgeQueue operation on {plain} is allowed every 60 seconds.",
                )
            self._purged[name] = now_ms

    def delete(self, name: str, now_ms: int) -> None:
        if self._is_on:
            self._deleted[name] = now_ms

    def create(self, name: str, now_ms: int) -> None:
        if self._is_on and _recent(self._deleted, name, now_ms):
            raise SqsError(
                "QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another "
                "with the same name.",
            )


def _recent(times: dict[str, int], name: str, now_ms: int) -> bool:
    for old in [each for each, at_ms in times.items() if at_ms <= now_ms - _MINUTE_MS]:
        del times[old]
    return name in times
