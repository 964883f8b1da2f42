"""A batch read of a queue: a look at all of it at one moment, without taking anything.

Spark plans the slices of a DataFrame once, when it is loaded, and keeps them for all queries on it.
So a slice is only a place among so many: the moment is that of the query, whose first task has the
broker open a view, and all others get the same one.

Conditions are left to Spark. With `spark.sql.python.filterPushdown.enabled`, Spark 4.3.0 keeps the
conditions of one query in the relation that others share: a DataFrame or view that was filtered
once gave the filtered rows to every later query, silently. A reader that has no `pushFilters` is
never handed any, so the answer is right whatever the session has set.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nexo.spark.link import link_to, raw_call
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, cut, slice_count
from nexo.vocabulary.errors import LeaseLost
from nexo.vocabulary.states import State
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from nexo.spark.options import Options
    from nexo.wire.calls import SnapshotInfo

_EXECUTION, _QUERY = "spark.sql.execution.id", "spark.sql.execution.query.id"
_SCANS_REMEMBERED = 100
_STATES = {int(state): state.name.lower() for state in State}
_log = logging.getLogger(__name__)
_seen: OrderedDict[tuple[str, str], str] = OrderedDict()  # the views that this process has read


class ViewSlice(InputPartition):
    """Slice `index` of `parts`, of whatever view the query has."""

    def __init__(self, loaded: str, index: int, parts: int) -> None:
        self.loaded = loaded  # the name of the DataFrame, for what is no query of Spark SQL
        self.index = index
        self.parts = parts


class ViewReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        assert options.queue is not None
        self._options = options
        self._queue = options.queue

    def partitions(self) -> Sequence[InputPartition]:
        """How many slices there are goes by what is in the queue when the DataFrame is loaded."""
        link = link_to(self._options)
        there = link.call(calls.OpenSnapshot(self._queue))
        link.call(calls.CloseSnapshot(self._queue, there.snapshot))
        parts = slice_count(there.count, there.payload_bytes, self._options.partitions_min)
        loaded = str(uuid.uuid4())
        return [ViewSlice(loaded, index, parts) for index in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from nexo.query.rows import queue_rows
        from nexo.wire.columns import raw_parts

        assert isinstance(partition, ViewSlice)
        link, scan = link_to(self._options), scan_of(TaskContext.get(), partition.loaded)
        view = link.call(calls.OpenSnapshot(self._queue, scan=scan))
        self._check_moment(scan, view)
        slices = cut(view.count, partition.parts)
        at, stop = slices[partition.index] if partition.index < len(slices) else (0, 0)
        missing = 0
        while at < stop:
            wanted = calls.ReadSnapshot(
                name=self._queue,
                snapshot=view.snapshot,
                start=at,
                count=min(stop - at, READ_MESSAGES),
                bytes_max=READ_BYTES,
                scan=scan,
            )
            answer = link.wait(link.begin(raw_call(wanted)))
            page = calls.read(calls.ReadSnapshot, answer)
            at, missing = page.next, missing + page.missing
            parts = raw_parts(answer.body)
            if parts:
                named = [_STATES[state] for state in page.states]
                yield queue_rows(parts, self._queue, view.incarnation, named)
        if missing:
            self._tell_missing(missing)

    def _check_moment(self, scan: str, view: SnapshotInfo) -> None:
        """A broker that was restarted since does not know that this scan had another view."""
        key = (self._queue, scan)
        if _seen.setdefault(key, view.snapshot) != view.snapshot:
            raise LeaseLost(
                f"the broker restarted while a query read {self._queue!r}", "run the query again"
            )
        if len(_seen) > _SCANS_REMEMBERED:
            _seen.popitem(last=False)

    def _tell_missing(self, missing: int) -> None:
        """The queue is larger than the broker's memory, and these were acked meanwhile."""
        problem = f"{missing} messages of {self._queue!r} were acked before they were read"
        if self._options.fail_on_data_loss:
            raise LeaseLost(problem, "set failOnDataLoss to false to skip them, or try again")
        _log.warning("%s", problem)


def scan_of(context: Any, loaded: str) -> str:
    """The name under which the tasks of one query share a view. What runs outside of Spark SQL,
    such as `toLocalIterator` or `rdd`, may run in several jobs: they share that of the DataFrame.
    """
    execution = context.getLocalProperty(_EXECUTION) if context is not None else None
    if execution is None:
        return loaded
    query: str = context.getLocalProperty(_QUERY) or loaded
    return f"{query}/{execution}"
