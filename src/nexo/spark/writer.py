"""Writing: rows become pushes that count once.

A push carries the name of its producer (the query and the partition) and a number (the micro-batch
and the place in it), and the broker takes each number once. So a batch that Spark runs again adds
nothing, nor does a task that runs twice. What is numbered is a run of rows as long as a push may
be: a partition that fits one push is taken as a whole or not at all, in whatever order its rows
come; of a larger one the order must be the same when it is run again. A push carries a checksum of
its rows too, so that other rows under a name that was used before are refused, not dropped.

The columns are checked once, when the write is planned; then each Arrow batch becomes columns of
a push without a look at single rows, but for attributes.
"""

from __future__ import annotations

import difflib
import time
import uuid
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from nexo.query.rows import READ_COLUMNS, RESERVED_PREFIX
from nexo.spark.checksums import checksum_of
from nexo.spark.link import TIMEOUT_S, link_to, numbered_publish, numbered_push
from nexo.spark.write_names import done_writes, micro_batch_of, note_done, place_of
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import OFFSET_TYPE, Batch
from nexo.vocabulary.errors import (
    Forbidden,
    InvalidArgument,
    NexoError,
    NumberReused,
    QueueFull,
    RateLimited,
    ReadOnly,
)
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX, DELAY_MS_MAX, PRIORITY_MAX
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from nexo.client.operation import Operation
    from nexo.spark.link import Link
    from nexo.spark.options import Options
    from nexo.spark.write_names import MicroBatch

RUN_ROWS_MAX = BATCH_MESSAGES_MAX
RUN_ROWS_WIDE = 10_000  # with attributes, which take room of their own
RUN_BYTES_MAX = 32 * 1024 * 1024
PUSHES_UNDER_WAY = 4  # to one broker by one task
_PAUSE_S = 0.2
_FEWER_ROWS = (
    "write fewer rows to a partition: repartition(n) with {depth_max} rows or fewer in each; or "
    "raise max_depth"
)

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


class Written(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, messages: int, pushes: int, batch: MicroBatch | None = None) -> None:
        self.messages = messages
        self.pushes = pushes
        self.batch = batch  # the micro-batch that it was a part of


class _Writing:
    """One task's pushes to one broker."""

    def __init__(self, options: Options, to_topic: bool, producer: str, first: int) -> None:
        self._options = options
        self._link = link_to(options)
        self._ask = numbered_publish if to_topic else numbered_push
        self._to_topic = to_topic
        self._producer = producer
        self._number = first
        self._under_way: deque[tuple[Operation, str, pa.Table, int]] = deque()
        self.batch: MicroBatch | None = None
        self.messages = self.pushes = 0

    def push(self, rows: pa.Table) -> None:
        """One run of rows, under the next number of each queue that it goes to."""
        self._number += 1
        for name, part in targets(rows, self._options):
            while len(self._under_way) >= PUSHES_UNDER_WAY:
                self._confirm()
            self._send(name, part, self._number)

    def finish(self) -> Written:
        while self._under_way:
            self._confirm()
        return Written(self.messages, self.pushes, self.batch)

    def _send(self, name: str, rows: pa.Table, number: int) -> None:
        request = self._link.begin(self._request(name, rows, number))
        self._under_way.append((request, name, rows, number))

    def _request(self, name: str, rows: pa.Table, number: int) -> Operation:
        batch = batch_of_rows(rows, self._to_topic)
        checksum = checksum_of(batch) if self._options.verify_repeats else 0
        return self._ask(name, batch, self._producer, number, checksum)

    def _confirm(self) -> None:
        """The oldest push is on disk. A queue that is full or cannot write is waited for."""
        request, name, rows, number = self._under_way.popleft()
        brought = self._brought(request, name, rows, number)
        if brought is not None and brought != rows.num_rows:
            raise InvalidArgument(
                f"{rows.num_rows} rows for {name!r} were written before as {brought}: the batch "
                "was cut differently then",
                "run it again with the number of partitions that it had",
            )
        self.messages += rows.num_rows
        self.pushes += 1

    def _brought(self, request: Operation, name: str, rows: pa.Table, number: int) -> int | None:
        until = time.monotonic() + (self._options.timeout_s or TIMEOUT_S)
        while True:
            try:
                brought: int | None = self._link.wait(request)
                return brought
            except NumberReused:
                raise self._other_rows(name, rows.num_rows) from None
            except (QueueFull, RateLimited, ReadOnly) as refused:
                if isinstance(refused, QueueFull):
                    check_fits(self._link, name, rows.num_rows, _FEWER_ROWS)
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_S)  # nobody tells when there is room
            request = self._link.begin(self._request(name, rows, number))

    def _other_rows(self, name: str, count: int) -> InvalidArgument:
        """The broker has other rows under this name; these are not written."""
        if self._options.write_id is not None:
            return InvalidArgument(
                f"writeId {self._options.write_id!r:.80} was used before to write other rows to "
                f"{name!r}: these {count} are not written",
                "give each write a writeId of its own; inside foreachBatch leave it out",
            )
        return InvalidArgument(
            f"this micro-batch wrote other rows to {name!r} when it ran before: these {count} are "
            "not written",
            "a micro-batch that runs again must give the same rows in the same partitions; if they "
            "differ by time or chance alone, set verifyRepeats to false: the first ones count",
        )


