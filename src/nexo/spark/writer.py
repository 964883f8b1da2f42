"""Writing: rows become pushes that count once.

A push carries the name of its producer (the query and the partition) and a number (the micro-batch
and the place in it), and the broker takes each number once. So a batch that Spark runs again adds
nothing, nor does a task that runs twice. What is numbered is a run of rows as long as a push may
be: a partition that fits one push is taken as a whole or not at all, in whatever order its rows
come; of a larger one the order must be the same when it is run again.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from nexo.spark.link import TIMEOUT_S, link_to, numbered_publish, numbered_push
from nexo.spark.outgoing import batch_of_rows, check_columns, targets
from nexo.vocabulary.errors import InvalidArgument, NexoError, QueueFull, RateLimited, ReadOnly
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from nexo.client.operation import Operation
    from nexo.spark.options import Options

RUN_ROWS_MAX = BATCH_MESSAGES_MAX
RUN_ROWS_WIDE = 10_000  # with attributes, which take room of their own
RUN_BYTES_MAX = 32 * 1024 * 1024
PUSHES_UNDER_WAY = 4  # to one broker by one task
_NUMBER_BITS = 24  # runs of one partition in one micro-batch; its number stands above them
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_PAUSE_S = 0.2


class Written(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, messages: int, pushes: int) -> None:
        self.messages = messages
        self.pushes = pushes


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
        return Written(self.messages, self.pushes)

    def _send(self, name: str, rows: pa.Table, number: int) -> None:
        batch = batch_of_rows(rows, self._to_topic)
        request = self._link.begin(self._ask(name, batch, self._producer, number))
        self._under_way.append((request, name, rows, number))

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
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                brought: int | None = self._link.wait(request)
                return brought
            except (QueueFull, RateLimited, ReadOnly):
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_S)  # nobody tells when there is room
            batch = batch_of_rows(rows, self._to_topic)
            request = self._link.begin(self._ask(name, batch, self._producer, number))


class BatchWriter(DataSourceArrowWriter):
    """A batch write is named when it is planned, so that its tasks may run twice. A name of the
    user's own lets the whole of it be repeated."""

    def __init__(self, options: Options, schema: StructType) -> None:
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options)
        self._options = options
        self._to_topic = bool(options.topics) or "topic" in columns
        self._name = options.write_id or f"write-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        producer = f"{self._name}/{context.partitionId()}"
        return _write(_Writing(self._options, self._to_topic, producer, 0), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, schema: StructType) -> None:
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options)
        self._options = options
        self._to_topic = bool(options.topics) or "topic" in columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise NexoError(
                "Spark does not say which query and micro-batch this is",
                "use foreachBatch with option writeId, and report this",
            )
        producer = f"{query}/{context.partitionId()}"
        first = int(batch) << _NUMBER_BITS
        return _write(_Writing(self._options, self._to_topic, producer, first), iterator)


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
