"""ReceiveMessage."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from nexo.doors.http.body import Gone
from nexo.doors.sqs_http.call import TAKEN
from nexo.doors.sqs_http.errors import SqsError, check_id, invalid_value, unknown_attribute
from nexo.doors.sqs_http.message_attributes import as_value, shown_attributes
from nexo.doors.sqs_http.shapes import Message, ReceiveMessageResult
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import StaleReceipt
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import (
    IN_FLIGHT_MAX,
    SQS_POLLS_APART_MS,
    SQS_RECEIVES_STEP,
    SQS_RECEIVES_STEP_BYTES,
)
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
    from nexo.doors.sqs_http.call import Call, Taken
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


def receive_message(call: Call, request: ReceiveMessageRequest) -> Taken:
    actor = call.queue(request.queue_url)
    count = request.max_number_of_messages
    count = 1 if count is None else count
    if not 1 <= count <= MESSAGES_MAX:
        raise invalid_value(
            count, "MaxNumberOfMessages", f"Must be between 1 and {MESSAGES_MAX}, if provided."
        )
    wait_s, visibility_s = request.wait_time_seconds, request.visibility_timeout
    if wait_s is not None:
        _check_range(wait_s, "WaitTimeSeconds", WAIT_S_MAX)
    if visibility_s is not None:
        _check_range(visibility_s, "VisibilityTimeout", VISIBILITY_S_MAX)
    names = _NO_NAMES
    if request.attribute_names or request.message_system_attribute_names:
        names = _system_names(call, request)
    call.door.clients.received(call, actor.queue.name)
    call.door.receives.add(_Receive(call, actor, request, names, count))
    return TAKEN


class _Receive:
    """One that may be done: how many messages of which queue, and what is asked of them."""

    __slots__ = ("actor", "attempt", "call", "count", "names", "request", "visibility_ms")

    def __init__(
        self,
        call: Call,
        actor: QueueActor,
        request: ReceiveMessageRequest,
        names: frozenset[str],
        count: int,
    ) -> None:
        self.call = call
        self.actor = actor
        self.request = request
        self.names = names
        self.count = count
        visibility_s = request.visibility_timeout
        self.visibility_ms = None if visibility_s is None else visibility_s * 1000
        self.attempt = request.receive_request_attempt_id

    def take(self) -> Delivery | None:
        """What there is for it now; None if it has to be waited for."""
        actor = self.actor
        if actor.settings.fifo:
            if self.attempt is not None:
                again = _again(actor, self.attempt, self.visibility_ms)
                if again is not None:
                    return again
        elif actor.in_flight >= IN_FLIGHT_MAX:
            raise SqsError(
                "OverLimit",
                f"Too many messages are in flight: a queue has at most {IN_FLIGHT_MAX} of them.",
            )
        else:
            self.attempt = None
        delivery = actor.receive_at_once(self.count, self.visibility_ms)
        if delivery is not None:
            if delivery.parts:
                if self.attempt:
                    actor.receive_attempts.remember(self.attempt, delivery)
            else:
                wait_s = self.request.wait_time_seconds
                if actor.settings.receive_wait_ms if wait_s is None else wait_s:
                    return None
        return delivery

    def answer(self, delivery: Delivery | None) -> None:
        if delivery is None:
            self.call.answer_later(_receive_later(self))
        elif delivery.parts:
            self.call.answer(_result(self, delivery))
        else:
            self.call.answer(_NOTHING)


class Receives:
    """Those that come in one turn of the event loop, each by a request of its own. First all of
    them take their messages, then all are answered: a processor that does the same thing again and
    again is twice as fast as one that does everything for one and then for the next."""

    def __init__(self) -> None:
        self._gathered: deque[_Receive] = deque()

    def add(self, receive: _Receive) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._serve)
        self._gathered.append(receive)

    def _serve(self) -> None:
        """Some of them, the rest in another step."""
        taken: list[tuple[_Receive, Delivery | None, Exception | None]] = []
        gathered, size = self._gathered, 0
        while gathered and len(taken) < SQS_RECEIVES_STEP and size < SQS_RECEIVES_STEP_BYTES:
            receive = gathered.popleft()
            if receive.call.exchange.is_gone:
                continue  # what it would get is for others
            delivery, failure = outcome_of(receive.take)
            taken.append((receive, delivery, failure))
            if delivery is not None:
                for part in delivery.parts:
                    offsets = part.content.offsets
                    size += offsets[part.index + part.count] - offsets[part.index]
        if gathered:
            asyncio.get_running_loop().call_soon(self._serve)
        for receive, delivery, failure in taken:
            if failure is None:
                _, failure = outcome_of(receive.answer, delivery)
            if failure is not None:
                receive.call.told(None, failure)


_NOTHING = ReceiveMessageResult()
_NO_NAMES: frozenset[str] = frozenset()


async def _receive_later(receive: _Receive) -> ReceiveMessageResult:
    """There is nothing, or it has to be waited for."""
    actor, count, visibility_ms = receive.actor, receive.count, receive.visibility_ms
    delivery: Delivery | None = await actor.pop(count, visibility_ms=visibility_ms, one_ack=True)
    if delivery is not None and not delivery.parts:
        wait_s = receive.request.wait_time_seconds
        wait_ms = actor.settings.receive_wait_ms if wait_s is None else wait_s * 1000
        if wait_ms > 0:
            delivery = await _wait(receive.call, actor, count, visibility_ms, wait_ms)
    if delivery is None or not delivery.parts:
        return _NOTHING
    if receive.attempt:
        actor.receive_attempts.remember(receive.attempt, delivery)
    return _result(receive, delivery)


def _result(receive: _Receive, delivery: Delivery) -> ReceiveMessageResult:
    call, actor, names = receive.call, receive.actor, receive.names
    wanted = receive.request.message_attribute_names
    messages = None
    if not names and not wanted:
        messages = _bodies(actor.incarnation, delivery)
    if messages is None:
        found = actor.messages(delivery)
        messages = [_shown(call, actor, message, names, wanted) for message in found]
    return ReceiveMessageResult(messages=messages)


def _bodies(incarnation: int, delivery: Delivery) -> list[Message] | None:
    """Messages that are nothing but bodies, for who asks for no more: the lean path of `_shown`.
    None if one of them has attributes."""
    found, lease = [], delivery.lease
    for part in delivery.parts:
        content, index, seq = part.content, part.index, part.first
        if content.attributes is not None:
            return None
        payload, offsets, origins = content.payload, content.offsets, content.origins
        for at in range(index, index + part.count):
            body = bytes(payload[offsets[at] : offsets[at + 1]])
            try:
                text = body.decode()
            except UnicodeDecodeError:
                text, body = _text_of(body)
            origin = origins[at] if origins else None
            found.append(
                Message(
                    message_id=origin.id if origin else message_id(incarnation, seq),
                    receipt_handle=handle_of(incarnation, lease, seq),
                    md5_of_body=digest(body),
                    body=text,
                )
            )
            seq += 1
    return found


def _text_of(body: bytes) -> tuple[str, bytes]:
    """A body as text, and what its digest is made of."""
    try:
        return body.decode(), body
    except UnicodeDecodeError:  # only the native client can push that
        text = body.decode(errors="replace")
        return text, text.encode()


async def _wait(
    call: Call, actor: QueueActor, count: int, visibility_ms: int | None, wait_ms: int
) -> Delivery | None:
    """A long poll. Who hangs up leaves the waiting room at once; what would have been theirs goes
    to the next."""
    exchange, rights, waits = call.exchange, call.caller.rights, call.door.waits
    if exchange.is_gone:
        raise Gone
    loop = asyncio.get_running_loop()
    wait_ms += _together_ms(round(loop.time() * 1000) + wait_ms)
    pop = loop.create_task(
        actor.pop(count, visibility_ms=visibility_ms, one_ack=True, wait_ms=wait_ms)
    )
    waits.add(pop)

    def end(_: Unauthorized) -> None:
        pop.cancel()

    if rights.is_bound:
        rights.when_ended(end)
    exchange.when_gone(pop.cancel)
    try:
        await asyncio.wait((pop,))
        if exchange.is_gone:
            if not pop.cancelled():
                delivery = pop.result()
                for part in delivery.parts:
                    await actor.give_back(delivery.lease, part.first, part.first + part.count)
            raise Gone
        if pop.cancelled():  # the door closes, or the key was revoked
            rights.check_live()
            return None
        return pop.result()
    finally:
        exchange.when_gone(None)
        rights.forget(end)
        waits.discard(pop)
        pop.cancel()


def _together_ms(end_ms: int) -> int:
    """How much later a long poll ends, so that those of about the same time end in one step of the
    event loop: to wake up for each of many costs more than to answer them."""
    return -end_ms % SQS_POLLS_APART_MS


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


def _check_range(value: int, parameter: str, most: int) -> None:
    if not 0 <= value <= most:
        raise invalid_value(value, parameter, f"Must be >= 0 and <= {most}, if provided.")


def _system_names(call: Call, request: ReceiveMessageRequest) -> frozenset[str]:
    """Which system attributes are wanted. The query protocol looks at the older of the two lists
    first, the JSON protocol at both."""
    older, newer = request.attribute_names, request.message_system_attribute_names
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
        origin = call.exchange.origin
        envelope = envelope_of(body, message.attributes, message.id, message.created_ms, origin)
        if envelope is not None:  # then it has the attributes, too
            body, is_plain = envelope, False
    text, body = _text_of(body)
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
