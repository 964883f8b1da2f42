"""Slices of topics, and how an executor reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from nexo.spark.link import link_to, raw_read
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, slices
from nexo.spark.topic_offsets import lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from nexo.spark.options import Options
    from nexo.spark.topic_offsets import Kept, Offsets


class TopicSlice(InputPartition):
    """Offsets `start` to `stop` of a topic."""

    def __init__(self, topic: str, start: int, stop: int) -> None:
        self.topic = topic
        self.start = start
        self.stop = stop


def topic_slices(
    start: Offsets, end: Offsets, topics: dict[str, Kept], least: int | None
) -> list[TopicSlice]:
    """The messages between two offsets of each topic; every topic has its share of the slices."""
    ranges = {name: (start.get(name, 0), stop) for name, stop in end.items()}
    ranges = {name: (low, high) for name, (low, high) in ranges.items() if low < high}
    total = sum(high - low for low, high in ranges.values())
    cut = []
    for name, (low, high) in ranges.items():
        count = high - low
        share = None if least is None else max(1, -(-least * count // total))
        held = topics.get(name)
        size = round(count * held.message_bytes) if held is not None else 0
        cut += [TopicSlice(name, low + a, low + b) for a, b in slices(count, size, share)]
    return cut


def read_slice(options: Options, piece: TopicSlice) -> Iterator[pa.RecordBatch]:
    from nexo.spark.rows import topic_rows
    from nexo.wire.columns import raw_parts

    link, at, strict = link_to(options), piece.start, options.fail_on_data_loss
    while at < piece.stop:
        count = min(piece.stop - at, READ_MESSAGES)
        asked = link.begin(raw_read(piece.topic, at, count, READ_BYTES, strict))
        parts = raw_parts(link.wait(asked).body)
        if not parts or parts[0].first >= piece.stop:
            if strict:
                raise lost(f"topic {piece.topic!r} ends before offset {piece.stop}")
            return
        reached = parts[-1].first + parts[-1].count
        if reached > piece.stop:  # retention went by, so it began later and reached further
            parts = [part for part in parts if part.first < piece.stop]
        rows = topic_rows(parts, piece.topic)
        beyond = max(0, parts[-1].first + parts[-1].count - piece.stop)
        yield rows.slice(0, rows.num_rows - beyond) if beyond else rows
        at = reached
