"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.doors.sqs_http.batches import check_entries, failed
from nexo.doors.sqs_http.call import TAKEN, Later
from nexo.doors.sqs_http.errors import SqsError, check_id, invalid, invalid_value, missing
from nexo.doors.sqs_http.message_attributes import (
    forbidden_in,
    priority_of,
    size_of,
    trace_header,
    typed_attributes,
)
from nexo.doors.sqs_http.sends import GATHERED_BYTES_MAX
from nexo.doors.sqs_http.shapes import (
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)
from nexo.vocabulary.attributes import TEXT, encode_typed
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import MESSAGE_BYTES_MAX
from nexo.vocabulary.sqs import (
    PRIORITY,
    SENDER_ID,
    TRACE_HEADER,
    attributes_digest,
    digest,
    sequence_number,
)

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call, Taken
    from nexo.doors.sqs_http.shapes import (
        BatchResultErrorEntry,
        SendMessageBatchRequest,
        SendMessageBatchRequestEntry,
        SendMessageRequest,
        Shape,
    )
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Accepted
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.settings import QueueSettings

DELAY_S_MAX = 900
_ENTRY = "SendMessageBatchRequestEntry"


class Outgoing(NamedTuple):
    """A message that may be sent."""

    body: bytes
    digest: str
    attributes_digest: str | None
    system_digest: str | None
    size: int
    attributes: bytes | None
    priority: int
    delay_ms: int | None
    group: str | None
    deduplication_id: str | None

    @property
    def is_plain(self) -> bool:
        """Nothing but a body and a priority."""
        return (
            self.attributes is None
            and self.delay_ms is None
            and self.group is None
            and self.deduplication_id is None
        )


def send_message(call: Call, request: SendMessageRequest) -> Later | Taken:
    actor = call.queue(request.queue_url)
    settings = actor.queue.settings
    if settings.fifo:
        if request.message_group_id is None:
            raise missing("MessageGroupId")
    elif not call.is_query and _is_plain(request) and _keeps_nothing(call):
        body = (request.message_body or "").encode()
        if 0 < len(body) <= settings.max_message_bytes and len(body) <= GATHERED_BYTES_MAX:
            _check_contents(body)
            call.door.sends.add(actor, body, call)
            return TAKEN
    outgoing = _outgoing(call, settings, request)
    _check_size(outgoing.size, settings)
    then = partial(_sent, actor, outgoing, settings.fifo)
    if outgoing.is_plain:
        return Later(actor.push_one(outgoing.body, outgoing.priority), then)
    return Later(actor.push(_batch([outgoing], settings)), then)


def _sent(actor: QueueActor, outgoing: Outgoing, fifo: bool, told: int | Accepted) -> Shape:
    seq = told if isinstance(told, int) else told.ranges[0]
    return SendMessageResult(
        md5_of_message_body=outgoing.digest,
        md5_of_message_attributes=outgoing.attributes_digest,
        md5_of_message_system_attributes=outgoing.system_digest,
        message_id=message_id(actor.incarnation, seq),
        sequence_number=sequence_number(seq) if fifo else None,
    )


def send_message_batch(
    call: Call, request: SendMessageBatchRequest
) -> Later | SendMessageBatchResult:
    actor = call.queue(request.queue_url)
    entries = check_entries(request.entries, _ENTRY)
    settings = actor.settings
    if not settings.fifo and _keeps_nothing(call):
        plain = _plain_batch(call, actor, entries)
        if plain is not None:
            return plain
    good: list[tuple[str, Outgoing]] = []
    bad = []
    size = 0
    for number, entry in enumerate(entries, 1):
        if not entry.message_body:
            raise missing(f"{_ENTRY}.{number}.MessageBody")
        if settings.fifo and entry.message_group_id is None:
            raise invalid("The request must contain the parameter MessageGroupId.")
        try:
            outgoing = _outgoing(call, settings, entry)
        except SqsError as error:
            if error.message == _NO_DEDUPLICATION_ID:
                raise
            size += len(entry.message_body.encode())
            bad.append(failed(entry.id, error))
            continue
        size += outgoing.size
        if outgoing.size > settings.max_message_bytes:
            too_long = invalid(
                "One or more parameters cannot be validated. Reason: Message must be shorter than "
                f"{settings.max_message_bytes} bytes."
            )
            bad.append(failed(entry.id, too_long))
        else:
            good.append((entry.id or "", outgoing))
    if size > MESSAGE_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. "
            f"You have sent {size} bytes.",
        )
    if not good:
        return SendMessageBatchResult(failed=bad or None)
    pushed = actor.push(_batch([outgoing for _, outgoing in good], settings))
    return Later(pushed, partial(_all_sent, actor, good, bad, settings.fifo))


