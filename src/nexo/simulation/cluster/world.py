"""A world of several nodes: one seed, from the first node to the last accounting.

Nodes start, clients work, and fate strikes: nodes are killed, put to sleep, cut off from each other
and from the database, drained, stopped and replaced; answers of commits get lost. Then everything
is healed, the cluster has to come to rest, and every message is drained and accounted for.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING, Any

from nexo.machine import invariants
from nexo.simulation import squeeze
from nexo.simulation.cluster.clients import VISIBILITY_MS, Cluster
from nexo.simulation.cluster.database import Database
from nexo.simulation.cluster.ledger import Ledger, dead_letters_of
from nexo.simulation.cluster.member import Member
from nexo.simulation.cluster.network import Network, Way
from nexo.simulation.history import History, Violation
from nexo.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logging.getLogger("nexo.cluster").addHandler(logging.NullHandler())  # the history tells it

_REST_S = 60  # by then a healed cluster has come to rest
_DRAIN_S = 120
_END_S = 300  # after all work: some 30 are usual
_STEPS_PER_CHECK = 16


class ClusterWorld:
    def __init__(self, seed: int, steps: float = 1.0) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.history = History()
        self.ledger = Ledger(self.history)
        self._loop = VirtualLoop(0.0)
        self.history.time = self._loop.time
        self._network = Network(self._loop, random)
        self.shards = random.randint(2, 6)
        self.database = Database(self.shards, self._loop.time)
        self.names = list("abcd"[: random.randint(2, 4)])
        self.queues = [f"queue{each}" for each in range(random.randint(2, 5))]
        self._skews = {name: random.choice([0.0, 0.0, -240.0, 180.0]) for name in self.names}
        self._mishap_share = random.choice([0.0, 0.01, 0.05])
        self._work_s = random.choice([20, 40, 60]) * steps
        self.limits = squeeze.draw(random)
        self._runs: dict[str, Member] = {}  # every process, by its address
        self._cluster = Cluster(self._network, self.ledger, random)
        self._steps = 0

    def run(self) -> None:
        """Raises a `Violation` if a promise was broken, and whatever else went wrong."""
        self._loop.after_step = self._after_step
        self._loop.planned = TimeoutError  # a shard closes though the database does not answer
        try:
            with squeeze.squeezed(self.limits):
                main = self._live()
                self._loop.run(self._in_place(main))
        finally:
            self._loop.bury()

    async def _in_place(self, main: Awaitable[None]) -> None:
        async def live() -> None:
            await main

        await self._network.spawn(self._network.outside, live())

    async def _live(self) -> None:
        for name in self.names:
            self._start(name)
        self._tend()
        for queue in self.queues:
            await self._cluster.create(queue)
        self._network.mishap_share = self._mishap_share
        loop, cluster = self._loop, self._cluster
        work = [loop.create_task(self._strike())]
        for number, queue in enumerate(self.queues):
            work.append(loop.create_task(cluster.produce(queue, f"p{number}")))
            consumers = self.random.randint(1, 2)
            work += [loop.create_task(cluster.consume(queue)) for _ in range(consumers)]
            if self.random.random() < 0.3:
                work.append(loop.create_task(cluster.consume(dead_letters_of(queue))))
        await asyncio.sleep(self._work_s)
        cluster.is_open = False
        await self._heal()
        for each in work:
            await each
        await self._come_to_rest()
        await asyncio.sleep(VISIBILITY_MS / 1000 + 1)
        for queue in self.queues:
            await self._drain(queue)
        await self._arrive()
        for queue in self.queues:
            await self._drain(dead_letters_of(queue))
        self.ledger.check_all()
        self.database.verify()
        self.history.add("-- the end")

    # -- Nodes ----------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        run = self.random.getrandbits(62)
        member = Member(
            self._network,
            self.database,
            self.history,
            name,
            run,
            self._skews[name],
            self._runs.__getitem__,
        )
        self._runs[f"{name}:{run}"] = self._cluster.members[name] = member
        self.history.add("-- start", name, run)

    def _tend(self) -> None:
        """Whatever supervises the processes starts one again that has ended."""
        for member in self._members():
            if member.has_ended:
                self._network.kill(member.place)
                rest = [each for each in self._members() if each.name == member.name]
                if rest:
                    self._cluster.members[member.name] = rest[-1]
                else:
                    self._start(member.name)
        self._loop.call_later(1.0, self._tend)

    # -- Fate -----------------------------------------------------------------------------------

    async def _strike(self) -> None:
        blows: list[Callable[[str], Awaitable[None]]] = [
            self._kill,
            self._sleep,
            self._sleep,
            self._replace,
            self._cut_from_store,
            self._cut_from_store,
            self._cut_from_peer,
            self._take_store_away,
            self._drain_node,
            self._stop,
        ]
        under_way = []
        while self._cluster.is_open:
            await asyncio.sleep(self.random.uniform(0.1, 6))
            blow = self.random.choice(blows)
            under_way.append(self._loop.create_task(_as_task(blow(self.random.choice(self.names)))))
        for each in under_way:
            await each

    def _lasts_s(self) -> float:
        return self.random.choice([0.2, 1.0, 3.0, 5.2, 7.0, 12.0]) * self.random.uniform(0.8, 1.2)

    async def _kill(self, name: str) -> None:
        member = self._cluster.members[name]
        self.history.add("-- kill", name)
        self._network.kill(member.place)
        await asyncio.sleep(self._lasts_s())
        if self._cluster.members[name] is member:
            self._start(name)

    async def _sleep(self, name: str) -> None:
        place = self._cluster.members[name].place
        self.history.add("-- sleep", name)
        self._network.put_to_sleep(place)
        await asyncio.sleep(self._lasts_s())
        self.history.add("-- wake", name)
        self._network.wake(place)

    async def _replace(self, name: str) -> None:
        """It seems to be dead, so another of its name is started; then it wakes up."""
        member = self._cluster.members[name]
        self.history.add("-- sleep", name, "and another of its name is started")
        self._network.put_to_sleep(member.place)
        await asyncio.sleep(self._lasts_s())
        if self._cluster.members[name] is member:
            self._start(name)
        await asyncio.sleep(self._lasts_s())
        self.history.add("-- wake", *member.identity)
        self._network.wake(member.place)

    async def _cut_from_store(self, name: str) -> None:
        await self._cut([(name, "store")])

    async def _cut_from_peer(self, name: str) -> None:
        others = [each for each in self.names if each != name]
        await self._cut([(name, self.random.choice(others))])

    async def _take_store_away(self, name: str) -> None:
        await self._cut([(each, "store") for each in self.names])

    async def _cut(self, pairs: list[tuple[str, str]]) -> None:
        way = self.random.choice([Way.BROKEN, Way.SILENT])
        self.history.add("-- cut", way.value, *pairs)
        for one, other in pairs:
            self._network.cut(one, other, way)
        await asyncio.sleep(self._lasts_s())
        self.history.add("-- mended", *pairs)
        for one, other in pairs:
            self._network.mend(one, other)

    async def _drain_node(self, name: str) -> None:
        self.history.add("-- drain", name)
        tables = self.database.tables("operator", 0)
        tables.set_draining(name, True)
        await asyncio.sleep(self._lasts_s())
        self.history.add("-- rebalance")
        tables.set_draining(None, False)

    async def _stop(self, name: str) -> None:
        """It leaves, and its supervisor starts it again."""
        member = self._cluster.members[name]
        if member.has_joined and not member.place.is_dead:
            self.history.add("-- stop", name)
            self._network.spawn(member.place, member.leave())

    # -- The end ----------------------------------------------------------------------------------

    async def _heal(self) -> None:
        self.history.add("-- healed")
        self._network.mishap_share = 0.0
        self._network.mend_all()
        self.database.tables("operator", 0).set_draining(None, False)

    async def _come_to_rest(self) -> None:
        """Every shard is open at the node that should have it, and nowhere else."""
        self._network.mend_all()
        for _ in range(_REST_S * 4):
            if self._is_at_rest():
                return
            await asyncio.sleep(0.25)
        raise Violation(
            "a healed cluster comes to rest",
            f"owners {self.database.owners}, open "
            f"{ {m.identity: sorted(m.engines) for m in self._members()} }",
        )

    async def _arrive(self) -> None:
        """What is on its way to another shard comes there."""
        for _ in range(_REST_S * 4):
            engines = [engine for each in self._members() for engine in each.engines.values()]
            if not any(engine.transfers.backlog().messages for engine in engines):
                return
            await asyncio.sleep(0.25)
        raise Violation("what is for another shard arrives", "something still waits")

    def _members(self) -> list[Member]:
        """The processes that are there."""
        return [member for member in self._runs.values() if not member.place.is_dead]

    def _is_at_rest(self) -> bool:
        living = {name for name in self.names if self.database.is_living(name)}
        if living != set(self.names) or len(self._members()) != len(self.names):
            return False
        for shard, owner in self.database.owners.items():
            open_at = [each.name for each in self._members() if shard in each.engines]
            if open_at != [owner]:
                return False
        engines = [engine for each in self._members() for engine in each.engines.values()]
        return all(engine.refusal is None for engine in engines)

    async def _drain(self, queue: str) -> None:
        until_s = self._loop.time() + _DRAIN_S

        async def depth(engine: Any, given: Any) -> int:
            return int(engine.queue(queue).info().depth)

        while await self._cluster.until_done(queue, depth):
            if self._loop.time() > until_s:
                raise Violation("everything can be delivered", f"{queue} keeps messages")
            taken = await self._cluster.pop(queue, 50, 1_000)
            if taken is not None:
                await self._cluster.ack(taken)

    def _after_step(self) -> None:
        """The rules' own invariants, now and then, and whether it all comes to an end."""
        self._steps += 1
        if self._steps % _STEPS_PER_CHECK:
            return
        if self._loop.time() > self._work_s + _END_S:
            raise Violation(
                "a cluster comes to rest", f"something is under way {_END_S} s after all work"
            )
        for member in self._members():
            for engine in member.engines.values():
                for actor in engine.queues.values():
                    try:
                        invariants.check(actor.queue)
                    except AssertionError as broken:
                        raise Violation(
                            "every message is in one place", f"{actor.name}: {broken}"
                        ) from None


async def _as_task(blow: Awaitable[None]) -> None:
    await blow
