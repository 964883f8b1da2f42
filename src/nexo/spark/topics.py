"""Topics, as both ways of reading take them: which there are, the offsets where reading begins and
ends, slices, and how an executor reads one."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from nexo.spark.link import link_to, raw_read
from nexo.spark.options import EARLIEST, LATEST
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, cut, slice_count
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.names import EVENTS_TOPIC, is_events
from nexo.vocabulary.start import Start
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from nexo.client.operation import Operation
    from nexo.spark.link import Link
    from nexo.spark.options import Options
    from nexo.wire.calls import TopicFigures

    Offsets = dict[str, int]
    Ranges = dict[str, tuple[int, int]]

EARLIEST_NUMBER, LATEST_NUMBER = -2, -1  # as others write them
_EVENTS_PAGE = 100  # topics in an answer: behind those of events there may be thousands
OTHERS = "*"  # in JSON: the topics that it does not name


class Kept(NamedTuple):
    """What a topic holds: offsets `start` to `end`, and about how many bytes each takes."""

    start: int
    end: int
    message_bytes: float


def kept(link: Link, options: Options, known: Iterable[str] = ()) -> dict[str, Kept]:
    """The topics that are to be read, with what they hold now. Of those that are known and not in
    a list it is asked once more: a list of a cluster may lack what moves to another node."""
    if options.topic_pattern is not None:
        wanted = re.compile(options.topic_pattern)
        listed = link.call(calls.ListTopics())
        found = {each.name: _kept(each) for each in listed if wanted.fullmatch(each.name)}
    else:
        found = {}
        for name in options.topics:
            found.update(_events(link) if name == EVENTS_TOPIC else {name: _described(link, name)})
    for name in known:
        if name not in found:
            with suppress(TopicNotFound):
                found[name] = _described(link, name)
    return found


def _described(link: Link, name: str) -> Kept:
    return _kept(link.call(calls.DescribeTopic(name)))


def _events(link: Link) -> dict[str, Kept]:
    """That of a broker, or in a cluster that of each shard which has a queue."""
    try:
        return {EVENTS_TOPIC: _described(link, EVENTS_TOPIC)}
    except TopicNotFound:
        found: dict[str, Kept] = {}
        after = EVENTS_TOPIC
        while True:
            listed = link.call(calls.ListTopics(after, _EVENTS_PAGE))
            found.update({each.name: _kept(each) for each in listed if is_events(each.name)})
            if len(listed) < _EVENTS_PAGE or not is_events(listed[-1].name):
                return found
            after = listed[-1].name


def starts(link: Link, options: Options, topics: dict[str, Kept], default: str) -> Offsets:
    """Where a new reading begins."""
    if options.starting_ms is not None:
        moment = Start(time_ms=options.starting_ms)
        return {name: link.call(calls.Starts(name, moment))[name] for name in topics}
    begin = resolved(options.starting_offsets or default, topics, "startingOffsets", default)
    _check_read(options.starting_ms_by_topic.keys(), topics, "startingOffsetsByTimestamp")
    for name, time_ms in options.starting_ms_by_topic.items():
        begin[name] = link.call(calls.Starts(name, Start(time_ms=time_ms)))[name]
    return begin


def ends(link: Link, options: Options, topics: dict[str, Kept]) -> Offsets:
    """Where a batch read ends, not included."""
    if options.ending_ms is not None:
        moment = Start(time_ms=options.ending_ms)
        return {name: link.call(calls.Starts(name, moment))[name] for name in topics}
    end = resolved(options.ending_offsets, topics, "endingOffsets", LATEST)
    return {name: min(offset, topics[name].end) for name, offset in end.items()}


def resolved(
    asked: str | dict[str, int], topics: dict[str, Kept], name: str, default: str
) -> Offsets:
    """Offsets as numbers. Topics that JSON does not name have that of `*`, else the default."""
    others: str | int = default
    if isinstance(asked, dict):
        asked = dict(asked)
        others = asked.pop(OTHERS, default)
        _check_read(asked.keys(), topics, name)
    offsets = {}
    for topic, held in topics.items():
        offset = asked.get(topic, others) if isinstance(asked, dict) else asked
        if offset in (EARLIEST, EARLIEST_NUMBER):
            offset = held.start
        elif offset in (LATEST, LATEST_NUMBER):
            offset = held.end
        if not isinstance(offset, int) or offset < 0:
            raise InvalidArgument(f"{name} has {offset} for {topic!r}", "offsets begin at 0")
        offsets[topic] = offset
    return offsets


def _check_read(named: Iterable[str], topics: dict[str, Kept], option: str) -> None:
    strangers = sorted(set(named) - topics.keys())
    if strangers:
        raise InvalidArgument(
            f"{option} names {', '.join(strangers)}, which this query does not read",
            f"it may name: {', '.join(sorted(topics))}",
        )


def check_kept(offsets: Offsets, topics: dict[str, Kept], fail_on_data_loss: bool) -> Offsets:
    """The offsets to go on from, where a topic is gone, was made anew, or has let messages go."""
    going_on = {}
    for topic, offset in offsets.items():
        held = topics.get(topic)
        if held is not None and held.start <= offset <= held.end:
            going_on[topic] = offset
            continue
        if held is None:
            problem = f"topic {topic!r} is gone"
        elif offset > held.end:
            problem = f"topic {topic!r} ends at {held.end}, before offset {offset}: it is another"
        else:
            problem = f"messages {offset} to {held.start} of topic {topic!r} are beyond retention"
        if fail_on_data_loss:
            raise TopicNotFound(problem, LOSS_HINT) if held is None else lost(problem)
        if held is not None:
            going_on[topic] = held.start
    return going_on


LOSS_HINT = "set failOnDataLoss to false to go on with what there is"


def lost(problem: str) -> Exception:
    from nexo.vocabulary.errors import OffsetExpired

    return OffsetExpired(problem, LOSS_HINT)


def _kept(info: TopicFigures) -> Kept:
    return Kept(info.start, info.end, info.kept_bytes / max(1, info.end - info.start))


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
    from nexo.query.rows import topic_rows
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
