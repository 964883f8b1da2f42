"""Rows of a DataFrame as batches of messages.

The columns are checked once, when the write is planned; then each Arrow batch becomes columns of
a push without a look at single rows, but for attributes.
"""

from __future__ import annotations

import difflib
from array import array
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from nexo.spark.layout import READ_COLUMNS
from nexo.spark.rows import RESERVED_PREFIX
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import OFFSET_TYPE, Batch
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import DELAY_MS_MAX, PRIORITY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.spark.options import Options

WRITE_COLUMNS = (
    "body",
    "priority",
    "delay",
    "attributes",
    "group_id",
    "deduplication_id",
    "queue",
    "topic",
)
_NOT_FOR_TOPICS = ("priority", "delay", "group_id", "deduplication_id")
# What a read brings and a push cannot take is left out, so that what was read can be written.
_LEFT_OUT = READ_COLUMNS - set(WRITE_COLUMNS)
_TEXTS = ("string",)
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long")
_KINDS = {
    "body": ("binary", *_TEXTS),
    "priority": _NUMBERS,
    "delay": (*_NUMBERS, "float", "double"),
    "attributes": ("map<string,string>",),
    "group_id": _TEXTS,
    "deduplication_id": _TEXTS,
    "queue": _TEXTS,
    "topic": _TEXTS,
}


def check_columns(columns: dict[str, str], options: Options) -> None:
    """Refuse a DataFrame that cannot be written, by the names and types of its columns."""
    if "body" not in columns:
        close = difflib.get_close_matches("body", columns, n=1) or ["value"]
        raise InvalidArgument(
            "there is no column 'body' to write",
            f"rename one: .withColumnRenamed({close[0]!r}, 'body'), or to_json(struct(*)) as body",
        )
    for name, kind in columns.items():
        if name in _LEFT_OUT:
            continue
        if name not in WRITE_COLUMNS:
            close = difflib.get_close_matches(name, WRITE_COLUMNS, n=1)
            hint = f"did you mean {close[0]!r}? else drop it" if close else "drop it"
            raise InvalidArgument(
                f"column {name!r} means nothing to a queue",
                f"{hint}; what is written: {', '.join(WRITE_COLUMNS)}",
            )
        allowed = _KINDS[name]
        if kind not in allowed and not kind.startswith("decimal"):
            raise InvalidArgument(
                f"column {name!r} is of type {kind}", f"it must be {' or '.join(allowed[:2])}"
            )
    _check_target(columns, options)


def _check_target(columns: dict[str, str], options: Options) -> None:
    if options.topic_pattern is not None or len(options.topics) > 1:
        raise InvalidArgument(
            "a write goes to one queue or topic", "set option queue or topic, or add such a column"
        )
    named = [name for name in ("queue", "topic") if name in columns]
    set_here = options.queue is not None or bool(options.topics)
    if len(named) + set_here != 1:
        raise InvalidArgument(
            "it is not clear where to write to" if named or set_here else "no target is named",
            "set exactly one of option queue, option topic, column queue and column topic",
        )
    to_topic = bool(options.topics) or "topic" in columns
    for name in _NOT_FOR_TOPICS if to_topic else ():
        if name in columns and name not in READ_COLUMNS:
            raise InvalidArgument(
                f"a topic has no {name}", f"drop the column {name!r}, or write to a queue"
            )


def targets(rows: pa.Table, options: Options) -> Iterator[tuple[str, pa.Table]]:
    """The rows by the name that they go to, in order."""
    column = "queue" if "queue" in rows.schema.names else "topic"
    if column not in rows.schema.names:
        yield options.queue or options.topics[0], rows
        return
    names = rows[column]
    if names.null_count:
        raise InvalidArgument(f"a row has no {column}", f"fill the column {column!r}")
    for name in sorted(pc.unique(names).to_pylist()):
        yield name, rows.filter(pc.equal(names, name))


def batch_of_rows(rows: pa.Table, to_topic: bool) -> Batch:
    """Rows as one batch."""
    names = rows.schema.names
    payload, offsets = _bodies(rows["body"])
    batch = Batch(payload, offsets)
    changes: dict[str, Any] = {}
    if "attributes" in names:
        changes["attributes"] = _attributes(rows["attributes"])
    if not to_topic:
        if "priority" in names:
            changes["priority"] = _priorities(rows["priority"])
        if "delay" in names:
            changes["delay_ms"] = _delays_ms(rows["delay"])
        if "group_id" in names:
            changes["groups"] = _texts(rows["group_id"])
        if "deduplication_id" in names:
            changes["deduplication_ids"] = _texts(rows["deduplication_id"])
    return msgspec.structs.replace(batch, **changes) if changes else batch


def _bodies(column: pa.ChunkedArray) -> tuple[bytes, array[int]]:
    if column.null_count:
        raise InvalidArgument(
            "a row has no body", "filter such rows out, or write coalesce(body, '')"
        )
    bodies = pa.concat_arrays(column.cast(pa.binary()).chunks)
    _, offsets_buffer, payload_buffer = bodies.buffers()
    offsets = array(OFFSET_TYPE)
    low, high = bodies.offset * 4, (bodies.offset + len(bodies) + 1) * 4
    offsets.frombytes(memoryview(offsets_buffer)[low:high])
    first, last = offsets[0], offsets[-1]
    if first:
        offsets = array(OFFSET_TYPE, [each - first for each in offsets])
    payload = bytes(memoryview(payload_buffer)[first:last]) if payload_buffer is not None else b""
    return payload, offsets


def _priorities(column: pa.ChunkedArray) -> int | bytes:
    values = pc.fill_null(column.cast(pa.int64()), 0)
    limits = pc.min_max(values).as_py()
    low, high = limits["min"], limits["max"]
    if low < 0 or high > PRIORITY_MAX:
        raise InvalidArgument(
            f"a row has priority {low if low < 0 else high}", f"allowed is 0 to {PRIORITY_MAX}"
        )
    return low if low == high else bytes(values.to_pylist())


def _delays_ms(column: pa.ChunkedArray) -> int | list[int] | None:
    """Rows without a delay have none at all where others have one: a batch cannot say both."""
    if column.null_count == len(column):
        return None
    seconds = pc.fill_null(column.cast(pa.float64()), 0.0).to_pylist()
    delays = [round(each * 1000) for each in seconds]
    worst = min(delays) if min(delays) < 0 else max(delays)
    if not 0 <= worst <= DELAY_MS_MAX:
        raise InvalidArgument(
            f"a row has a delay of {worst / 1000} s", f"allowed is 0 to {DELAY_MS_MAX // 1000}"
        )
    return delays[0] if len(set(delays)) == 1 else delays


def _texts(column: pa.ChunkedArray) -> list[str | None] | None:
    return None if column.null_count == len(column) else column.to_pylist()


def _attributes(column: pa.ChunkedArray) -> bytes | list[bytes | None] | None:
    if column.null_count == len(column):
        return None
    encoded: list[bytes | None] = []
    for pairs in column.to_pylist():
        own = {name: value for name, value in pairs or () if not name.startswith(RESERVED_PREFIX)}
        if None in own.values():
            raise InvalidArgument("an attribute has no value", "attributes are texts")
        encoded.append(encode_attributes(own) if own else None)
    return encoded[0] if len(set(encoded)) == 1 else encoded
