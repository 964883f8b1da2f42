"""ReceiveMessage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.doors.http.body import Gone
from nexo.doors.sqs_http.errors import SqsError, check_id, invalid_value, unknown_attribute
from nexo.doors.sqs_http.message_attributes import as_value, shown_attributes
from nexo.doors.sqs_http.shapes import Message, ReceiveMessageResult
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import StaleReceipt
from nexo.vocabulary.limits import IN_FLIGHT_MAX
from nexo.vocabulary.sns import MARK_BYTES, envelope_of
from nexo.vocabulary.sqs import (
    SENDER_ID,
    TRACE_HEADER,
    attributes_digest,
    digest,
    handle_of,
    sequence_number,
)

if TYPE_CHECKING:
    from nexo.doors.sqs_http.actions import Call
    from nexo.doors.sqs_http.shapes import ReceiveMessageRequest
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery
    from nexo.vocabulary import message as vocabulary
    from nexo.vocabulary.errors import Unauthorized

MESSAGES_MAX = 10
VISIBILITY_S_MAX = 43_200
WAIT_S_MAX = 20
SYSTEM = frozenset(
    {
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)


async def receive_message(call: Call, request: ReceiveMessageRequest) -> ReceiveMessageResult:
    actor = call.queue(request.queue_url)
    count = request.max_number_of_messages
    count = 1 if count is None else count
    if not 1 <= count <= MESSAGES_MAX:
        raise invalid_value(
            count, "MaxNumberOfMessages", f"Must be between 1 and {MESSAGES_MAX}, if provided."
        )
    _check_range(request.wait_time_seconds, "WaitTimeSeconds", WAIT_S_MAX)
    _check_range(request.visibility_timeout, "VisibilityTimeout", VISIBILITY_S_MAX)
    names = _system_names(call, request)
    if not actor.settings.fifo and actor.in_flight >= IN_FLIGHT_MAX:
        raise SqsError(
            "OverLimit",
            f"Too many messages are in flight: a queue has at most {IN_FLIGHT_MAX} of them.",
        )
    delivery = await _pop(call, actor, request, count)
    if delivery is None or not delivery.parts:
        return _NOTHING
    wanted = request.message_attribute_names
    messages = [_shown(call, actor, message, names, wanted) for message in actor.messages(delivery)]
    return ReceiveMessageResult(messages=messages)


_NOTHING = ReceiveMessageResult()


async def _pop(
    call: Call, actor: QueueActor, request: ReceiveMessageRequest, count: int
) -> Delivery | None:
    visibility_s = request.visibility_timeout
    visibility_ms = None if visibility_s is None else visibility_s * 1000
    attempt = request.receive_request_attempt_id if actor.settings.fifo else None
    if attempt is not None:
        again = _again(actor, attempt, visibility_ms)
        if again is not None:
            return again
    delivery: Delivery | None = await actor.pop(count, visibility_ms=visibility_ms, one_ack=True)
    if delivery is not None and not delivery.parts:
        wait_s = request.wait_time_seconds
        wait_ms = actor.settings.receive_wait_ms if wait_s is None else wait_s * 1000
        if wait_ms > 0:
            delivery = await _wait(call, actor, count, visibility_ms, wait_ms)
    if attempt and delivery is not None and delivery.parts:
        actor.receive_attempts.remember(attempt, delivery)
    return delivery


async def _wait(
    call: Call, actor: QueueActor, count: int, visibility_ms: int | None, wait_ms: int
) -> Delivery | None:
    """A long poll. Who hangs up leaves the waiting room at once; what would have been theirs goes
    to the next."""
    loop = asyncio.get_running_loop()
    pop = loop.create_task(
        actor.pop(count, visibility_ms=visibility_ms, one_ack=True, wait_ms=wait_ms)
    )
    gone = loop.create_task(call.request.hung_up())
    call.waits.add(pop)
    rights = call.caller.rights

    def end(_: Unauthorized) -> None:
        pop.cancel()

    if rights.is_bound:
        rights.when_ended(end)
    try:
        await asyncio.wait((pop, gone), return_when=asyncio.FIRST_COMPLETED)
        if pop.cancelled():  # the door closes, or the key was revoked
            rights.check_live()
            return None
        if pop.done():
            delivery = pop.result()
            if gone.done():
                for part in delivery.parts:
                    await actor.give_back(delivery.lease, part.first, part.first + part.count)
                raise Gone
            return delivery
        raise Gone
    finally:
        rights.forget(end)
        call.waits.discard(pop)
        pop.cancel()
        gone.cancel()


def _again(actor: QueueActor, attempt: str, visibility_ms: int | None) -> Delivery | None:
    """What this attempt got before, if it is not the first of its id."""
    check_id(attempt, "ReceiveRequestAttemptId")
    try:
        return actor.receive_attempts.again(attempt, visibility_ms)
    except StaleReceipt:
        raise invalid_value(
            attempt,
            "ReceiveRequestAttemptId",
            "The receiveRequestAttemptId is not valid anymore since the receive call is not "
            "retryable.",
        ) from None


def _check_range(value: int | None, parameter: str, most: int) -> None:
    if value is not None and not 0 <= value <= most:
        raise invalid_value(value, parameter, f"Must be >= 0 and <= {most}, if provided.")


def _system_names(call: Call, request: ReceiveMessageRequest) -> frozenset[str]:
    """Which system attributes are wanted. The query protocol looks at the older of the two lists
    first, the JSON protocol at both."""
    older, newer = request.attribute_names, request.message_system_attribute_names
    if not older and not newer:
        return frozenset()
    both = (older or newer or []) if call.is_query else [*(older or ()), *(newer or ())]
    for name in both:
        if name not in SYSTEM:
            raise unknown_attribute(name)
    return SYSTEM if "All" in both else frozenset(both)


def _shown(
    call: Call,
    actor: QueueActor,
    message: vocabulary.Message,
    names: frozenset[str],
    wanted: list[str] | None,
) -> Message:
    body, is_plain = message.body, True
    if message.attributes and MARK_BYTES in message.attributes:
        origin = call.request.origin
        envelope = envelope_of(body, message.attributes, message.id, message.created_ms, origin)
        if envelope is not None:  # then it has the attributes, too
            body, is_plain = envelope, False
    try:
        text = body.decode()
    except UnicodeDecodeError:  # only the native client can push that
        text = body.decode(errors="replace")
        body = text.encode()
    shown = None
    if wanted and is_plain and (message.attributes or message.priority):
        shown = shown_attributes(message.attributes, message.priority, wanted)
    return Message(
        message_id=message.id,
        receipt_handle=handle_of(actor.incarnation, message.lease, message.seq),
        md5_of_body=digest(body),
        body=text,
        attributes=(_system(call, actor, message, names) or None) if names else None,
        md5_of_message_attributes=attributes_digest(shown) if shown else None,
        message_attributes={n: as_value(t) for n, t in shown.items()} if shown else None,
    )


def _system(
    call: Call, actor: QueueActor, message: vocabulary.Message, names: frozenset[str]
) -> dict[str, str]:
    kept = decode_attributes(message.attributes) if message.attributes else {}
    dead, fifo = message.dead_letter, actor.settings.fifo
    attempts = message.attempts + (dead.attempts if dead else 0)
    place, _ = call.addresses.place_of(actor.name)
    values = {
        "SenderId": kept.get(SENDER_ID) or place.account,
        "ApproximateFirstReceiveTimestamp": str(message.first_delivered_ms),
        "ApproximateReceiveCount": str(attempts),
        "SentTimestamp": str(message.created_ms),
        "SequenceNumber": sequence_number(message.seq) if fifo else None,
        "MessageDeduplicationId": message.deduplication_id if fifo else None,
        "MessageGroupId": message.group_id,
        "AWSTraceHeader": kept.get(TRACE_HEADER),
        "DeadLetterQueueSourceArn": call.addresses.arn_of(dead.source) if dead else None,
    }
    return {name: value for name, value in values.items() if value is not None and name in names}
