"""Topics as a stream. A topic is addressed by offsets and reading removes nothing, so the offsets
in Spark's checkpoint are all the state there is.

An offset says up to where each topic is read, and how the batch that ends there is cut: run again,
it must be cut the same, or a sink that tells rows apart by their partition takes some twice and
drops others. `{"news": 12, "/cut": {"news": [5, 2]}}` is read from offset 5 to 12 in two slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nexo.spark.link import link_to
from nexo.spark.options import LATEST
from nexo.spark.patience import Patience
from nexo.spark.topics import (
    TopicSlice,
    check_kept,
    kept,
    ranges_of,
    read_slice,
    slice_counts,
    starts,
    topic_slices,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from nexo.spark.link import Link
    from nexo.spark.options import Options
    from nexo.spark.topics import Kept, Offsets, Ranges

    Offset = dict[str, Any]

CUT = "/cut"  # no topic can have this name


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._initial: Offsets | None = None
        self._target: Offsets | None = None  # where an available-now run ends
        self._topics: dict[str, Kept] = {}
        self._patience = Patience(options)

    def initialOffset(self) -> Offsets:  # noqa: N802
        if self._initial is None:
            self._initial = starts(self._link(), self._options, self._look(), LATEST)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.messages_max is not None:
            return ReadMaxRows(self._options.messages_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: held.end for name, held in self._look().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        topics = self._look(ends_of(start))
        going_on = check_kept(ends_of(start), topics, self._options.fail_on_data_loss)
        ends = {name: held.end for name, held in topics.items()}
        if self._target is not None:
            ends = {name: min(ends.get(name, end), end) for name, end in self._target.items()}
        # A topic that came since the query began is read from its beginning.
        begin = {name: going_on.get(name, topics[name].start) for name in ends if name in topics}
        waiting = {name: max(0, ends[name] - low) for name, low in begin.items()}
        total = sum(waiting.values())
        if not total or (self._target is None and self._patience.waits(total)):
            return start  # the same, to the letter: Spark compares what it has written
        self._patience.begin()
        taken = shared_out(self._admitted(limit, waiting), waiting)
        end = {name: begin[name] + taken[name] for name in sorted(begin)}
        ranges = ranges_of(begin, end)
        counts = slice_counts(ranges, topics, self._options.partitions_min)
        return {**end, CUT: {name: [low, counts[name]] for name, (low, _) in ranges.items()}}

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return {name: held.end for name, held in self._look().items()} or None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if end == start:
            return []
        topics = self._look(ends_of(end))
        if CUT not in end:
            ranges = self._uncut(ends_of(start), ends_of(end), topics)
            counts = slice_counts(ranges, topics, self._options.partitions_min)
            return topic_slices(ranges, counts)
        begin = {name: low for name, (low, _) in end[CUT].items()}
        there = check_kept(begin, topics, self._options.fail_on_data_loss)
        counts = {name: count for name, (_, count) in end[CUT].items()}
        return topic_slices({name: (begin[name], end[name]) for name in there}, counts)

    def _uncut(self, start: Offsets, end: Offsets, topics: dict[str, Kept]) -> Ranges:
        """What a batch has whose offset does not say how it is cut: older checkpoints do not."""
        known = {name: start[name] for name in end if name in start}
        begin = check_kept(known, topics, self._options.fail_on_data_loss)
        begin = {name: begin.get(name, topics[name].start) for name in end if name in topics}
        return ranges_of(begin, {name: end[name] for name in begin})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicSlice)
        return read_slice(self._options, partition)

    def _admitted(self, limit: ReadLimit, waiting: Offsets) -> int:
        """How many of the messages that wait may be read now."""
        total = sum(waiting.values())
        if isinstance(limit, ReadAllAvailable):
            return total
        messages_max, bytes_max = self._options.messages_max, self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            messages_max = min(messages_max or limit.max_rows, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            bytes_max = min(bytes_max or limit.max_bytes, limit.max_bytes)
        admitted = total if messages_max is None else min(total, messages_max)
        size = sum(self._topics[name].message_bytes * n for name, n in waiting.items())
        if bytes_max is not None and size > bytes_max:
            admitted = min(admitted, max(1, int(total * bytes_max / size)))
        return admitted

    def _look(self, known: Iterable[str] = ()) -> dict[str, Kept]:
        self._topics = kept(self._link(), self._options, known)
        return self._topics

    def _link(self) -> Link:
        return link_to(self._options)


def ends_of(offset: Offset) -> Offsets:
    """Up to where each topic is read."""
    return {name: stop for name, stop in offset.items() if name != CUT}


def shared_out(admitted: int, waiting: Offsets) -> Offsets:
    """So many messages, of each topic as large a part as of the others."""
    total, shares = sum(waiting.values()), {}
    before = given = 0
    for name, count in waiting.items():
        before += count
        upto = admitted * before // total
        shares[name], given = upto - given, upto
    return shares
