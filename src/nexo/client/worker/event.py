"""Messages as the event that Lambda makes of them for SQS.

A body that is not UTF-8 travels as base64 and says so in the message attribute
`Nexo.BodyEncoding`; a priority is the attribute `Nexo.Priority`, as at the SQS door. What came by
SNS is in its envelope, as there. A receipt handle is the one that the SQS door would have given for
the same delivery.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.attributes import SYSTEM_PREFIX, TEXT, decode_typed
from nexo.vocabulary.names import scope_of
from nexo.vocabulary.sns import envelope_of
from nexo.vocabulary.sqs import (
    PRIORITY,
    SENDER_ID,
    TRACE_HEADER,
    arn_of,
    digest,
    handle_of,
    sequence_number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.client.message import HeldMessage
    from nexo.client.worker.function import Function
    from nexo.vocabulary.attributes import Typed

BODY_ENCODING = "Nexo.BodyEncoding"
_ORIGIN = "http://localhost"  # of URLs in what SNS sent: who speaks RPC does not know the HTTP port


def event_of(
    messages: Sequence[HeldMessage], queue: str, function: Function, fifo: bool
) -> dict[str, Any]:
    place = scope_of(queue) or (function.account, function.region, queue)
    return {"Records": [_record(message, place, fifo) for message in messages]}


def _record(message: HeldMessage, place: tuple[str, str, str], fifo: bool) -> dict[str, Any]:
    account, region, _ = place
    delivery = message._delivery
    column = message._part.batch.attributes
    encoded = column[message._at] if isinstance(column, list) else column
    kept = decode_typed(encoded)
    shown = {name: typed for name, typed in kept.items() if not name.startswith(SYSTEM_PREFIX)}
    if message.priority and PRIORITY not in shown:
        shown[PRIORITY] = ("Number", str(message.priority))
    body = message.body
    envelope = envelope_of(body, encoded, message.id, _created_ms(message), _ORIGIN)
    if envelope is not None:  # then it has the attributes, too
        body, shown = envelope, {}
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = b64encode(body).decode()
        shown[BODY_ENCODING] = (TEXT, "base64")
    return {
        "messageId": message.id,
        "receiptHandle": handle_of(delivery.incarnation, delivery.lease, message._seq),
        "body": text,
        "attributes": _system(message, kept, account, region, fifo),
        "messageAttributes": {name: _shown(typed) for name, typed in shown.items()},
        "md5OfBody": digest(text.encode()),
        "eventSource": "aws:sqs",
        "eventSourceARN": arn_of(*place),
        "awsRegion": region,
    }


def _system(
    message: HeldMessage, kept: dict[str, Typed], account: str, region: str, fifo: bool
) -> dict[str, str]:
    dead = message.dead_letter
    source = arn_of(*(scope_of(dead.source) or (account, region, dead.source))) if dead else None
    attempts = message.attempts + (dead.attempts if dead else 0)
    sender, trace = kept.get(SENDER_ID), kept.get(TRACE_HEADER)
    values: dict[str, Any] = {
        "ApproximateReceiveCount": attempts,
        "SentTimestamp": _created_ms(message),
        "SenderId": sender[1] if sender else account,
        "ApproximateFirstReceiveTimestamp": message._part.first_delivered_ms,
        "SequenceNumber": sequence_number(message._seq) if fifo else None,
        "MessageDeduplicationId": message.deduplication_id if fifo else None,
        "MessageGroupId": message.group_id,
        "AWSTraceHeader": trace[1] if trace else None,
        "DeadLetterQueueSourceArn": source,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _created_ms(message: HeldMessage) -> int:
    return round(message.created_at.timestamp() * 1000)


def _shown(typed: Typed) -> dict[str, Any]:
    kind, value = typed
    shown: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": kind}
    if isinstance(value, str):
        shown["stringValue"] = value
    else:
        shown["binaryValue"] = b64encode(value).decode()
    return shown
