"""TagQueue, UntagQueue and ListQueueTags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.doors.sqs_http.errors import invalid
from nexo.doors.sqs_http.shapes import ListQueueTagsResult
from nexo.vocabulary.limits import TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import (
        ListQueueTagsRequest,
        TagQueueRequest,
        UntagQueueRequest,
    )


async def tag_queue(call: Call, request: TagQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    settings = actor.queue.settings
    tags = check_tags({**settings.tags, **(request.tags or {})})
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, tags=tags))


async def untag_queue(call: Call, request: UntagQueueRequest) -> None:
    actor = call.queue(request.queue_url)
    settings, gone = actor.queue.settings, set(request.tag_keys or ())
    tags = {key: value for key, value in settings.tags.items() if key not in gone}
    await call.engine.edit_queue(actor.name, msgspec.structs.replace(settings, tags=tags))


async def list_queue_tags(call: Call, request: ListQueueTagsRequest) -> ListQueueTagsResult:
    actor = call.queue(request.queue_url)
    return ListQueueTagsResult(tags=actor.queue.settings.tags or None)


def check_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        raise invalid(f"Too many tags: a queue has at most {TAGS_MAX}, not {len(tags)}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX:
            raise invalid(
                f"Tag keys must be between 1 and {TAG_KEY_CHARS_MAX} characters in length."
            )
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise invalid(f"Tag values must have at most {TAG_VALUE_CHARS_MAX} characters.")
    return tags
