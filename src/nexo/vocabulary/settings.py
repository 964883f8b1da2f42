"""The settings of a queue and of a topic, with their defaults and what values they take."""

from __future__ import annotations

from typing import Literal

import msgspec

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import check_name, dead_letter_name

_DAY_MS = 24 * 3_600_000


class Backoff(msgspec.Struct, frozen=True):
    """How long a failed message waits: `initial`, then times `factor` up to `max`; `jitter` is the
    share of the wait that is spread out."""

    initial_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 3_600_000
    jitter: float = 0.0


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a queue does. The same words are CLI flags and fields of the admin API."""

    visibility_timeout_ms: int = 30_000
    retransmit_timeout_ms: int = 10_000
    max_attempts: int | None = 5
    dead_letter: str = "{name}_dlq"
    delay_ms: int = 0
    retention_ms: int = 4 * _DAY_MS
    deduplication: Literal["off", "id", "content"] = "off"
    deduplication_window_ms: int = 300_000
    max_receive_rate: float | None = None
    backoff: Backoff | None = None
    fifo: bool = False
    max_message_bytes: int = limits.MESSAGE_BYTES_MAX
    max_depth: int | None = None
    archive: bool = False
    archive_retention_ms: int = 7 * _DAY_MS
    events: bool = True
    receive_wait_ms: int = 0  # how long an SQS receive waits that does not say
    deduplication_scope: Literal["queue", "group"] = "queue"
    deduplication_scope_since_ms: int = 0  # before that time the other scope was in force
    tags: dict[str, str] = {}
    aws: dict[str, str] = {}  # attributes of SQS that mean nothing here, kept for those who ask


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a topic keeps: what is beyond any of these limits goes, the oldest first."""

    retention_messages: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    max_message_bytes: int = limits.MESSAGE_BYTES_MAX


# Each setting that is a number: its lowest and highest value.
_RANGES: dict[str, tuple[float, float]] = {
    "visibility_timeout_ms": (0, limits.TIMEOUT_MS_MAX),
    "retransmit_timeout_ms": (1, limits.TIMEOUT_MS_MAX),
    "max_attempts": (1, limits.ATTEMPTS_MAX),
    "delay_ms": (0, limits.DELAY_MS_MAX),
    "retention_ms": (1_000, limits.RETENTION_MS_MAX),
    "deduplication_window_ms": (1, limits.RETENTION_MS_MAX),
    "max_receive_rate": (0.001, limits.RECEIVE_RATE_MAX),
    "max_message_bytes": (1, limits.MESSAGE_BYTES_CEILING),
    "max_depth": (1, limits.DEPTH_MAX),
    "archive_retention_ms": (1_000, limits.RETENTION_MS_MAX),
    "receive_wait_ms": (0, limits.RECEIVE_WAIT_MS_MAX),
    "deduplication_scope_since_ms": (0, 2**53),
    "retention_messages": (1, limits.DEPTH_MAX),
    "retention_bytes": (1, 2**60),
    "initial_ms": (0, limits.TIMEOUT_MS_MAX),
    "factor": (1, 1_000),
    "max_ms": (0, limits.TIMEOUT_MS_MAX),
    "jitter": (0, 1),
}


def check_queue_settings(name: str, settings: QueueSettings) -> None:
    """Refuse settings that are out of range or contradict each other."""
    _check_ranges(settings)
    if settings.deduplication not in ("off", "id", "content"):
        raise InvalidArgument("deduplication must be off, id or content")
    if settings.deduplication_scope not in ("queue", "group"):
        raise InvalidArgument("deduplication_scope must be queue or group")
    _check_tags(settings.tags)
    _check_aws(settings.aws)
    if settings.delay_ms >= settings.retention_ms:
        raise InvalidArgument(
            "the delay is not shorter than the retention: messages would expire unseen",
            "raise retention or lower delay",
        )
    if settings.backoff is not None:
        _check_ranges(settings.backoff)
        if settings.backoff.max_ms >= settings.retention_ms:
            raise InvalidArgument("backoff's max is not shorter than the retention")
    if settings.max_attempts is None and settings.dead_letter == QueueSettings().dead_letter:
        return  # nothing becomes a dead letter by itself; a long name may have no room for "_dlq"
    check_dead_letter(name, settings)


def check_dead_letter(name: str, settings: QueueSettings) -> None:
    """Refuse a dead-letter queue that cannot be: messages on their way to it would be nowhere."""
    target = dead_letter_name(name, settings.dead_letter)
    try:
        check_name(target)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"queue {name!r} has no dead-letter queue: {error.message}",
            "set its dead_letter to the name of one",
        ) from error
    if target == name:
        raise InvalidArgument(f"queue {name!r} cannot be its own dead-letter queue")


def check_topic_settings(settings: TopicSettings) -> None:
    """Refuse settings that are out of range."""
    _check_ranges(settings)


def check_filter(where: dict[str, str] | None) -> None:
    """Refuse a binding's filter that is out of range."""
    if where is None:
        return
    if len(where) > limits.FILTER_ATTRIBUTES_MAX:
        most = limits.FILTER_ATTRIBUTES_MAX
        raise InvalidArgument(f"a filter names at most {most} attributes, not {len(where)}")
    if any(len(text) > limits.FILTER_CHARS_MAX for pair in where.items() for text in pair):
        raise InvalidArgument(
            f"a name or value of a filter has at most {limits.FILTER_CHARS_MAX} characters"
        )


def check_room(noun: str, wanted: int, most: int) -> None:
    """Refuse more of something than a broker has room for."""
    if wanted > most:
        raise InvalidArgument(f"a broker has at most {most:,} {noun}", "delete some")


def _check_tags(tags: dict[str, str]) -> None:
    if len(tags) > limits.TAGS_MAX:
        raise InvalidArgument(f"a queue has at most {limits.TAGS_MAX} tags, not {len(tags)}")
    for key, value in tags.items():
        if not 1 <= len(key) <= limits.TAG_KEY_CHARS_MAX:
            raise InvalidArgument(
                f"the key of a tag has 1 to {limits.TAG_KEY_CHARS_MAX} characters, not {len(key)}"
            )
        if len(value) > limits.TAG_VALUE_CHARS_MAX:
            raise InvalidArgument(
                f"tag {key!r:.40} has a value of {len(value)} characters, at most "
                f"{limits.TAG_VALUE_CHARS_MAX} are allowed"
            )


def _check_aws(kept: dict[str, str]) -> None:
    size = sum(len(text.encode(errors="replace")) for pair in kept.items() for text in pair)
    if len(kept) > limits.AWS_SETTINGS_MAX:
        raise InvalidArgument(
            f"a queue keeps at most {limits.AWS_SETTINGS_MAX} attributes of SQS, not {len(kept)}"
        )
    if size > limits.AWS_SETTINGS_BYTES_MAX:
        raise InvalidArgument(
            f"the attributes of SQS that a queue keeps have {size:,} bytes, at most "
            f"{limits.AWS_SETTINGS_BYTES_MAX:,} are allowed",
            "make its policy shorter",
        )


def _check_ranges(settings: msgspec.Struct) -> None:
    for field in settings.__struct_fields__:
        value = getattr(settings, field)
        bounds = _RANGES.get(field)
        if bounds is None or value is None:
            continue
        low, high = bounds
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidArgument(f"{field} must be a number, not {value!r:.40}")
        if not low <= value <= high:
            raise InvalidArgument(f"{field} is {value}, allowed is {low} to {high}")