class BatchWriter(DataSourceArrowWriter):
    """A batch write is named when it is planned, so that its tasks may run twice. A name of the
    user's own lets the whole of it be repeated; inside `foreachBatch` it has one by itself."""

    def __init__(self, options: Options, schema: StructType) -> None:
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options)
        self._options = options
        self._to_topic = bool(options.topics) or "topic" in columns
        self._name = options.write_id or f"write-{uuid.uuid4()}"
        self._done = done_writes()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = micro_batch_of(context) if self._options.write_id is None else None
        name, first = self._name, 0
        if batch is not None:
            name, first = f"{batch.query}/write-{place_of(self._done, batch)}", batch.first
        producer = f"{name}/{context.partitionId()}"
        writing = _Writing(self._options, self._to_topic, producer, first)
        writing.batch = batch
        return _write(writing, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [each.batch for each in messages if isinstance(each, Written)]
        note_done(batch for batch in written if batch is not None)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, schema: StructType) -> None:
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options)
        self._options = options
        self._to_topic = bool(options.topics) or "topic" in columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = micro_batch_of(context)
        if batch is None:
            raise NexoError(
                "Spark does not report the query and micro-batch of this write",
                "use foreachBatch with option writeId, and report this",
            )
        producer = f"{batch.query}/{context.partitionId()}"
        return _write(_Writing(self._options, self._to_topic, producer, batch.first), iterator)


def check_fits(link: Link, name: str, count: int, hint: str) -> None:
    """Waiting for room helps only if this push fits an empty queue. It cannot be cut: its number
    stands for these rows. `hint` may say {depth_max}."""
    try:
        depth_max = link.call(calls.DescribeQueue(name)).settings.get("max_depth")
    except Forbidden:  # who may push need not be allowed to look
        return
    if depth_max is not None and count > depth_max:
        raise InvalidArgument(
            f"{count} messages are one push to queue {name!r}, which never holds more than "
            f"{depth_max} (max_depth)",
            hint.format(depth_max=depth_max),
        )


def _write(writing: _Writing, batches: Iterator[pa.RecordBatch]) -> Written:
    for run in runs(batches):
        writing.push(run)
    return writing.finish()


def runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a partition in runs as long as a push may be. Only the rows decide where one
    ends, not how Spark has cut them into batches: run again, the runs are the same."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows_max = RUN_ROWS_MAX if "attributes" not in batch.schema.names else RUN_ROWS_WIDE
        ends = np.cumsum(_body_sizes(batch))
        at, low = 0, 0
        while at < batch.num_rows:
            fits = int(np.searchsorted(ends, low + RUN_BYTES_MAX - size, side="right"))
            stop = min(max(fits, at), at + rows_max - rows)
            if stop == at and not rows:
                stop = at + 1  # larger than any run: the broker says whether it takes it
            if stop > at:
                waiting.append(batch.slice(at, stop - at))
                rows += stop - at
                size += int(ends[stop - 1]) - low
                at, low = stop, int(ends[stop - 1])
            if at < batch.num_rows:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _body_sizes(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    lengths = pc.fill_null(pc.binary_length(batch.column("body")), 0)
    sizes: np.ndarray[Any, Any] = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


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
                f"unknown column {name!r}",
                f"{hint}; the columns are: {', '.join(WRITE_COLUMNS)}",
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
            "more than one target is given" if named or set_here else "no target is given",
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
        # In order: a map is the same map in another one, and so is the checksum of its message.
        named = sorted(pairs or ())
        own = {name: value for name, value in named if not name.startswith(RESERVED_PREFIX)}
        if None in own.values():
            raise InvalidArgument("an attribute has no value", "attribute values must be strings")
        encoded.append(encode_attributes(own) if own else None)
    return encoded[0] if len(set(encoded)) == 1 else encoded