def _plain_batch(
    call: Call, actor: QueueActor, entries: list[SendMessageBatchRequestEntry]
) -> Later | None:
    """The lean path for messages that are nothing but bodies. None if one of them is more, or
    anything is wrong with one: then it is looked at which, and why."""
    bodies, most = [], actor.settings.max_message_bytes
    for entry in entries:
        body = (entry.message_body or "").encode()
        if not 0 < len(body) <= most or not _is_plain(entry):
            return None
        bodies.append(body)
    batch = batch_of(bodies)
    if batch.size > MESSAGE_BYTES_MAX or forbidden_in(b"".join(bodies)) is not None:
        return None
    then = _plain_sent if call.is_query else _plain_sent_json
    return Later(actor.push(batch), partial(then, actor.incarnation, entries, bodies))


def _plain_sent(
    incarnation: int,
    entries: list[SendMessageBatchRequestEntry],
    bodies: list[bytes],
    accepted: Accepted,
) -> SendMessageBatchResult:
    return SendMessageBatchResult(
        successful=[
            SendMessageBatchResultEntry(
                id=entry.id,
                message_id=message_id(incarnation, seq),
                md5_of_message_body=digest(body),
            )
            for entry, body, seq in zip(entries, bodies, accepted.seqs(), strict=True)
        ]
    )


def _plain_sent_json(
    incarnation: int,
    entries: list[SendMessageBatchRequestEntry],
    bodies: list[bytes],
    accepted: Accepted,
) -> bytes:
    """The same, written out: ids of entries have no characters that JSON would have to escape."""
    sent = [
        f'{{"Id":"{entry.id}","MessageId":"{message_id(incarnation, seq)}",'
        f'"MD5OfMessageBody":"{digest(body)}"}}'
        for entry, body, seq in zip(entries, bodies, accepted.seqs(), strict=True)
    ]
    return f'{{"Successful":[{",".join(sent)}]}}'.encode()


def _all_sent(
    actor: QueueActor,
    good: list[tuple[str, Outgoing]],
    bad: list[BatchResultErrorEntry],
    fifo: bool,
    accepted: Accepted,
) -> SendMessageBatchResult:
    incarnation = actor.incarnation
    sent = [
        SendMessageBatchResultEntry(
            id=entry_id,
            message_id=message_id(incarnation, seq),
            md5_of_message_body=outgoing.digest,
            md5_of_message_attributes=outgoing.attributes_digest,
            md5_of_message_system_attributes=outgoing.system_digest,
            sequence_number=sequence_number(seq) if fifo else None,
        )
        for (entry_id, outgoing), seq in zip(good, accepted.seqs(), strict=True)
    ]
    return SendMessageBatchResult(successful=sent, failed=bad or None)


def _batch(messages: list[Outgoing], settings: QueueSettings) -> Batch:
    """The messages as columns; a column that nobody needs is left out."""
    batch = batch_of([each.body for each in messages])
    columns: dict[str, object] = {}
    if any(each.priority for each in messages):
        columns["priority"] = bytes(each.priority for each in messages)
    if any(each.delay_ms is not None for each in messages):
        columns["delay_ms"] = [
            settings.delay_ms if each.delay_ms is None else each.delay_ms for each in messages
        ]
    if any(each.group is not None for each in messages):
        columns["groups"] = [each.group for each in messages]
    if any(each.deduplication_id is not None for each in messages):
        columns["deduplication_ids"] = [each.deduplication_id for each in messages]
    if any(each.attributes is not None for each in messages):
        columns["attributes"] = [each.attributes for each in messages]
    return msgspec.structs.replace(batch, **columns) if columns else batch


