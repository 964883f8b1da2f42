"""Two shards of a cluster without a cluster: two engines, each of which has the names of one
letter, and a forwarder for each whose pushes a test can break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.cluster.forwarder import Forwarder
from nexo.vocabulary.errors import InvalidArgument, NotReady
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.engine.transfers import Found, Transfer
    from tests.engine.rig import Rig


class Shard:
    """The shard of all names that begin with a letter."""

    def __init__(self, shards: Shards, rig: Rig, letter: str) -> None:
        self._shards, self.rig, self.letter = shards, rig, letter
        self.forwarder: Forwarder | None = None
        rig.is_held = lambda: True
        rig.check_place = self._check_place
        rig.elsewhere = self

    @property
    def engine(self) -> Engine:
        assert self.rig.engine is not None
        return self.rig.engine

    def is_here(self, name: str) -> bool:
        return name.startswith(self.letter)

    async def find(self, name: str, create: bool = False) -> Found:
        return await self._shards.of(name).engine.transfers.describe(name, create)

    async def start(self) -> Engine:
        self._forward(await self.rig.start())
        return self.engine

    async def restart(self) -> Engine:
        await self._end()
        self._forward(await self.rig.restart())
        return self.engine

    async def crash(self) -> Engine:
        """The node is gone, and another opens the shard."""
        self.rig.journal.is_cut = True
        await self._end()
        self._forward(await self.rig.crash())
        return self.engine

    async def _end(self) -> None:
        if self.forwarder is not None:
            await self.forwarder.close()

    def _forward(self, engine: Engine) -> None:
        self.forwarder = Forwarder(engine, self._shards.push)
        self.forwarder.begin()

    def _check_place(self, name: str) -> None:
        if not self.is_here(name) and not name.startswith("nexo."):
            raise InvalidArgument(f"{name} lives elsewhere")


class Shards:
    """`on_push` is asked before a push and may raise; `on_answer` after it was accepted."""

    def __init__(self, a: Rig, b: Rig) -> None:
        self.a, self.b = Shard(self, a, "a"), Shard(self, b, "b")
        self.pushes: list[Transfer] = []
        self.on_push: Callable[[Transfer], Awaitable[None]] | None = None
        self.on_answer: Callable[[Transfer], Awaitable[None]] | None = None

    def of(self, name: str) -> Shard:
        shard = self.a if self.a.is_here(name) else self.b
        if shard.rig.engine is None:
            raise NotReady("the shard has no owner")
        return shard

    async def push(self, transfer: Transfer) -> None:
        self.pushes.append(transfer)
        if self.on_push is not None:
            await self.on_push(transfer)
        rig = self.of(transfer.queue).rig
        engine, journal = rig.engine, rig.journal
        assert engine is not None
        await engine.transfers.accept(transfer)
        if journal.is_cut:
            raise NotReady("who would have answered is gone")
        if self.on_answer is not None:
            await self.on_answer(transfer)

    @classmethod
    async def started(cls, a: Rig, b: Rig) -> Shards:
        made = cls(a, b)
        await made.a.start()
        await made.b.start()
        return made

    async def quiet(self) -> None:
        """Until nothing is on its way."""
        for _ in range(20):
            await settle()
            engines = [self.a.engine, self.b.engine]
            if not any(engine.transfers.backlog().messages for engine in engines):
                return
