"""The metrics of the broker as a whole, and of its topics."""

from __future__ import annotations

import resource
import time
from heapq import nlargest
from typing import TYPE_CHECKING, Protocol

from nexo.telemetry import families as f
from nexo.telemetry.exposition import header, histogram, sample
from nexo.vocabulary.limits import METRICS_TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.types import Usage

_STARTED_S = time.time()


class Surroundings(Protocol):
    """What is known outside of the engine."""

    @property
    def version(self) -> str: ...

    def connections(self) -> dict[str, int]:
        """Open connections by door."""

    def disk_free_bytes(self) -> int | None:
        """Room left on the disk; None without one."""


def whole_lines(engine: Engine, surroundings: Surroundings, usage: Usage) -> str:
    meters, memory = engine.meters, engine.memory
    lines = [
        header(f.BUILD),
        sample(f.BUILD, 1, surroundings.version),
        header(f.READ_ONLY),
        sample(f.READ_ONLY, engine.refusal is not None),
        header(f.CONNECTIONS),
        *[sample(f.CONNECTIONS, n, door) for door, n in surroundings.connections().items()],
        header(f.STORED),
        sample(f.STORED, usage.stored_bytes),
    ]
    free_bytes = surroundings.disk_free_bytes()
    if free_bytes is not None:
        lines += [header(f.DISK_FREE), sample(f.DISK_FREE, free_bytes)]
    for family, values in (
        (f.COMMIT, meters.commit_s),
        (f.SYNC, meters.sync_s),
        (f.LOOP_LAG, meters.loop_lag_s),
    ):
        lines += [header(family), histogram(family, values)]
    for family, value in (
        (f.OVERDUE, engine.committer.overdue_ms / 1000),
        (f.OUT_OF_SERVICE, len(engine.out_of_service)),
        (f.UNREADABLE, sum(each.messages for each in memory.unreadable())),
        (f.CLOCK_AHEAD, engine.clock_ahead_ms() / 1000),
        (f.UNSETTLED, engine.committer.unsettled_bytes),
        (f.PAYLOAD_MEMORY, memory.resident_bytes),
        (f.PAYLOAD_LIMIT, memory.payload_limit_bytes),
        (f.BOOKKEEPING, memory.bookkeeping_bytes),
        (f.RESIDENT, _resident_bytes()),
        (f.CPU, time.process_time()),
        (f.STARTED, _STARTED_S),
    ):
        lines += [header(family), sample(family, value)]
    return "".join(lines)


def topic_lines(engine: Engine) -> Iterator[str]:
    """The topics that keep the most; beyond a limit the rest is left out. An empty slice tells of
    nothing: it is where others get their turn."""
    found: list[TopicActor] = []
    for names in engine.topics.behind():
        found += [engine.topics[name] for name in names]
        if len(found) >= 2 * METRICS_TOPICS_MAX:
            found = _largest(found)
        yield ""
    topics = [actor.topic for actor in _largest(found)]
    lines = []
    for family, values in (
        (f.TOPIC_MESSAGES, [topic.log.settled - topic.start for topic in topics]),
        (f.TOPIC_BYTES, [topic.kept_bytes for topic in topics]),
        (f.PUBLISHED, [topic.log.settled for topic in topics]),
    ):
        lines.append(header(family))
        pairs = zip(topics, values, strict=True)
        lines += [sample(family, value, topic.name) for topic, value in pairs]
    yield "".join(lines)


def _largest(actors: list[TopicActor]) -> list[TopicActor]:
    return nlargest(METRICS_TOPICS_MAX, actors, key=lambda actor: actor.topic.kept_bytes)


def _resident_bytes() -> int:
    """Now where Linux tells it, else the most that it ever was."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - hot enough
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
