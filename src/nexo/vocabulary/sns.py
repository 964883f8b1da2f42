"""What SNS says of a message and of a subscription, for whoever speaks to SNS's and SQS's clients.

What is published through SNS is stored as it is, once, however many queues get it. A mark among
its attributes says by which topic and under which id it came, and for which queues it is *raw*.
To the others SNS gives the message inside of a JSON document, the *envelope*: that is made from
message and mark whenever a client of SQS receives it. See `docs/decisions/0013`.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from nexo.vocabulary import limits
from nexo.vocabulary.attributes import SYSTEM_PREFIX, decode_typed
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.filter_policy import ATTRIBUTES, BODY, Scope, compiled
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.sqs import partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.vocabulary.attributes import Typed

MARK = f"{SYSTEM_PREFIX}SNS"  # the attribute that a message which came by SNS has
MARK_BYTES = MARK.encode()
_ALL, _BUT = "*", "!"
_FIRST_SEQUENCE = 10_000_000_000_000_000_000  # so that all sequence numbers have twenty digits
_encode = msgspec.json.Encoder().encode


class Subscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a queue is subscribed to a topic by SNS. `raw`: its messages come without an envelope.
    `aws` are attributes that have no effect, kept for clients that read them."""

    raw: bool = False
    filter_policy: Annotated[str, Meta(max_length=limits.FILTER_POLICY_BYTES_MAX)] = ""
    filter_scope: Scope = ATTRIBUTES
    aws: dict[str, str] = {}


def check_subscription(sns: Subscription | None) -> None:
    """Refuse a subscription that could not be kept, or whose policy cannot be read."""
    if sns is None:
        return
    if sns.filter_scope not in (ATTRIBUTES, BODY):
        raise InvalidArgument(f"the scope of a filter policy is {ATTRIBUTES} or {BODY}")
    compiled(sns.filter_policy, sns.filter_scope)
    size = sum(len(text.encode(errors="replace")) for pair in sns.aws.items() for text in pair)
    if len(sns.aws) > limits.AWS_SETTINGS_MAX or size > limits.AWS_SETTINGS_BYTES_MAX:
        raise InvalidArgument(
            f"a subscription keeps at most {limits.AWS_SETTINGS_MAX} attributes of SNS and "
            f"{limits.AWS_SETTINGS_BYTES_MAX:,} bytes of them"
        )


def topic_arn(account: str, region: str, name: str) -> str:
    return f"arn:{partition(region)}:sns:{region}:{account}:{name}"


def subscription_id(incarnation: int) -> str:
    """What a subscription is called inside of its topic: by the life of its queue."""
    return message_id(incarnation, 0)


def sequence_number(number: int) -> str:
    return str(_FIRST_SEQUENCE + number)


# -- The mark ---------------------------------------------------------------------------------


class Mark(NamedTuple):
    """By which topic a message came, and how. `raw` are the queues that get it as it is."""

    topic_arn: str
    message_id: str
    sequence_number: str  # of a FIFO topic, else empty
    raw: str
    subject: str

    def is_raw_for(self, queue_message_id: str) -> bool:
        """By the id that a message has in a queue, which it keeps wherever it is moved to."""
        if self.raw in ("", _ALL):
            return bool(self.raw)
        try:
            incarnation, _ = parse_message_id(queue_message_id)
        except InvalidArgument:
            return False
        is_listed = f"{incarnation:x}" in self.raw.removeprefix(_BUT).split(",")
        return is_listed != self.raw.startswith(_BUT)

    def written(self) -> str:
        return "\n".join(self)


def raw_for(queues: Iterable[tuple[int, bool]]) -> str:
    """Which of the queues of a topic get its messages raw, by their incarnations, in short."""
    raw: list[str] = []
    others: list[str] = []
    for incarnation, is_raw in queues:
        (raw if is_raw else others).append(f"{incarnation:x}")
    if not raw or not others:
        return _ALL if raw else ""
    return ",".join(raw) if len(raw) <= len(others) else _BUT + ",".join(others)


def mark_of(attributes: dict[str, Typed]) -> Mark | None:
    """The mark of a message that came by SNS."""
    found = attributes.get(MARK)
    if found is None or not isinstance(found[1], str):
        return None
    parts = found[1].split("\n", 4)
    return Mark(*parts) if len(parts) == 5 else None


# -- The envelope -----------------------------------------------------------------------------


def envelope_of(
    body: bytes, encoded: bytes | None, queue_message_id: str, created_ms: int, origin: str
) -> bytes | None:
    """The document in which SNS gives a message to a queue; None if it gives it raw, or if it did
    not come by SNS. `origin` is where the reader finds the broker."""
    if encoded is None or MARK_BYTES not in encoded:
        return None
    attributes = decode_typed(encoded)
    mark = mark_of(attributes)
    if mark is None or mark.is_raw_for(queue_message_id):
        return None
    told: dict[str, object] = {"Type": "Notification", "MessageId": mark.message_id}
    if mark.sequence_number:
        told["SequenceNumber"] = mark.sequence_number
    told["TopicArn"] = mark.topic_arn
    if mark.subject:
        told["Subject"] = mark.subject
    told["Message"] = body.decode(errors="replace")
    told["Timestamp"] = _time(created_ms)
    # Nothing signs it: whoever reads a queue of this broker has been let in by it.
    told["SignatureVersion"] = "1"
    told["Signature"] = ""
    told["SigningCertURL"] = f"{origin}/SimpleNotificationService.pem"
    told["UnsubscribeURL"] = (
        f"{origin}/?Action=Unsubscribe&SubscriptionArn="
        f"{mark.topic_arn}:{_subscription_of(queue_message_id)}"
    )
    shown = {
        name: {"Type": kind, "Value": _text(value)}
        for name, (kind, value) in attributes.items()
        if not name.startswith(SYSTEM_PREFIX)
    }
    if shown:
        told["MessageAttributes"] = shown
    return _encode(told)


def _subscription_of(queue_message_id: str) -> str:
    try:
        return subscription_id(parse_message_id(queue_message_id)[0])
    except InvalidArgument:
        return subscription_id(0)


def _text(value: str | bytes) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _time(at_ms: int) -> str:
    seconds, rest = divmod(at_ms, 1000)
    at = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{at.isoformat()}.{rest:03d}Z"
