"""Slices of topics, and how an executor reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from nexo.spark.link import link_to, raw_read
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, cut, slice_count
from nexo.spark.topic_offsets import lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from nexo.client.operation import Operation
    from nexo.spark.options import Options
    from nexo.spark.topic_offsets import Kept, Offsets

    Ranges = dict[str, tuple[int, int]]


class TopicSlice(InputPartition):
    """Offsets `start` to `stop` of a topic."""

    def __init__(self, topic: str, start: int, stop: int) -> None:
        self.topic = topic
        self.start = start
        self.stop = stop


def ranges_of(start: Offsets, end: Offsets) -> Ranges:
    """The messages between two offsets of each topic, without the topics that have none."""
    ranges = {name: (start.get(name, 0), stop) for name, stop in end.items()}
    return {name: (low, high) for name, (low, high) in ranges.items() if low < high}


def slice_counts(ranges: Ranges, topics: dict[str, Kept], least: int | None) -> dict[str, int]:
    """In how many slices each topic is read: every one has its share of them."""
    total = sum(high - low for low, high in ranges.values())
    counts = {}
    for name, (low, high) in ranges.items():
        count = high - low
        share = None if least is None else max(1, -(-least * count // total))
        held = topics.get(name)
        size = round(count * held.message_bytes) if held is not None else 0
        counts[name] = slice_count(count, size, share)
    return counts


def topic_slices(ranges: Ranges, counts: dict[str, int]) -> list[TopicSlice]:
    return [
        TopicSlice(name, low + start, low + stop)
        for name, (low, high) in ranges.items()
        for start, stop in cut(high - low, counts[name])
    ]


def read_slice(options: Options, piece: TopicSlice) -> Iterator[pa.RecordBatch]:
    from nexo.spark.rows import topic_rows
    from nexo.wire.columns import raw_parts

    link, at, strict = link_to(options), piece.start, options.fail_on_data_loss
    asked = link.begin(_reading(piece, at, strict)) if at < piece.stop else None
    while asked is not None:
        parts = raw_parts(link.wait(asked).body)
        if not parts or parts[0].first >= piece.stop:
            if strict:
                raise lost(f"topic {piece.topic!r} ends before offset {piece.stop}")
            return
        at = parts[-1].first + parts[-1].count
        if at > piece.stop:  # retention went by, so it began later and reached further
            parts = [part for part in parts if part.first < piece.stop]
        # The next answer is on its way while Spark takes these.
        asked = link.begin(_reading(piece, at, strict)) if at < piece.stop else None
        rows = topic_rows(parts, piece.topic)
        beyond = max(0, parts[-1].first + parts[-1].count - piece.stop)
        yield rows.slice(0, rows.num_rows - beyond) if beyond else rows


def _reading(piece: TopicSlice, at: int, strict: bool) -> Operation:
    count = min(piece.stop - at, READ_MESSAGES)
    return raw_read(piece.topic, at, count, READ_BYTES, strict)
