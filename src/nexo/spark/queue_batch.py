"""A batch read of a queue: a look at all of it at one moment, without taking anything."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from nexo.spark.filters import chosen, ranges, takes
from nexo.spark.link import link_to, raw_call
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, cut, slice_count
from nexo.vocabulary.errors import LeaseLost
from nexo.vocabulary.states import State
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from nexo.spark.options import Options

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_STATES = {int(state): state.name.lower() for state in State}
_log = logging.getLogger(__name__)


class SnapshotSlice(InputPartition):
    """Places `start` to `stop` of a snapshot."""

    def __init__(self, snapshot: str, incarnation: int, start: int, stop: int) -> None:
        self.snapshot = snapshot
        self.incarnation = incarnation
        self.start = start
        self.stop = stop


class SnapshotReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        assert options.queue is not None
        self._options = options
        self._queue = options.queue
        self._conditions: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        link = link_to(options)
        taken = link.call(calls.OpenSnapshot(self._queue, ranges(self._conditions)))
        parts = slice_count(taken.count, taken.payload_bytes, options.partitions_min)
        return [
            SnapshotSlice(taken.snapshot, taken.incarnation, *each)
            for each in cut(taken.count, parts) or [(0, 0)]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from nexo.query.rows import queue_rows
        from nexo.wire.columns import raw_parts

        assert isinstance(partition, SnapshotSlice)
        link = link_to(self._options)
        at, missing = partition.start, 0
        while at < partition.stop:
            answer = link.wait(link.begin(self._reading(partition, at)))
            page = calls.read(calls.ReadSnapshot, answer)
            at, missing = page.next, missing + page.missing
            parts = raw_parts(answer.body)
            if parts:
                named = [_STATES[state] for state in page.states]
                rows = queue_rows(parts, self._queue, partition.incarnation, named)
                yield chosen(rows, self._conditions)
        if missing:
            self._tell_missing(missing)

    def _reading(self, partition: SnapshotSlice, at: int) -> Any:
        return raw_call(
            calls.ReadSnapshot(
                name=self._queue,
                snapshot=partition.snapshot,
                start=at,
                count=min(partition.stop - at, READ_MESSAGES),
                bytes_max=READ_BYTES,
            )
        )

    def _tell_missing(self, missing: int) -> None:
        """The queue is larger than the broker's memory, and these were acked meanwhile."""
        problem = f"{missing} messages of {self._queue!r} were acked before they were read"
        if self._options.fail_on_data_loss:
            raise LeaseLost(problem, "set failOnDataLoss to false to do without them, or try again")
        _log.warning("%s", problem)


class FilteringReader(SnapshotReader):
    """With conditions that Spark hands down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keeps the conditions that are applied here, and gives the others back."""
        self._conditions = [each for each in filters if takes(each)]
        return [each for each in filters if not takes(each)]


def batch_reader(options: Options) -> SnapshotReader:
    """Spark refuses a reader that takes conditions unless the session has that switched on
    (`spark.sql.python.filterPushdown.enabled`), and does not say whether it has; but where it
    has, another of its programs runs this."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    is_pushdown = _PUSHDOWN_WORKER in sys.modules or (
        program is not None and program.name == _PUSHDOWN_WORKER
    )
    return FilteringReader(options) if is_pushdown else SnapshotReader(options)