def _is_plain(given: SendMessageRequest | SendMessageBatchRequestEntry) -> bool:
    """Whether it is nothing but a body."""
    return (
        given.message_attributes is None
        and given.delay_seconds is None
        and given.message_group_id is None
        and given.message_deduplication_id is None
        and given.message_system_attributes is None
    )


def _keeps_nothing(call: Call) -> bool:
    """Whether a plain message of a standard queue needs no attributes of our own."""
    return call.caller.is_default and b"x-amzn-trace-id" not in call.exchange.fields


def _check_size(size: int, settings: QueueSettings) -> None:
    if size > settings.max_message_bytes:
        raise invalid(
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{settings.max_message_bytes} bytes."
        )


def _checked_body(text: str | None) -> bytes:
    if not text:
        raise missing("MessageBody")
    body = text.encode()
    _check_contents(body)
    return body


def _check_contents(body: bytes) -> None:
    found = forbidden_in(body)
    if found is not None:
        raise SqsError(
            "InvalidMessageContents",
            f"Invalid binary character '#x{ord(found):X}' was found in the message body, the set "
            "of allowed characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | "
            "[#x10000-#x10FFFF]",
        )


def _outgoing(
    call: Call, settings: QueueSettings, given: SendMessageRequest | SendMessageBatchRequestEntry
) -> Outgoing:
    """What is sent, or why it is refused."""
    body = _checked_body(given.message_body)
    delay_ms = _delay_ms(given.delay_seconds, settings.fifo)
    group, deduplication_id = given.message_group_id, given.message_deduplication_id
    if group is not None:
        check_id(group, "MessageGroupId")
    if settings.fifo or deduplication_id is not None:
        deduplication_id = _deduplication_id(deduplication_id, body, settings)
    attributes, size, priority = {}, len(body), 0
    if given.message_attributes:
        attributes = typed_attributes(given.message_attributes)
        size += size_of(attributes)
        priority = priority_of(attributes)
        if priority and settings.fifo:
            raise invalid_value(priority, PRIORITY, "A FIFO queue keeps no priorities.")
    attributes_md5 = attributes_digest(attributes)
    trace, system_md5 = call.trace, None
    if given.message_system_attributes:
        kind, trace = trace_header(given.message_system_attributes)
        system_md5 = attributes_digest({"AWSTraceHeader": (kind, trace)})
    kept = attributes
    if trace is not None:
        kept = {**kept, TRACE_HEADER: (TEXT, trace)}
    if not call.caller.is_default:
        kept = {**kept, SENDER_ID: (TEXT, call.caller.sender_id)}
    return Outgoing(
        body,
        digest(body),
        attributes_md5,
        system_md5,
        size,
        encode_typed(kept) if kept else None,
        priority,
        delay_ms,
        group,
        deduplication_id,
    )


_NO_DEDUPLICATION_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


def _deduplication_id(given: str | None, body: bytes, settings: QueueSettings) -> str | None:
    if given is None:
        if settings.deduplication == "content":
            return sha256(body).hexdigest()
        if settings.deduplication == "id":
            raise invalid(_NO_DEDUPLICATION_ID)
        return None
    if not settings.fifo:
        raise invalid_value(
            given,
            "MessageDeduplicationId",
            "The request include parameter that is not valid for this queue type.",
        )
    check_id(given, "MessageDeduplicationId")
    return given


def _delay_ms(given: int | None, fifo: bool) -> int | None:
    if given is None or (fifo and given == 0):
        return None
    if fifo:
        raise invalid_value(
            given,
            "DelaySeconds",
            "The request include parameter that is not valid for this queue type.",
        )
    if not 0 <= given <= DELAY_S_MAX:
        raise invalid_value(
            given, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}."
        )
    return given * 1000
