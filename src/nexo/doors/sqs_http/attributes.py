"""GetQueueAttributes and SetQueueAttributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.sqs_http.errors import unknown_attribute
from nexo.doors.sqs_http.queue_attributes import changed_settings, shown_figures, shown_settings
from nexo.doors.sqs_http.shapes import GetQueueAttributesResult

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import GetQueueAttributesRequest, SetQueueAttributesRequest

KNOWN = frozenset(
    {
        "All",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "ContentBasedDeduplication",
        "CreatedTimestamp",
        "DeduplicationScope",
        "DelaySeconds",
        "FifoQueue",
        "FifoThroughputLimit",
        "KmsDataKeyReusePeriodSeconds",
        "KmsMasterKeyId",
        "LastModifiedTimestamp",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "Policy",
        "QueueArn",
        "ReceiveMessageWaitTimeSeconds",
        "RedriveAllowPolicy",
        "RedrivePolicy",
        "SqsManagedSseEnabled",
        "VisibilityTimeout",
    }
)


async def get_queue_attributes(
    call: Call, request: GetQueueAttributesRequest
) -> GetQueueAttributesResult:
    actor = call.queue(request.queue_url)
    names = request.attribute_names or []
    for name in names:
        if name not in KNOWN:
            raise unknown_attribute(name)
    if not names:
        return GetQueueAttributesResult()
    shown = {
        **shown_figures(call, actor),
        **shown_settings(call.addresses, actor.name, actor.queue.settings),
    }
    if "All" not in names:
        shown = {name: shown[name] for name in names if name in shown}
    return GetQueueAttributesResult(attributes=shown or None)


async def set_queue_attributes(call: Call, request: SetQueueAttributesRequest) -> None:
    actor = call.queue(request.queue_url)
    given = request.attributes or {}
    settings = actor.queue.settings
    changed = changed_settings(call, actor.name, settings, given, actor.now_ms())
    await call.engine.edit_queue(actor.name, changed)
