"""Publish and PublishBatch."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from nexo.doors.sns_http.errors import SnsError, bad_value, invalid, missing, told
from nexo.doors.sns_http.form import Given
from nexo.vocabulary.attributes import TEXT, decode_typed, encode_typed
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import SNS_MESSAGE_BYTES_MAX
from nexo.vocabulary.names import FIFO_SUFFIX
from nexo.vocabulary.sns import MARK, Mark, mark_of, raw_for, sequence_number
from nexo.vocabulary.sqs import TRACE_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.doors.sns_http.app import Call
    from nexo.doors.sns_http.form import Result
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.attributes import Typed
    from nexo.vocabulary.batch import Batch

ENTRIES_MAX = 10
_SUBJECT_CHARS_MAX = 100
_NAME_CHARS_MAX = 256
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]+")
_ENTRY_ID_CHARS_MAX = 80
_ID = re.compile(r"[!-~]{1,128}")  # of a group, and of deduplication
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_ODD = re.compile(r"[^A-Za-z0-9_.-]")
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BY_CONTENT = (
    "The topic should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


class Sequence:
    """Sequence numbers of FIFO topics: they only grow, also from one life of the broker to the
    next, and have gaps."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last = 0

    def next(self) -> str:
        self._last = max(self._last + 1, self._now_ms() << 16)
        return sequence_number(self._last)


class Outgoing(NamedTuple):
    """A message that may be published."""

    body: bytes
    attributes: dict[str, Typed]
    subject: str
    group: str | None
    deduplication_id: str | None
    size: int


class Sent(NamedTuple):
    message_id: str
    sequence_number: str

    def shown(self) -> Result:
        sent = {"MessageId": self.message_id}
        return {**sent, "SequenceNumber": self.sequence_number} if self.sequence_number else sent


async def publish(call: Call, given: Given) -> Result:
    if given.text("PhoneNumber"):
        raise invalid("PhoneNumber Reason: this broker delivers to SQS queues only")
    arn = given.text("TopicArn") or given.text("TargetArn")
    if not arn:
        raise invalid("TopicArn or TargetArn Reason: no value for required parameter")
    parameter = "TopicArn" if given.text("TopicArn") else "TargetArn"
    topic = call.topic(arn, parameter)
    outgoing = _outgoing(given, topic)
    if outgoing.size > SNS_MESSAGE_BYTES_MAX:
        raise invalid("Message too long")
    sent = await _send(call, topic, [outgoing])
    return sent[0].shown()


