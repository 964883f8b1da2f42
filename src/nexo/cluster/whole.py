"""The shards of a node as if they were one engine, for who only looks: lists and metrics."""

from __future__ import annotations

import time
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from nexo.journal.port import Usage
from nexo.vocabulary.limits import LIST_STEP_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.cluster.node import Node
    from nexo.engine.engine import Engine
    from nexo.engine.listing import Named
    from nexo.engine.transfers import Backlog
    from nexo.vocabulary.errors import NexoError


class Together:
    """Queues or topics of several engines, as one list in the order of names."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def behind(self, after: str = "") -> Iterator[list[str]]:
        merged = merge(*[_one_by_one(part, after) for part in self._parts])
        while names := list(islice(merged, LIST_STEP_NAMES)):
            yield names

    def get(self, name: str) -> Any:
        return next((part[name] for part in self._parts if name in part), None)

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found


def _one_by_one(part: Any, after: str) -> Iterator[str]:
    for names in part.behind(after):
        yield from names


class Whole:
    """`more` are names of queues on other nodes, for lists."""

    def __init__(self, node: Node, more: Named[Any] | None = None) -> None:
        self._engines = list(node.engines.values())
        others = [] if more is None else [more]
        self.queues = Together([*[engine.queues for engine in self._engines], *others])
        self.topics = Together([engine.topics for engine in self._engines])
        self.meters = node.meters
        self.memory = _WholeMemory(self._engines)
        self.committer = _WholeCommitter(self._engines)
        self.backups = self
        self.transfers = _WholeTransfers(node)
        self.events_waiting = sum(engine.events_waiting for engine in self._engines)

    async def usage(self) -> Usage:
        """Of the database, which is that of all shards."""
        for engine in self._engines:
            return await engine.backups.usage()
        return Usage(stored_bytes=0, free_bytes=0)

    @property
    def refusal(self) -> NexoError | None:
        found = [engine.refusal for engine in self._engines if engine.refusal is not None]
        return found[0] if found else None

    @property
    def out_of_service(self) -> list[NexoError]:
        return [each for engine in self._engines for each in engine.out_of_service]

    def now_ms(self) -> int:
        return self.wall_ms()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def clock_ahead_ms(self) -> int:
        return max([engine.clock_ahead_ms() for engine in self._engines], key=abs, default=0)


class _WholeTransfers:
    def __init__(self, node: Node) -> None:
        self._engines = node.engines

    def by_shard(self) -> list[tuple[int, Backlog]]:
        engines = sorted(self._engines.items())
        return [(shard, engine.transfers.backlog()) for shard, engine in engines]

    def is_elsewhere(self, name: str) -> bool:
        """It stands for all shards of the node."""
        return False


class _WholeMemory:
    def __init__(self, engines: list[Engine]) -> None:
        self._memories = [engine.memory for engine in engines]

    def unreadable(self) -> list[Any]:
        return [each for memory in self._memories for each in memory.unreadable()]

    @property
    def resident_bytes(self) -> int:
        return sum(memory.resident_bytes for memory in self._memories)

    @property
    def payload_limit_bytes(self) -> int:
        return sum(memory.payload_limit_bytes for memory in self._memories)

    @property
    def bookkeeping_bytes(self) -> int:
        return sum(memory.bookkeeping_bytes for memory in self._memories)


class _WholeCommitter:
    def __init__(self, engines: list[Engine]) -> None:
        self._committers = [engine.committer for engine in engines]

    @property
    def overdue_ms(self) -> int:
        return max([committer.overdue_ms for committer in self._committers], default=0)

    @property
    def unsettled_bytes(self) -> int:
        return sum(committer.unsettled_bytes for committer in self._committers)
