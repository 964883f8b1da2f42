"""The options of the data source: their names, what they mean, and what they must look like.

The table in docs/spark.md is made from this one. What is unknown or contradicts itself is refused
before anything is read, with the name that was probably meant.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nexo.client.address import DEFAULT_URL, address_of, token_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import parse_duration, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST, LATEST = "earliest", "latest"


class Described(NamedTuple):
    """An option as its documentation tells it."""

    name: str
    use: str  # which of reading and writing it is for
    default: str
    meaning: str


TABLE = (
    Described("endpoint", "all", "`$NEXO_URL`, else `nexo://127.0.0.1:9325`", "URL of the broker"),
    Described("queue", "all", "", "queue to read from or write to"),
    Described(
        "topic",
        "all",
        "",
        "topic to read from or write to; for reading, several separated by commas",
    ),
    Described(
        "topicPattern",
        "read",
        "",
        "regular expression that must match the whole topic name; topics created later are read "
        "from their first message",
    ),
    Described(
        "maxMessagesPerTrigger",
        "stream",
        "no limit",
        "maximum messages per micro-batch; `maxOffsetsPerTrigger` is an alias",
    ),
    Described(
        "minMessagesPerTrigger",
        "stream",
        "1",
        "wait until this many messages are available; `minOffsetsPerTrigger` is an alias",
    ),
    Described(
        "maxTriggerDelay",
        "stream",
        "`15m`",
        "with `minMessagesPerTrigger`: maximum time to wait for them after the last micro-batch",
    ),
    Described(
        "maxBytesPerTrigger", "stream", "queues: 256 MiB", "maximum body bytes per micro-batch"
    ),
    Described("minPartitions", "read", "by size", "minimum number of partitions to read"),
    Described(
        "startingOffsets",
        "topics",
        "stream: `latest`, batch: `earliest`",
        'where to start: `earliest`, `latest`, or JSON such as `{"news": 12}`; -2 means earliest, '
        "-1 latest, and `*` all other topics",
    ),
    Described(
        "startingTimestamp",
        "topics",
        "",
        "start at the first message of this time or later: ISO 8601, or milliseconds since 1970",
    ),
    Described(
        "startingOffsetsByTimestamp",
        "topics",
        "",
        'start time per topic, as JSON in milliseconds: `{"news": 1767225600000}`; other topics '
        "use `startingOffsets`",
    ),
    Described(
        "endingTimestamp",
        "topics, batch",
        "",
        "end before the first message of this time or later; same format as `startingTimestamp`",
    ),
    Described("endingOffsets", "topics, batch", "`latest`", "where to end (exclusive)"),
    Described(
        "failOnDataLoss",
        "read",
        "`true`",
        "fail if messages are missing: expired, or already acked because the checkpoint is an "
        "older copy",
    ),
    Described(
        "mode", "queues, batch", "`peek`", "`peek` reads a view of one moment and takes no messages"
    ),
    Described(
        "writeId",
        "batch write",
        "",
        "name of the write: repeating it with the same name adds nothing, and other rows with that "
        "name are refused. Leave it out inside `foreachBatch`: the write is named after "
        "the query, the micro-batch and its position in it",
    ),
    Described(
        "verifyRepeats",
        "write",
        "`true`",
        "fail if a repeated write has other rows. Set `false` for rows that differ each time they "
        "are computed, such as random values: the rows of the first run count",
    ),
    Described(
        "token",
        "all",
        "`$NEXO_TOKEN`",
        "access token, if the broker requires one; `@FILE` reads it from a file",
    ),
    Described(
        "tlsCa",
        "all",
        "`$NEXO_TLS_CA`, else the system's",
        "PEM file with the CA certificates to trust, for `nexos://` endpoints; it must exist on "
        "every machine",
    ),
    Described(
        "timeout",
        "all",
        "`$NEXO_BROKER_TIMEOUT`, else `10m` for streams, `1m` for batches",
        "how long to wait while the broker is unreachable or the queue is full before the query "
        "fails, such as `90s` or `15m`",
    ),
    Described("tlsVerify", "all", "`true`", "verify the broker's certificate"),
)
_ALIASES = {
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
}
# What whoever comes from Kafka writes, and what it is here.
_KAFKAS = {
    "subscribe": "use topic",
    "assign": "use topic",
    "subscribepattern": "use topicPattern",
    "kafka.bootstrap.servers": "use endpoint",
    "includeheaders": "headers are always there, in the column attributes",
    "endingoffsetsbytimestamp": "use endingTimestamp",
}
_NAMES = {each.name.lower(): each.name for each in TABLE} | _ALIASES
# Spark hands its own options on to the source.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "asyncprogresstrackingenabled"})
_OF_TOPICS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
)
_TARGETS = ("queue", "topic", "topicPattern")


class Options(msgspec.Struct, frozen=True):
    """What was asked for, checked."""

    endpoint: str
    token: str | None = None
    tls_ca: str | None = None
    tls_verify: bool = True
    queue: str | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    messages_max: int | None = None
    bytes_max: int | None = None
    partitions_min: int | None = None
    starting_offsets: str | dict[str, int] | None = None
    starting_ms: int | None = None
    starting_ms_by_topic: dict[str, int] = {}
    ending_ms: int | None = None
    messages_min: int | None = None
    delay_max_s: float = 900.0
    ending_offsets: str | dict[str, int] = LATEST
    fail_on_data_loss: bool = True
    write_id: str | None = None
    verify_repeats: bool = True
    timeout_s: float | None = None  # by default it depends on what is done


def read_options(given: Mapping[str, str]) -> Options:
    """The options as Spark hands them over, whose names have lost their capitals."""
    values: dict[str, str] = {}
    for key, value in given.items():
        name = _NAMES.get(key.lower())
        if name is not None:
            values[name] = value
        elif key.lower() not in _SPARKS_OWN:
            raise _unknown(key)
    _check_together(values)
    endpoint = values.get("endpoint") or os.environ.get("NEXO_URL") or DEFAULT_URL
    tls_ca = values.get("tlsCa") or None
    tls_verify = _truth("tlsVerify", values.get("tlsVerify", "true"))
    address_of(endpoint, tls_ca, tls_verify)
    return Options(
        endpoint=endpoint,
        token=token_of(values.get("token")),
        tls_ca=tls_ca,
        tls_verify=tls_verify,
        queue=values.get("queue"),
        topics=tuple(each.strip() for each in values.get("topic", "").split(",") if each.strip()),
        topic_pattern=_pattern(values.get("topicPattern")),
        messages_max=_count("maxMessagesPerTrigger", values),
        bytes_max=_count("maxBytesPerTrigger", values),
        partitions_min=_count("minPartitions", values),
        starting_offsets=_offsets("startingOffsets", values.get("startingOffsets")),
        starting_ms=_time_ms("startingTimestamp", values),
        starting_ms_by_topic=_times_ms(values.get("startingOffsetsByTimestamp")),
        ending_ms=_time_ms("endingTimestamp", values),
        messages_min=_count("minMessagesPerTrigger", values),
        delay_max_s=parse_duration(values.get("maxTriggerDelay", "15m")),
        ending_offsets=_offsets("endingOffsets", values.get("endingOffsets")) or LATEST,
        fail_on_data_loss=_truth("failOnDataLoss", values.get("failOnDataLoss", "true")),
        write_id=values.get("writeId"),
        timeout_s=_timeout_s(values.get("timeout") or os.environ.get("NEXO_BROKER_TIMEOUT")),
        verify_repeats=_truth("verifyRepeats", values.get("verifyRepeats", "true")),
    )


def _unknown(key: str) -> InvalidArgument:
    close = difflib.get_close_matches(key.lower(), _NAMES, n=1)
    known = ", ".join(each.name for each in TABLE)
    hint = f"did you mean {_NAMES[close[0]]!r}?" if close else f"there are: {known}"
    if key.lower() in _KAFKAS:
        hint = _KAFKAS[key.lower()]
    elif key.lower().startswith("kafka."):
        hint = "this is no Kafka: leave it out"
    if key.lower() == "path":
        hint = "name what to read by option('queue', …) or option('topic', …), not in load()"
    return InvalidArgument(f"there is no option {key!r}", hint)


def _check_together(values: dict[str, str]) -> None:
    named = [name for name in _TARGETS if values.get(name)]
    if len(named) > 1:
        raise InvalidArgument(
            f"{' and '.join(named)} cannot be combined", "name exactly one of them"
        )
    for name in _OF_TOPICS:
        if "queue" in named and name in values:
            raise InvalidArgument(
                f"{name} works with topics only: a queue has no offsets",
                "a queue gives the messages it holds; read its archive for earlier ones",
            )
    for one, other in (
        ("startingOffsets", "startingTimestamp"),
        ("startingTimestamp", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if one in values and other in values:
            raise InvalidArgument(f"{one} and {other} cannot be combined")
    if "maxTriggerDelay" in values and "minMessagesPerTrigger" not in values:
        raise InvalidArgument(
            "maxTriggerDelay needs minMessagesPerTrigger", "set both, or leave both out"
        )
    mode = values.get("mode", "peek")
    if mode != "peek":
        raise InvalidArgument(
            f"unknown mode {mode!r}", "the only mode is 'peek': it reads without taking messages"
        )


def _count(name: str, values: dict[str, str]) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,18}", value.strip()) or int(value) < 1:
        raise InvalidArgument(f"{name} is {value!r:.60}", "it must be a whole number from 1 on")
    return int(value)


def _timeout_s(value: str | None) -> float | None:
    if value is None:
        return None
    seconds = parse_duration(value)
    if seconds <= 0:
        raise InvalidArgument(f"timeout is {value!r:.60}", "write a time such as 90s or 15m")
    return seconds


def _truth(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidArgument(f"{name} is {value!r:.60}", "it must be true or false")
    return value.lower() == "true"


def _pattern(value: str | None) -> str | None:
    if value is not None:
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidArgument(f"topicPattern {value!r:.80} cannot be read: {error}") from None
    return value


def _offsets(name: str, value: str | None) -> str | dict[str, int] | None:
    if value is None or value.lower() in (EARLIEST, LATEST):
        return value if value is None else value.lower()
    try:
        return msgspec.convert(json.loads(value), dict[str, int])
    except (ValueError, msgspec.ValidationError):
        raise InvalidArgument(
            f"{name} is {value!r:.80}",
            f'write {EARLIEST}, {LATEST}, or JSON from topics to offsets: {{"news": 12}}',
        ) from None


def _times_ms(value: str | None) -> dict[str, int]:
    try:
        return msgspec.convert(json.loads(value or "{}"), dict[str, int])
    except (ValueError, msgspec.ValidationError):
        raise InvalidArgument(
            f"startingOffsetsByTimestamp is {value!r:.80}",
            'write JSON from topics to milliseconds since 1970: {"news": 1767225600000}',
        ) from None


def _time_ms(name: str, values: dict[str, str]) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if re.fullmatch(r"\d{1,15}", value.strip()):
        return int(value)
    try:
        return round(parse_time(value).timestamp() * 1000)
    except InvalidArgument:
        raise InvalidArgument(
            f"{name} is {value!r:.60}",
            "write 2026-01-31T12:00:00Z, or milliseconds since 1970",
        ) from None


def table_in_markdown() -> str:
    """The table of the documentation."""
    rows: list[Any] = [f"| `{e.name}` | {e.use} | {e.default} | {e.meaning} |" for e in TABLE]
    return "\n".join(["| option | for | default | meaning |", "|---|---|---|---|", *rows]) + "\n"
