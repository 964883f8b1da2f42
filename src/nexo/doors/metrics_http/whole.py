"""The metrics of the broker as a whole, and of its topics."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, Protocol

from nexo.telemetry import families as f
from nexo.telemetry.exposition import header, histogram, sample
from nexo.vocabulary.limits import METRICS_TOPICS_MAX

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
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
        (f.UNSETTLED, engine.committer.unsettled_bytes),
        (f.PAYLOAD_MEMORY, memory.resident_bytes),
        (f.PAYLOAD_LIMIT, memory.limit_bytes),
        (f.RESIDENT, _resident_bytes()),
        (f.CPU, time.process_time()),
        (f.STARTED, _STARTED_S),
    ):
        lines += [header(family), sample(family, value)]
    return "".join(lines)


def topic_lines(engine: Engine) -> str:
    """The topics that keep the most; beyond a limit the rest is left out."""
    infos = sorted(
        (actor.info() for actor in engine.topics.values()),
        key=lambda info: info.kept_bytes,
        reverse=True,
    )[:METRICS_TOPICS_MAX]
    lines = []
    for family, values in (
        (f.TOPIC_MESSAGES, [info.end - info.start for info in infos]),
        (f.TOPIC_BYTES, [info.kept_bytes for info in infos]),
        (f.PUBLISHED, [info.end for info in infos]),
    ):
        lines.append(header(family))
        pairs = zip(infos, values, strict=True)
        lines += [sample(family, value, info.name) for info, value in pairs]
    return "".join(lines)


def _resident_bytes() -> int:
    """Now where Linux tells it, else the most that it ever was."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - hot enough
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
