"""What a node needs of the database of its cluster: a port, and PostgreSQL behind it.

The simulation has another one behind it, of which nothing blocks and where everything fails.
"""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from nexo.journal.postgresql_cluster import ClusterTables
from nexo.journal.postgresql_shards import Shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.desk import Runner
    from nexo.journal.port import Journal

Result = TypeVar("Result")


class NodeTables(Protocol):
    """The tables of the cluster, over one connection."""

    async def call(self, work: Callable[[ClusterTables], Result]) -> Result:
        """Do something with them; one call after the other."""

    async def wait(self, seconds: float) -> None:
        """Until somebody changes them, but no longer than this."""

    async def end(self) -> None:
        """Let go of the connection."""


class NodeStore(Protocol):
    """`run` is the number that the node of this name drew at its start."""

    name: str
    run: int
    # Two connections: who waits for news must not keep others from writing it.
    leases: NodeTables
    hands: NodeTables

    @property
    def runner(self) -> Runner:
        """What runs the calls to the journals of all shards."""

    def journal(self, shard: int) -> Journal:
        """The journal of one of them."""

    def renewed(self, until_us: int) -> None:
        """The lease of the node was renewed."""

    async def end(self) -> None:
        """Let go of everything, once what waits is done."""


class PostgresqlStore:
    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.run = random.SystemRandom().getrandbits(62)
        self.runner = Shards(url, name, self.run)
        self.leases: NodeTables = _Threaded(ClusterTables(url, name, self.run))
        self.hands: NodeTables = _Threaded(ClusterTables(url, name, self.run))

    def journal(self, shard: int) -> Journal:
        return self.runner.journal(shard)

    def renewed(self, until_us: int) -> None:
        self.runner.renewed(until_us)

    async def end(self) -> None:
        await self.leases.end()
        await self.hands.end()
        await asyncio.to_thread(self.runner.end)


class _Threaded:
    """Tables that are used in a thread of their own."""

    def __init__(self, tables: ClusterTables) -> None:
        self._tables = tables
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nexo-cluster")

    async def call(self, work: Callable[[ClusterTables], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._tables)

    async def wait(self, seconds: float) -> None:
        await self.call(lambda tables: tables.wait(seconds))

    async def end(self) -> None:
        def end() -> None:
            self._thread.submit(self._tables.close)
            self._thread.shutdown()

        await asyncio.to_thread(end)
