"""Queues come, are found, and go: CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, PurgeQueue and
ListDeadLetterSourceQueues."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING

from nexo.doors.sqs_http.addresses import Place
from nexo.doors.sqs_http.errors import SqsError, invalid, invalid_value
from nexo.doors.sqs_http.queue_attributes import changed_settings, shown_settings
from nexo.doors.sqs_http.shapes import (
    CreateQueueResult,
    GetQueueUrlResult,
    ListDeadLetterSourceQueuesResult,
    ListQueuesResult,
)
from nexo.doors.sqs_http.tags import check_tags
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import FIFO_SUFFIX, check_name, dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import (
        CreateQueueRequest,
        DeleteQueueRequest,
        GetQueueUrlRequest,
        ListDeadLetterSourceQueuesRequest,
        ListQueuesRequest,
        PurgeQueueRequest,
    )
    from nexo.engine.queue_actor import QueueActor

RESULTS_MAX = 1_000
NAME_CHARS_MAX = 80
_TOKEN_CHARS_SHOWN = 200
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")


async def create_queue(call: Call, request: CreateQueueRequest) -> CreateQueueResult:
    plain, given = request.queue_name or "", dict(request.attributes or {})
    is_fifo = _check_name(plain, given)
    name = call.addresses.scoped(plain, call.caller.place)
    call.check(name)
    known = call.engine.queues.get(name)
    if known is not None:
        _check_same(call, known, given)
        return CreateQueueResult(queue_url=call.url_of(name))
    now_ms = call.engine.now_ms()
    call.pauses.create(name, now_ms)
    tags = check_tags(request.tags or {})
    wanted = QueueSettings(
        max_attempts=None, fifo=is_fifo, deduplication="id" if is_fifo else "off", tags=tags
    )
    await call.engine.create_queue(name, changed_settings(call, name, wanted, given))
    return CreateQueueResult(queue_url=call.url_of(name))


async def delete_queue(call: Call, request: DeleteQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    call.pauses.delete(actor.name, actor.now_ms())
    await call.engine.delete_queue(actor.name)


async def get_queue_url(call: Call, request: GetQueueUrlRequest) -> GetQueueUrlResult:
    place = call.caller.place
    if request.queue_owner_aws_account_id:
        place = Place(request.queue_owner_aws_account_id, place.region)
    name = call.addresses.scoped(request.queue_name or "", place)
    return GetQueueUrlResult(queue_url=call.url_of(call.named(name).name))


async def list_queues(call: Call, request: ListQueuesRequest) -> ListQueuesResult:
    prefix, rights, found = request.queue_name_prefix or "", call.caller.rights, []
    for name in call.engine.queues:
        place, plain = call.addresses.place_of(name)
        if place == call.caller.place and plain.startswith(prefix) and rights.knows(name):
            found.append(name)
    urls, token = _page(call, found, request.max_results, request.next_token)
    return ListQueuesResult(queue_urls=urls or None, next_token=token)


async def purge_queue(call: Call, request: PurgeQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    call.pauses.purge(actor.name, actor.now_ms())
    await actor.purge()


async def list_dead_letter_source_queues(
    call: Call, request: ListDeadLetterSourceQueuesRequest
) -> ListDeadLetterSourceQueuesResult:
    target = call.queue(request.queue_url)
    found = [name for name in sources_of(call, target.name) if call.caller.rights.knows(name)]
    urls, token = _page(call, found, request.max_results, request.next_token)
    return ListDeadLetterSourceQueuesResult(queue_urls=urls or None, next_token=token)


def sources_of(call: Call, target: str) -> list[str]:
    """The queues whose dead letters go to this one."""
    found = []
    for name, actor in call.engine.queues.items():
        settings = actor.queue.settings
        limited = settings.max_attempts is not None
        if limited and dead_letter_name(name, settings.dead_letter) == target:
            found.append(name)
    return found


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
    settings = known.queue.settings
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


def _page(
    call: Call, names: list[str], limit: int | None, token: str | None
) -> tuple[list[str], str | None]:
    """One page of URLs in the order of names, and what continues it."""
    if limit is not None and not 1 <= limit <= RESULTS_MAX:
        raise invalid_value(
            limit, "MaxResults", f"MaxResults must be an integer between 1 and {RESULTS_MAX}."
        )
    after = _read_token(token) if token else ""
    names = sorted(name for name in names if name > after)
    page = names[: limit or RESULTS_MAX]
    more = limit is not None and len(names) > len(page)
    following = b64encode(page[-1].encode()).decode() if more else None
    return [call.url_of(name) for name in page], following


def _read_token(token: str) -> str:
    try:
        name = b64decode(token, validate=True).decode()
        check_name(name)
    except (NotBase64, ValueError, InvalidArgument):
        told = token if len(token) < _TOKEN_CHARS_SHOWN else token[:_TOKEN_CHARS_SHOWN] + "…"
        raise invalid_value(told, "NextToken", "Invalid NextToken value.") from None
    return name
