"""The columns of the data source, and parts of the wire as Arrow record batches of them.

Bodies are wrapped where they lie; ids, numbers and times are computed for all messages at once.
Only what a message has of its own (attributes, a former life) is looked at one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.identity import first_seq, message_id
from nexo.vocabulary.limits import SEQUENCE_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.vocabulary.batch import DeadLetter, Origin
    from nexo.wire.columns import RawPart

_COLUMNS = (
    ("id", "string", pa.string()),
    ("body", "binary", pa.binary()),
    ("priority", "int", pa.int32()),
    ("attempts", "int", pa.int32()),
    ("created_at", "timestamp", pa.timestamp("us", tz="UTC")),
    ("attributes", "map<string,string>", pa.map_(pa.string(), pa.string())),
    ("group_id", "string", pa.string()),
    ("source", "string", pa.string()),
    ("offset", "long", pa.int64()),
)
_STATE = ("state", "string", pa.string())
READ_COLUMNS = frozenset({each[0] for each in (*_COLUMNS, _STATE)})

ATTRIBUTES = pa.map_(pa.string(), pa.string())
TOPIC_SCHEMA = pa.schema([(name, kind) for name, _, kind in _COLUMNS])
QUEUE_SCHEMA = pa.schema([(name, kind) for name, _, kind in (*_COLUMNS, _STATE)])

_DIGITS = np.frombuffer(b"".join(b"%02x" % each for each in range(256)), dtype=np.uint16)
_ID_CHARS, _ID_PREFIX_CHARS = 36, 24
_COUNTER_MASK = (1 << SEQUENCE_BITS) - 1
# Why a message is among the dead letters stands in attributes of its own; the prefix is reserved,
# and the writer leaves them out, so that a letter can be pushed again as it was read.
RESERVED_PREFIX = "nexo."
DEAD_LETTER_PREFIX = f"{RESERVED_PREFIX}dead_letter."


def declared(with_state: bool) -> str:
    """The schema in Spark's own words. A source is not told whether it is to stream, so the
    state is there in both ways of reading a queue; in a stream it is always `sealed`."""
    columns = (*_COLUMNS, _STATE) if with_state else _COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind, _ in columns)


def queue_rows(
    parts: Sequence[RawPart], queue: str, incarnation: int, states: Sequence[str]
) -> pa.RecordBatch:
    """Messages of a queue; `states` has one for each part."""
    counts = [part.count for part in parts]
    numbers = _numbers(parts)
    origins = _spread([part.extras.origins for part in parts], counts)
    columns = _shared(parts, counts, origins)
    ids = id_column(incarnation, numbers)
    if origins is not None:
        ids = _replaced(ids, [each.id if each else None for each in origins])
    return pa.RecordBatch.from_arrays(
        [
            ids,
            columns.bodies,
            _numeric(numbers >> SEQUENCE_BITS, np.int32, pa.int32()),
            columns.attempts,
            columns.created,
            columns.attributes,
            columns.groups,
            constant(queue, len(numbers)),
            _numeric(numbers, np.int64, pa.int64()),
            pa.concat_arrays([constant(state, n) for state, n in zip(states, counts, strict=True)]),
        ],
        schema=QUEUE_SCHEMA,
    )


def topic_rows(parts: Sequence[RawPart], topic: str) -> pa.RecordBatch:
    """Messages of a topic, whose ids are its name and their offset."""
    counts = [part.count for part in parts]
    numbers = _numbers(parts)
    origins = _spread([part.extras.origins for part in parts], counts)
    columns = _shared(parts, counts, origins)
    ids = pa.array([f"{topic}:{offset}" for offset in numbers.tolist()], pa.string())
    if origins is not None:
        ids = _replaced(ids, [each.id if each else None for each in origins])
    return pa.RecordBatch.from_arrays(
        [
            ids,
            columns.bodies,
            columns.priorities,
            columns.attempts,
            columns.created,
            columns.attributes,
            columns.groups,
            constant(topic, len(numbers)),
            _numeric(numbers, np.int64, pa.int64()),
        ],
        schema=TOPIC_SCHEMA,
    )


def id_column(incarnation: int, numbers: np.ndarray[Any, Any]) -> pa.Array:
    """The ids of these sequence numbers: `message_id` for all of them at once. Within one
    priority only the last twelve digits differ."""
    count = len(numbers)
    text = np.empty((count, _ID_CHARS), dtype=np.uint8)
    priorities = numbers >> SEQUENCE_BITS
    for priority in np.unique(priorities).tolist():
        prefix = message_id(incarnation, first_seq(priority))[:_ID_PREFIX_CHARS].encode()
        text[priorities == priority, :_ID_PREFIX_CHARS] = np.frombuffer(prefix, dtype=np.uint8)
    counters = (numbers & _COUNTER_MASK).astype(">u8").view(np.uint8).reshape(count, 8)[:, 2:]
    text[:, _ID_PREFIX_CHARS:] = _DIGITS[counters].view(np.uint8).reshape(count, 12)
    return _fixed_width(text, count, _ID_CHARS)


def constant(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    encoded = text.encode()
    return _fixed_width(encoded * count, count, len(encoded))


class _Shared:
    """The columns that queues and topics have alike."""

    bodies: pa.Array
    priorities: pa.Array
    attempts: pa.Array
    created: pa.Array
    attributes: pa.Array
    groups: pa.Array


def _shared(
    parts: Sequence[RawPart], counts: list[int], origins: list[Origin | None] | None
) -> _Shared:
    columns = _Shared()
    bodies = [_bodies(part) for part in parts]
    columns.bodies = bodies[0] if len(bodies) == 1 else pa.concat_arrays(bodies)
    attempts = np.repeat([part.attempts for part in parts], counts)
    columns.attempts = _numeric(attempts, np.int32, pa.int32())
    priorities = np.concatenate([_priorities(part) for part in parts])
    columns.priorities = _numeric(priorities, np.int32, pa.int32())
    times = np.concatenate([_times_ms(part) for part in parts])
    if origins is not None:
        for index, origin in enumerate(origins):
            if origin is not None:
                times[index] = origin.created_ms
    columns.created = _numeric(times * 1000, np.int64, pa.timestamp("us", tz="UTC"))
    groups = _spread([part.extras.groups for part in parts], counts)
    columns.groups = pa.nulls(sum(counts), pa.string())
    if groups is not None:
        columns.groups = pa.array(groups, pa.string())
    columns.attributes = _attributes(parts, counts, origins)
    return columns


def _bodies(part: RawPart) -> pa.Array:
    buffers = [None, pa.py_buffer(part.offsets), pa.py_buffer(part.payload)]
    return pa.BinaryArray.from_buffers(pa.binary(), part.count, buffers)


def _numbers(parts: Sequence[RawPart]) -> np.ndarray[Any, Any]:
    runs = [np.arange(each.first, each.first + each.count, dtype=np.uint64) for each in parts]
    return runs[0] if len(runs) == 1 else np.concatenate(runs)


def _priorities(part: RawPart) -> np.ndarray[Any, Any]:
    priority = part.extras.priority
    if isinstance(priority, int):
        return np.full(part.count, priority, dtype=np.int32)
    return np.frombuffer(priority, dtype=np.uint8).astype(np.int32)


def _times_ms(part: RawPart) -> np.ndarray[Any, Any]:
    created = part.extras.created
    if created is None:
        return np.full(part.count, part.created_ms, dtype=np.int64)
    return np.frombuffer(created, dtype=np.int64).copy()


def _spread(columns: list[Any], counts: list[int]) -> list[Any] | None:
    """One value for each message, of columns that are absent, constant or lists; None if all of
    them are absent."""
    if all(column is None for column in columns):
        return None
    spread: list[Any] = []
    for column, count in zip(columns, counts, strict=True):
        spread += column if isinstance(column, list) else [column] * count
    return spread


def _attributes(
    parts: Sequence[RawPart], counts: list[int], origins: list[Origin | None] | None
) -> pa.Array:
    encoded = _spread([part.extras.attributes for part in parts], counts)
    letters = None
    if origins is not None and any(each and each.dead_letter for each in origins):
        letters = [each.dead_letter if each else None for each in origins]
    if encoded is None and letters is None:
        return pa.nulls(sum(counts), ATTRIBUTES)
    if encoded is None:
        encoded = [None] * sum(counts)
    decoded: dict[bytes | None, list[tuple[str, str]]] = {None: []}  # most are alike
    rows = []
    for index, each in enumerate(encoded):
        pairs = decoded.get(each)
        if pairs is None:
            pairs = decoded[each] = list(decode_attributes(each).items())
        letter = letters[index] if letters is not None else None
        rows.append((pairs + _told(letter) if letter is not None else pairs) or None)
    return pa.array(rows, ATTRIBUTES)


def _told(letter: DeadLetter) -> list[tuple[str, str]]:
    """Why and when a message died, as attributes."""
    facts = {
        "reason": letter.reason,
        "source": letter.source,
        "attempts": str(letter.attempts),
        "first_failed_at": _moment(letter.first_failed_ms),
        "last_failed_at": _moment(letter.last_failed_ms),
    }
    return [(DEAD_LETTER_PREFIX + name, value) for name, value in facts.items()]


def _moment(unix_ms: int) -> str:
    """A time as Spark's `to_timestamp` reads it."""
    return f"{np.datetime_as_string(np.datetime64(unix_ms, 'ms'))}Z"


def _replaced(column: pa.Array, values: list[str | None]) -> pa.Array:
    """A column whose rows give way where there is another value."""
    pairs = zip(values, column.to_pylist(), strict=True)
    return pa.array([old if new is None else new for new, old in pairs], pa.string())


def _numeric(values: np.ndarray[Any, Any], width: type[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as a column. `pa.array` would do, but imports pandas where there is one: a second of
    a short command."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values, dtype=width))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _fixed_width(text: Any, count: int, width: int) -> pa.Array:
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32) if width else None
    if offsets is None:
        return pa.array([""] * count, pa.string())
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.StringArray.from_buffers(count, buffers[1], buffers[2])
