"""A batch read of topics, by ranges of offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from nexo.spark.link import link_to
from nexo.spark.options import EARLIEST
from nexo.spark.topics import (
    TopicSlice,
    check_kept,
    ends,
    kept,
    ranges_of,
    read_slice,
    slice_counts,
    starts,
    topic_slices,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from nexo.spark.options import Options


class TopicReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        link = link_to(options)
        topics = kept(link, options)
        start = starts(link, options, topics, EARLIEST)
        start = check_kept(start, topics, options.fail_on_data_loss)
        ranges = ranges_of(start, ends(link, options, topics))
        counts = slice_counts(ranges, topics, options.partitions_min)
        # Spark takes no slices at all for one that knows nothing: an empty one says so.
        return topic_slices(ranges, counts) or [TopicSlice("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicSlice)
        return read_slice(self._options, partition)
