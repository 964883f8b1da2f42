"""Slices of topics: what a micro-batch of the archive is made of, and how tasks take them.

Spark's stream brings no messages here, only where they are: a row for each slice, with its topic
and offsets. So Spark plans, admits, restarts and tells how far a query is, as for any stream. The
driver shares the slices out, and each task reads its own from the broker and writes them to files.
Messages pass neither Java nor a second Python process: both cost more than reading and writing
them. What comes back is what the driver has to commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nexo.pipeline.files import Added, source_of, write_files
from nexo.spark.link import for_streams
from nexo.spark.options import read_options
from nexo.spark.source import NexoDataSource
from nexo.spark.topic_stream import TopicStreamReader
from nexo.spark.topics import TopicSlice, read_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nexo.pipeline.lake import Lake
    from nexo.spark.options import Options
    from nexo.spark.topic_stream import Offset

# What a message costs besides its body, told as bytes of it: so slices of large and of small
# messages are shared out fairly.
MESSAGE_COST_BYTES = 250
_COLUMNS = pa.schema(
    [("topic", pa.string()), ("start", pa.int64()), ("stop", pa.int64()), ("cost", pa.int64())]
)
_ADDED = "added binary"


class Slice(msgspec.Struct, frozen=True):
    """Offsets `start` to `stop` of a topic, and about what it costs to take them."""

    topic: str
    start: int
    stop: int
    cost: int = 0


class SliceSource(NexoDataSource):
    """Topics as `format("nexo")` reads them, but a row is a slice and not a message."""

    @classmethod
    def name(cls) -> str:
        return "nexo-slices"

    def schema(self) -> str:
        return "topic string, start long, stop long, cost long"

    def streamReader(self, schema: StructType) -> SliceStreamReader:  # noqa: N802
        return SliceStreamReader(for_streams(self._asked))


class _Plan(InputPartition):
    """All slices of a micro-batch: one task tells them."""

    def __init__(self, slices: list[Slice]) -> None:
        self.slices = slices


class SliceStreamReader(TopicStreamReader):
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        slices = []
        for each in super().partitions(start, end):
            assert isinstance(each, TopicSlice)
            held = self._topics.get(each.topic)
            each_bytes = MESSAGE_COST_BYTES + (round(held.message_bytes) if held else 0)
            cost = (each.stop - each.start) * each_bytes
            slices.append(Slice(each.topic, each.start, each.stop, cost))
        return [_Plan(slices)] if slices else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Plan)
        rows = [msgspec.structs.asdict(each) for each in partition.slices]
        yield pa.RecordBatch.from_pylist(rows, schema=_COLUMNS)


def slice_stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Where the messages of a broker are, as they come."""
    spark.dataSource.register(SliceSource)
    return spark.readStream.format(SliceSource.name()).options(**options).load()


def slices_of(batch: DataFrame) -> list[Slice]:
    """What a micro-batch brings."""
    return msgspec.convert(batch.toArrow().to_pylist(), list[Slice])


def above(slices: Iterable[Slice], floors: Mapping[str, int]) -> list[Slice]:
    """The same without the messages of a source that lie before its floor: the table has them."""
    left = []
    for each in slices:
        start = max(each.start, floors.get(source_of(each.topic), 0))
        if start < each.stop:
            left.append(msgspec.structs.replace(each, start=start))
    return left


def shared_out(slices: Sequence[Slice], shares_max: int) -> list[list[Slice]]:
    """Runs of neighbouring slices that cost about the same: those of one topic go to one file."""
    total, before = sum(each.cost for each in slices), 0
    shares: list[list[Slice]] = [[] for _ in range(shares_max)]
    for each in slices:
        middle = before + each.cost / 2
        shares[min(shares_max - 1, int(middle * shares_max / max(1, total)))].append(each)
        before += each.cost
    return [share for share in shares if share]


def written(
    spark: SparkSession, lake: Lake, options: Mapping[str, str], slices: Sequence[Slice]
) -> list[Added]:
    """The files that tasks have written of these slices."""
    shares = shared_out(slices, max(2, spark.sparkContext.defaultParallelism))
    if not shares:
        return []
    asked = for_streams(read_options(options))
    tasks = spark.range(0, len(shares), 1, len(shares))
    told = tasks.mapInArrow(slice_writer(lake, asked, shares), _ADDED).toArrow()
    return [msgspec.json.decode(each, type=Added) for each in told["added"].to_pylist()]


def slice_writer(
    lake: Lake, options: Options, shares: list[list[Slice]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs on an executor: its rows are the numbers of its shares."""

    def write(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some["id"].to_pylist():
                files = write_files(lake, rows_of(options, shares[number]))
                added = [msgspec.json.encode(each) for each in files]
                yield pa.RecordBatch.from_arrays([pa.array(added, pa.binary())], ["added"])

    return write


def rows_of(options: Options, slices: Iterable[Slice]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The messages of slices, from the broker."""
    for each in slices:
        for rows in read_slice(options, TopicSlice(each.topic, each.start, each.stop)):
            yield each.topic, rows