async def publish_batch(call: Call, given: Given) -> Result:
    entries = given.members("PublishBatchRequestEntries")
    if not entries:
        raise SnsError("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > ENTRIES_MAX:
        raise SnsError(
            "TooManyEntriesInBatchRequest",
            "The batch request contains more entries than permissible.",
        )
    topic = call.topic(given.needed("TopicArn"))
    ids = _entry_ids(entries)
    messages = [_outgoing(Given(entry), topic, at) for at, entry in enumerate(entries, 1)]
    if sum(each.size for each in messages) > SNS_MESSAGE_BYTES_MAX:
        raise SnsError(
            "BatchRequestTooLong",
            "The length of all the messages put together is more than the limit.",
        )
    sent = await _send(call, topic, messages)
    shown = [{"Id": key, **each.shown()} for key, each in zip(ids, sent, strict=True)]
    return {"Successful": shown, "Failed": []}


def _entry_ids(entries: list[Any]) -> list[str]:
    ids: list[str] = []
    for at, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise invalid("PublishBatchRequestEntries")
        entry_id = Given(entry).text("Id")
        if entry_id is None:
            raise missing(f"PublishBatchRequestEntries.{at}.member.id")
        if len(entry_id) > _ENTRY_ID_CHARS_MAX:
            raise SnsError(
                "InvalidBatchEntryId",
                f"The Id of a batch entry in the batch request is too long: {told(entry_id)}",
            )
        if not _ENTRY_ID.fullmatch(entry_id):
            raise SnsError(
                "InvalidBatchEntryId",
                "The Id of a batch entry in the batch request contains an impermissible "
                f"character: {entry_id}",
            )
        ids.append(entry_id)
    if len(set(ids)) < len(ids):
        raise SnsError(
            "BatchEntryIdsNotDistinct",
            "Two or more batch entries in the request have the same Id.",
        )
    return ids


# -- Sending ----------------------------------------------------------------------------------


async def _send(call: Call, topic: TopicActor, messages: list[Outgoing]) -> list[Sent]:
    """All in one commit, to the topic and to every queue that is subscribed now."""
    bound = topic.bound_queues()
    raw = raw_for((queue.incarnation, each.sns is None or each.sns.raw) for queue, each in bound)
    arn = call.names.topic_arn(topic.name)
    if not topic.name.endswith(FIFO_SUFFIX):
        marks = [Mark(arn, str(uuid4()), "", raw, each.subject) for each in messages]
        await topic.publish(_batch(messages, marks, call.asked.trace))
        return [Sent(mark.message_id, "") for mark in marks]
    marks = [Mark(arn, str(uuid4()), call.sequence.next(), raw, each.subject) for each in messages]
    # One by one, because each may repeat an earlier one; in one step, so one commit has them all.
    publishing = [
        topic.publish(_batch([message], [mark], call.asked.trace))
        for message, mark in zip(messages, marks, strict=True)
    ]
    offsets = await asyncio.gather(*publishing)
    return [
        await _known(topic, offset, mark) for (offset, _), mark in zip(offsets, marks, strict=True)
    ]


async def _known(topic: TopicActor, offset: int, mark: Mark) -> Sent:
    """What was said of the message at an offset: what repeats another gets its answer again."""
    found = mark_of(decode_typed(await topic.attributes_at(offset))) or mark
    return Sent(found.message_id, found.sequence_number)


def _batch(messages: list[Outgoing], marks: list[Mark], trace: str | None) -> Batch:
    batch = batch_of([each.body for each in messages])
    attributes: list[bytes | None] = []
    for message, mark in zip(messages, marks, strict=True):
        kept: dict[str, Typed] = {**message.attributes, MARK: (TEXT, mark.written())}
        if trace is not None:
            kept[TRACE_HEADER] = (TEXT, trace)
        attributes.append(encode_typed(kept))
    groups, ids = [m.group for m in messages], [m.deduplication_id for m in messages]
    return msgspec.structs.replace(
        batch,
        attributes=attributes,
        groups=groups if any(groups) else None,
        deduplication_ids=ids if any(ids) else None,
    )


# -- What may be published --------------------------------------------------------------------


def _outgoing(given: Given, topic: TopicActor, at: int | None = None) -> Outgoing:
    """A message, or why it is refused; `at` is its place in a batch."""
    text = given.text("Message")
    if text is None:
        raise missing("Message" if at is None else f"PublishBatchRequestEntries.{at}.message")
    if not text:
        raise invalid("Empty message")
    subject = given.text("Subject")
    if subject is not None and (
        not 1 <= len(subject) <= _SUBJECT_CHARS_MAX or _CONTROL.search(subject)
    ):
        raise invalid("Subject")
    attributes, size = _attributes(given, at), len(text.encode())
    for name, (kind, value) in attributes.items():
        size += len(name) + len(kind.encode())
        size += len(value.encode() if isinstance(value, str) else value)
    if given.text("MessageStructure") == "json":
        text = _for_queues(text)
    body = text.encode()
    group, deduplication_id = _ids(given, topic, body)
    return Outgoing(body, attributes, subject or "", group, deduplication_id, size)


def _for_queues(text: str) -> str:
    """Of a message with a text for each protocol, that for queues."""
    try:
        texts = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid("Message Structure - JSON message body failed to parse") from None
    if not isinstance(texts, dict):
        raise invalid("Message Structure - JSON message body failed to parse")
    default = texts.get("default")
    if not isinstance(default, str):
        raise invalid("Message Structure - No default entry in JSON message body")
    found = texts.get("sqs")
    return found if isinstance(found, str) else default


def _ids(given: Given, topic: TopicActor, body: bytes) -> tuple[str | None, str | None]:
    """The group of a message, and what it is recognised by."""
    group, key = given.text("MessageGroupId"), given.text("MessageDeduplicationId")
    if not topic.name.endswith(FIFO_SUFFIX):
        if key:
            raise invalid(
                "MessageDeduplicationId Reason: The request includes MessageDeduplicationId "
                "parameter that is not valid for this topic type"
            )
        _check_id(group, "MessageGroupId")
        return group or None, None
    if not group:
        raise invalid("The MessageGroupId parameter is required for FIFO topics")
    _check_id(group, "MessageGroupId")
    if not key:
        if topic.info().settings.deduplication != "content":
            raise invalid(_BY_CONTENT)
        key = sha256(body).hexdigest()
    _check_id(key, "MessageDeduplicationId")
    return group, key


def _check_id(given: str | None, parameter: str) -> None:
    if given and not _ID.fullmatch(given):
        raise invalid(
            f"{parameter} Reason: {parameter} can only include alphanumeric and punctuation "
            "characters. 1 to 128 in length"
        )


def _attributes(given: Given, at: int | None) -> dict[str, Typed]:
    return {
        name: _typed(name, value, at)
        for name, value in given.entries("MessageAttributes", "Name", "Value").items()
    }


def _typed(name: str, given: Any, at: int | None) -> Typed:
    _check_attribute_name(name)
    value = Given(given if isinstance(given, dict) else {})
    kind, text, encoded = value.text("DataType"), value.text("StringValue"), None
    encoded = value.text("BinaryValue")
    if kind is None:
        before = "" if at is None else f"publishBatchRequestEntries.{at}.member."
        raise missing(f"{before}messageAttributes.{name}.member.dataType")
    found = _TYPE.fullmatch(kind)
    if found is None or len(kind) > _NAME_CHARS_MAX:
        raise bad_value(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    empty = bad_value(
        f"The message attribute '{name}' must contain non-empty message attribute value for "
        f"message attribute type '{kind}'."
    )
    if text is None and encoded is None:
        raise empty
    wanted, value_given = ("Binary", encoded) if found[1] == "Binary" else ("String", text)
    if value_given is None:
        raise bad_value(
            f"The message attribute '{name}' with type '{kind}' must use field '{wanted}'."
        )
    if not value_given:
        raise empty
    if wanted == "Binary":
        try:
            return kind, b64decode(value_given, validate=True)
        except (NotBase64, ValueError):
            raise bad_value(f"The message attribute '{name}' is not base64.") from None
    if found[1] == "Number" and not _NUMBER.fullmatch(value_given):
        raise bad_value(f"Could not cast message attribute '{name}' value to number.")
    return kind, value_given


def _check_attribute_name(name: str) -> None:
    if len(name) > _NAME_CHARS_MAX:
        raise bad_value("Length of message attribute name must be less than 256 bytes.")
    if not name or name.startswith("."):
        raise bad_value("Invalid message attribute name starting with character '.' was found.")
    if name.endswith("."):
        raise bad_value("Invalid message attribute name ending with character '.' was found.")
    odd = _ODD.search(name)
    if odd is not None:
        raise bad_value(
            f"Invalid non-alphanumeric character '#x{ord(odd[0]):X}' was found in the message "
            "attribute name. Can only include alphanumeric characters, hyphens, underscores, or "
            "dots."
        )
    if ".." in name:
        raise bad_value("Message attribute name can not have successive '.' character.")
    if name.lower().startswith(("aws.", "amazon.")):
        raise bad_value(f"The message attribute name '{name}' begins with a reserved prefix.")
