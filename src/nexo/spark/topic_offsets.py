"""Where reading of topics begins and ends: which topics there are, and offsets in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from nexo.spark.options import EARLIEST, LATEST
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.start import Start
from nexo.wire import calls

if TYPE_CHECKING:
    from nexo.spark.link import Link
    from nexo.spark.options import Options
    from nexo.wire.calls import TopicFigures

    Offsets = dict[str, int]

EARLIEST_NUMBER, LATEST_NUMBER = -2, -1  # as others write them


class Kept(NamedTuple):
    """What a topic holds: offsets `start` to `end`, and about how many bytes each takes."""

    start: int
    end: int
    message_bytes: float


def kept(link: Link, options: Options) -> dict[str, Kept]:
    """The topics that are to be read, with what they hold now."""
    if options.topic_pattern is not None:
        wanted = re.compile(options.topic_pattern)
        listed = link.call(calls.ListTopics())
        return {each.name: _kept(each) for each in listed if wanted.fullmatch(each.name)}
    return {name: _kept(link.call(calls.DescribeTopic(name))) for name in options.topics}


def starts(link: Link, options: Options, topics: dict[str, Kept], default: str) -> Offsets:
    """Where a new reading begins."""
    if options.starting_ms is not None:
        moment = Start(time_ms=options.starting_ms)
        return {name: link.call(calls.Starts(name, moment))[name] for name in topics}
    return resolved(options.starting_offsets or default, topics, "startingOffsets", default)


def resolved(
    asked: str | dict[str, int], topics: dict[str, Kept], name: str, default: str
) -> Offsets:
    """Offsets as numbers. Topics that JSON does not name have the default."""
    if isinstance(asked, dict):
        strangers = sorted(asked.keys() - topics.keys())
        if strangers:
            raise InvalidArgument(
                f"{name} names {', '.join(strangers)}, which is not read",
                f"it may name: {', '.join(sorted(topics))}",
            )
    offsets = {}
    for topic, held in topics.items():
        offset = asked.get(topic, default) if isinstance(asked, dict) else asked
        if offset in (EARLIEST, EARLIEST_NUMBER):
            offset = held.start
        elif offset in (LATEST, LATEST_NUMBER):
            offset = held.end
        if not isinstance(offset, int) or offset < 0:
            raise InvalidArgument(f"{name} has {offset} for {topic!r}", "offsets begin at 0")
        offsets[topic] = offset
    return offsets


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
