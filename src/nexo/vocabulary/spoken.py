"""Settings as users write them: the words of the broker, in seconds.

The broker counts in milliseconds and says so in its names; here `visibility_timeout_ms` is
`visibility_timeout`. What a setting does and which values it takes stands in
`vocabulary.settings`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import msgspec

from nexo.vocabulary import settings as broker
from nexo.vocabulary.errors import InvalidArgument

_MS_MAX = 2**62


class Backoff(msgspec.Struct, frozen=True):
    """How long a failed message waits: `initial` seconds, then times `factor` up to `max`;
    `jitter` is the share of the wait that is spread out."""

    initial: float = 1.0
    factor: float = 2.0
    max: float = 3_600.0
    jitter: float = 0.0


class QueueSettings(msgspec.Struct, frozen=True):
    """What a queue does; times in seconds."""

    visibility_timeout: float = 30.0
    retransmit_timeout: float = 10.0
    max_attempts: int | None = 5
    dead_letter: str = "{name}_dlq"
    delay: float = 0.0
    retention: float = 345_600.0
    deduplication: Literal["off", "id", "content"] = "off"
    deduplication_window: float = 300.0
    max_receive_rate: float | None = None
    backoff: Backoff | None = None
    fifo: bool = False
    max_message_bytes: int = 1_048_576
    max_depth: int | None = None
    archive: bool = False
    archive_retention: float = 604_800.0
    events: bool = True
    receive_wait: float = 0.0
    deduplication_scope: Literal["queue", "group"] = "queue"
    tags: dict[str, str] = {}
    aws: dict[str, str] = {}


class TopicSettings(msgspec.Struct, frozen=True):
    """What a topic keeps; None is without limit."""

    retention_messages: int | None = None
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    max_message_bytes: int = 1_048_576


class QueueOptions(TypedDict, total=False):
    """What `create_queue` and `edit` take: some of the fields of `QueueSettings`."""

    visibility_timeout: float
    retransmit_timeout: float
    max_attempts: int | None
    dead_letter: str
    delay: float
    retention: float
    deduplication: Literal["off", "id", "content"]
    deduplication_window: float
    max_receive_rate: float | None
    backoff: Backoff | dict[str, float] | None
    fifo: bool
    max_message_bytes: int
    max_depth: int | None
    archive: bool
    archive_retention: float
    events: bool
    receive_wait: float
    deduplication_scope: Literal["queue", "group"]
    tags: dict[str, str]
    aws: dict[str, str]


class TopicOptions(TypedDict, total=False):
    """What `create_topic` takes: some of the fields of `TopicSettings`."""

    retention_messages: int | None
    retention_seconds: float | None
    retention_bytes: int | None
    max_message_bytes: int


def _travelling(fields: tuple[str, ...]) -> dict[str, str]:
    """The user's word for each field of the broker."""
    return {field.removesuffix("_ms"): field for field in fields}


_QUEUE_FIELDS = _travelling(
    tuple(
        field
        for field in broker.QueueSettings.__struct_fields__
        if field != "deduplication_scope_since_ms"  # the broker's own
    )
)
_BACKOFF_FIELDS = _travelling(broker.Backoff.__struct_fields__)
_TOPIC_FIELDS = {
    ("retention_seconds" if field == "retention_ms" else field): field
    for field in broker.TopicSettings.__struct_fields__
}


def milliseconds(seconds: float, name: str, ms_max: int = _MS_MAX) -> int:
    if isinstance(seconds, bool) or type(seconds) not in (int, float):
        raise InvalidArgument(f"{name} must be a number of seconds, not {seconds!r:.40}")
    if not 0 <= seconds <= ms_max / 1000:  # not a number is neither
        raise InvalidArgument(f"{name} is {seconds} s, allowed is 0 to {ms_max / 1000:.0f} s")
    return round(seconds * 1000)


def queue_params(options: QueueOptions) -> dict[str, Any]:
    """Settings as the broker takes them."""
    params = _params(dict(options), _QUEUE_FIELDS, "queue")
    backoff = params.get("backoff")
    if backoff is not None:
        if isinstance(backoff, Backoff):
            backoff = msgspec.structs.asdict(backoff)
        if not isinstance(backoff, dict):
            raise InvalidArgument("backoff must be a Backoff or a dict of its fields")
        params["backoff"] = _params(backoff, _BACKOFF_FIELDS, "backoff")
    return params


def topic_params(options: TopicOptions) -> dict[str, Any]:
    return _params(dict(options), _TOPIC_FIELDS, "topic")


def queue_settings(travelled: dict[str, Any]) -> QueueSettings:
    values = _values(travelled, _QUEUE_FIELDS)
    if values.get("backoff") is not None:
        values["backoff"] = Backoff(**_values(values["backoff"], _BACKOFF_FIELDS))
    return QueueSettings(**values)


def topic_settings(travelled: dict[str, Any]) -> TopicSettings:
    return TopicSettings(**_values(travelled, _TOPIC_FIELDS))


def _params(options: dict[str, Any], fields: dict[str, str], kind: str) -> dict[str, Any]:
    params = {}
    for word, value in options.items():
        field = fields.get(word)
        if field is None:
            raise InvalidArgument(
                f"{word!r:.60} is not a setting of a {kind}", f"they are {', '.join(fields)}"
            )
        timed = field.endswith("_ms") and value is not None
        params[field] = milliseconds(value, word) if timed else value
    return params


def _values(travelled: dict[str, Any], fields: dict[str, str]) -> dict[str, Any]:
    """Of what the broker told, all that this client knows: a newer broker may tell more."""
    values = {}
    for word, field in fields.items():
        if field in travelled:
            value = travelled[field]
            values[word] = value / 1000 if field.endswith("_ms") and value is not None else value
    return values
