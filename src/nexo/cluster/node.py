"""A node of a cluster: it says that it lives, takes and gives shards, and knows who has the others.

A shard is a whole engine. The shards of a node share the connection that writes, so that many cost
little more than one. Who owns what stands in PostgreSQL, and `placement` has the rules; here is
what carries them out: one task that renews the lease and reads the tables, and one that opens,
closes and hands over, one shard after the other.

A node that could not renew its lease in time gives out nothing, whatever it believes to own: by
then another may have it. What it would write is refused by the fence of each shard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.forwarder import Forwarder
from nexo.cluster.placement import ClusterState, Lease, NodeState, Wishes, plan_of, shard_of
from nexo.cluster.post import Elsewhere, Post
from nexo.cluster.tokens import TOKENS_SHARD, ClusterTokens
from nexo.engine.clock import SystemClock
from nexo.engine.engine import Engine
from nexo.engine.topics import EVENTS_SETTINGS
from nexo.telemetry.meters import Meters
from nexo.vocabulary.errors import Fenced, InvalidArgument, NexoError, NotReady, TopicNotFound
from nexo.vocabulary.limits import (
    CHUNK_BYTES_MAX,
    CLUSTER_ASKED_S,
    CLUSTER_HASHES_MAX,
    CLUSTER_JOIN_S,
    CLUSTER_LEASE_S,
    CLUSTER_MARGIN_S,
    CLUSTER_MOVES_KEPT,
    CLUSTER_NAMES_KEPT,
    CLUSTER_RENEW_S,
    CLUSTER_ROUTE_S,
)
from nexo.vocabulary.names import EVENTS_TOPIC, events_name
from nexo.wire.answers import ClusterFigures, NodeFigures, ShardFigures

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.cluster.store import NodeStore
    from nexo.engine.clock import Clock
    from nexo.engine.transfers import Backlog
    from nexo.journal.postgresql_cluster import Tables
    from nexo.vocabulary.settings import TopicSettings

logger = logging.getLogger("nexo.cluster")

_AGAIN_S = 0.25  # before something that failed is tried again


def boot_s() -> float:
    """Seconds on a clock that also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Moved(msgspec.Struct, frozen=True):
    """A shard got another owner, as this node has seen it; None: nobody had it."""

    at_ms: int
    shard: int
    before: str | None
    after: str | None


class Unreached(msgspec.Struct, frozen=True):
    """Why this node could not reach another one the last time, and since when."""

    reason: str
    since_s: float


class Node:
    def __init__(
        self,
        store: NodeStore,
        memory_limit_bytes: int,
        *,
        events: TopicSettings | None = EVENTS_SETTINGS,
        now_s: Callable[[], float] = boot_s,
        new_clock: Callable[[], Clock] = SystemClock,
        chance: random.Random | None = None,
    ) -> None:
        """`events` is what each shard keeps of the life of its messages. Clocks and chance are
        arguments, so that a simulation can bend them."""
        self.name = store.name
        self._store = store
        self._events = events
        self._now_s, self._new_clock = now_s, new_clock
        draw = chance or random.SystemRandom()
        self._new_incarnation: Callable[[], int] = lambda: draw.getrandbits(64)
        self._memory_limit_bytes = memory_limit_bytes
        self.shards = 0
        self.secret = ""
        self.engines: dict[int, Engine] = {}
        self.meters = Meters()
        self.state = ClusterState({}, {})
        self.failure: asyncio.Future[NexoError] = asyncio.get_running_loop().create_future()
        self._lease = Lease(CLUSTER_LEASE_S, CLUSTER_MARGIN_S)
        self._leases, self._hands = store.leases, store.hands
        self._shard_of: dict[str, int] = {}  # of names that were asked for lately
        self._wishes = Wishes()
        self._lost: set[int] = set()
        self._touched: dict[int, float] = {}  # when this node changed the owner of a shard
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_away = False
        self.tokens = ClusterTokens(self, store.hands)
        self.moves: deque[Moved] = deque(maxlen=CLUSTER_MOVES_KEPT)  # the latest last
        self.moved_count = 0
        self.passed_frames = 0  # of clients: they cost a hop
        self.unreached: dict[str, Unreached] = {}  # other nodes, by name
        self.redirects = 0  # clients that were told to go to another node
        self.when_opened: list[Callable[[int], None]] = []
        self.when_closed: list[Callable[[int], None]] = []  # told before a shard is closed
        self.when_moved: list[Callable[[int], None]] = []  # told when it has another owner
        self.post = Post(self)
        self._forwarders: dict[int, Forwarder] = {}

    # -- Life ---------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Look whether there is a cluster, and who may come in, before anything is opened."""
        self.shards, self.secret = await self._hands.call(lambda tables: tables.cluster())
        await self.tokens.look()

    async def join(self, rpc: str, http: str, version: str) -> None:
        """Be one of the living from now on. A node of the same name that was killed may still
        have its lease for a while."""
        until_s = self._now_s() + CLUSTER_JOIN_S
        while True:
            asked_s = self._now_s()
            if await self._leases.call(lambda tables: tables.join(rpc, http, version)):
                break
            if self._now_s() > until_s:
                raise NotReady(
                    f"a node of the name {self.name!r} is running already",
                    "each node needs a name of its own: --node NAME",
                )
            await asyncio.sleep(_AGAIN_S)
        self._learn(await self._renewed(), asked_s)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._live()), loop.create_task(self._work())]

    async def leave(self) -> None:
        """Close all shards, then say that they are free: others take them at once."""
        for task in self._tasks[1:]:
            task.cancel()
        await self.tokens.end()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        for shard in list(self.engines):
            await self._close(shard)
        for task in self._tasks[:1]:  # until here the lease had to be renewed
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lease.end()
        try:
            await self._hands.call(lambda tables: tables.leave())
        except NexoError as error:  # its lease ends by itself
            logger.warning("the node could not say that it leaves", extra={"reason": str(error)})
        await self._store.end()

    async def settled(self) -> None:
        """Wait until every shard has an owner that lives, and all that are this node's are open."""

        def is_settled() -> bool:
            living = set(self.state.living())
            return all(
                (shard in self.engines) if owner == self.name else owner in living
                for shard, owner in self.state.owners.items()
            )

        await self._until(is_settled, "some shards have no owner")

    @property
    def is_held(self) -> bool:
        """Whether the lease of this node has not ended."""
        return self._lease.is_held(self._now_s())

    @property
    def trouble(self) -> NexoError | None:
        """Why this node is not healthy."""
        if not self.is_held:
            return self.postgresql_away()
        for engine in self.engines.values():
            if engine.trouble is not None:
                return engine.trouble
        return None

    @property
    def postgresql_away_s(self) -> float | None:
        """How long ago PostgreSQL has answered this node, if it does not any more; else None."""
        if self.is_held and not self._is_away:
            return None
        return self._lease.age_s(self._now_s())

    def postgresql_away(self) -> NotReady:
        """Why nothing can be done here, once the lease has ended."""
        seconds = round(self.postgresql_away_s or 0)
        return NotReady(
            f"node {self.name!r} has had no answer from PostgreSQL for {seconds} s",
            "check PostgreSQL and the network; the node connects again by itself",
        )

    @property
    def lease_left_s(self) -> float:
        """What is left of the lease as this node counts it; below 0: it has ended."""
        return max(-CLUSTER_LEASE_S, self._lease.left_s(self._now_s()))

    @property
    def unowned(self) -> int:
        """How many shards no living node has."""
        living = set(self.state.living())
        return sum(owner not in living for owner in self.state.owners.values())

    def health(self) -> dict[str, Any]:
        """What `/health` tells of a node besides that it is well."""
        told: dict[str, Any] = {
            "node": self.name,
            "shards": len(self.engines),
            "lease_seconds": max(0.0, round(self.lease_left_s, 1)),
        }
        if not self.is_held:
            told["reason"] = "the node has not renewed its lease in PostgreSQL in time"
        return told

    def note_reached(self, node: NodeState, error: NexoError | None = None) -> None:
        """Whether another node answered this one the last time. In the log once: a wrong
        certificate or address looks like a call that takes long."""
        if error is None:
            self.unreached.pop(node.name, None)
            return
        known = self.unreached.get(node.name)
        if known is None:
            extra = {"node": node.name, "reason": error.message, "hint": error.hint}
            logger.warning("another node cannot be reached", extra=extra)
        since_s = self._now_s() if known is None else known.since_s
        self.unreached[node.name] = Unreached(error.message, since_s)

    def is_cut_off(self, node: NodeState) -> bool:
        """Whether another node lives and yet could not be reached for longer than the lease of one
        that was killed: nobody will take over its shards, and to wait helps nobody."""
        found = self.unreached.get(node.name)
        return found is not None and self._now_s() - found.since_s > CLUSTER_LEASE_S

    # -- Who has what -------------------------------------------------------------------------

    def shard_of(self, name: str) -> int:
        found = self._shard_of.get(name)
        if found is None:
            if len(self._shard_of) >= CLUSTER_NAMES_KEPT:
                self._shard_of.clear()
            found = self._shard_of[name] = shard_of(name, self.shards)
        return found

    def shard_of_task(self, number: int) -> int:
        """The shard of a redrive or a discard: its number tells."""
        return number % self.shards

    def route_now(self, shard: int) -> Engine | NodeState | None:
        """The engine of a shard, or the node that has it; None: nobody has it at this moment."""
        engine = self.engines.get(shard)
        if engine is not None:
            return engine if self.is_held else None
        owner = self.state.nodes.get(self.state.owners.get(shard) or "")
        return owner if owner is not None and owner.is_living and owner.name != self.name else None

    async def route(self, shard: int) -> Engine | NodeState:
        """The same, once somebody has it."""
        await self._until(lambda: self.route_now(shard) is not None, f"shard {shard} has no owner")
        found = self.route_now(shard)
        assert found is not None
        return found

    def owns(self, shard: int) -> bool:
        """Whether a shard is open here, and nobody else's as far as is known."""
        return shard in self.engines and shard not in self._lost and self.is_held

    async def held(self, within_s: float = CLUSTER_ROUTE_S) -> None:
        """Wait for the lease: without it this node may not know who may do what."""
        await self._until(lambda: self.is_held, "the node has not renewed its lease", within_s)

    async def local(self, shard: int) -> Engine:
        """The engine of a shard that another node believes to be here."""

        def is_here() -> bool:
            return isinstance(self.route_now(shard), Engine)

        await self._until(is_here, f"shard {shard} is not at node {self.name!r}")
        return self.engines[shard]

    async def _until(
        self, is_so: Callable[[], bool], otherwise: str, within_s: float = CLUSTER_ROUTE_S
    ) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    news = asyncio.get_running_loop().create_future()
                    self._waiting.append(news)
                    await news
        except TimeoutError:
            if not self.is_held:  # whatever else is so: this is why
                raise self.postgresql_away() from None
            raise NotReady(otherwise, "see nexo cluster status; try again") from None

    def _tell(self) -> None:
        self._changed.set()
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            if not news.done():
                news.set_result(None)

    # -- Operators ----------------------------------------------------------------------------

    async def drain(self, node: str) -> None:
        """Shards go from a node to the others, until `rebalance`."""
        if node not in self.state.nodes:
            raise InvalidArgument(
                f"there is no node {node!r:.80}", "nexo cluster status shows the nodes"
            )
        await self._hands.call(lambda tables: tables.set_draining(node, True))

    async def rebalance(self) -> None:
        """All living nodes get their share."""
        await self._hands.call(lambda tables: tables.set_draining(None, False))

    async def epochs(self) -> dict[int, int]:
        """How often each shard was opened. Without PostgreSQL, of those that are here."""
        if self.postgresql_away_s is None:
            with contextlib.suppress(NexoError, TimeoutError):
                async with asyncio.timeout(CLUSTER_ASKED_S):
                    return await self._hands.call(lambda tables: tables.epochs())
        return {shard: engine.epoch for shard, engine in self.engines.items()}

    # -- The lease ----------------------------------------------------------------------------

    async def _live(self) -> None:
        """Renew the lease, for ever, and learn what has changed."""
        while True:
            asked_s = self._now_s()
            try:
                self._learn(await self._renewed(), asked_s)
                await self._leases.wait(self._pause_s())
            except Fenced as error:
                self._lease.end()
                if not self.failure.done():
                    self.failure.set_result(error)
                return
            except NexoError as error:
                if not self._is_away:
                    logger.error("the lease cannot be renewed", extra={"reason": error.message})
                self._is_away = True
                await asyncio.sleep(_AGAIN_S)

    async def _renewed(self) -> Tables:
        known = self.tokens.known
        return await self._leases.call(lambda tables: tables.renew(known))

    def _pause_s(self) -> float:
        """Until the next renewal, or until the lease of another node ends."""
        left = [node.left_s for node in self.state.nodes.values() if node.is_living]
        return max(0.01, min([CLUSTER_RENEW_S, *[each + 0.01 for each in left]]))

    def _learn(self, tables: Tables, asked_s: float) -> None:
        nodes = {row.name: NodeState(*row) for row in tables.nodes}
        owners = dict(tables.owners)
        for shard, at_s in self._touched.items():
            if at_s >= asked_s:  # it may have been read before this node changed it
                owners[shard] = self.state.owners.get(shard)
        self._touched = {each: at_s for each, at_s in self._touched.items() if at_s >= asked_s}
        before, self.state = self.state.owners, ClusterState(nodes, owners)
        if self.unreached:  # of one that died nothing is known once it is back
            living = set(self.state.living())
            self.unreached = {name: each for name, each in self.unreached.items() if name in living}
        # Before the lease counts again: what was lost meanwhile must not be given out.
        # What was lost once stays so until it was opened again, whoever owns it by now.
        # Another may have had it while the lease had ended, and given it back: the epoch tells.
        lapsed = not self.is_held
        self._lost |= {
            shard
            for shard, engine in self.engines.items()
            if owners.get(shard) != self.name or (lapsed and tables.epochs[shard] > engine.epoch)
        }
        self._lease.renewed(asked_s)
        self._store.renewed(tables.until_us)
        self.tokens.learn(tables.tokens, tables.tokens_data)
        if self._is_away or (lapsed and self.engines):
            logger.info("the lease is renewed", extra={"lost_shards": len(self._lost)})
            self._is_away = False
            for shard, engine in self.engines.items():
                if shard not in self._lost and engine.refusal is None:
                    engine.resume()
        self._tell()
        self._note_moves(before, owners)
        self._tell_moved([each for each in owners if owners[each] != before.get(each)])

    def _note_moves(self, before: dict[int, str | None], after: dict[int, str | None]) -> None:
        at_ms = time.time_ns() // 1_000_000
        for shard, owner in after.items():
            if shard in before and before[shard] != owner:
                self.moves.append(Moved(at_ms, shard, before[shard], owner))
                self.moved_count += 1

    # -- Shards -------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Do what the tables ask for, one thing after the other."""
        while True:
            self._changed.clear()
            try:
                if await self._do_next():
                    continue
            except NexoError as error:
                logger.error("a shard could not be moved", extra={"reason": error.message})
                await asyncio.sleep(_AGAIN_S)
                continue
            await self._changed.wait()

    async def _do_next(self) -> bool:
        """One step of the plan; whether there may be more."""
        lost = sorted(self._lost & self.engines.keys())
        owners, nodes = self.state.owners, self.state.candidates()
        if self._wishes.hashes(owners, nodes) > CLUSTER_HASHES_MAX:
            await asyncio.to_thread(self._wishes.of, list(owners), nodes)
        plan = plan_of(self.state, self.name, set(self.engines), self._wishes)
        if lost or plan.lost:
            shard = (lost or plan.lost)[0]
            logger.warning("a shard was taken over", extra={"shard": shard})
            await self._close(shard)
        elif not self.is_held:
            return False
        elif plan.opened:
            await self._open(plan.opened[0])
        elif plan.taken:
            shard, owner = plan.taken[0], self.state.owners[plan.taken[0]]
            if await self._hands.call(lambda tables: tables.take(shard, owner)):
                self._own(shard, self.name)
            else:
                await asyncio.sleep(_AGAIN_S)  # another was quicker: the tables will tell
        elif plan.given:
            shard, to = plan.given[0]
            await self._close(shard)
            if await self._hands.call(lambda tables: tables.give(shard, to)):
                self._own(shard, to)
                logger.info("a shard was handed over", extra={"shard": shard, "to": to})
            else:
                await asyncio.sleep(_AGAIN_S)
        else:
            return False
        return True

    def _own(self, shard: int, owner: str) -> None:
        self._note_moves({shard: self.state.owners.get(shard)}, {shard: owner})
        self.state.owners[shard] = owner
        self._touched[shard] = self._now_s()
        self._tell()
        self._tell_moved([shard])

    def _tell_moved(self, shards: list[int]) -> None:
        """Who waits for an answer of the former owner may wait in vain: it may sleep."""
        for shard in shards:
            for told in self.when_moved:
                told(shard)

    async def _open(self, shard: int) -> None:
        began_s = self._now_s()
        engine = Engine(
            self._store.journal(shard),
            clock=self._new_clock(),
            runner=self._store.runner,
            memory_limit_bytes=max(
                4 * CHUNK_BYTES_MAX, self._memory_limit_bytes // max(1, self.shards)
            ),
            events=self._events,
            events_name=events_name(shard),
            new_incarnation=self._new_incarnation,
            is_held=lambda: shard not in self._lost and self.is_held,
            check_place=lambda name: self._check_place(name, shard),
            elsewhere=Elsewhere(self, shard),
            meters=self.meters,
            numbered=(shard, self.shards),
        )
        await engine.open_apart()
        self.engines[shard] = engine
        forwarder = self._forwarders[shard] = Forwarder(engine, self.post.push)
        forwarder.begin()
        if shard == TOKENS_SHARD:
            engine.tokens.guard_with(self.tokens.publish, self.tokens.spread)
        if self.state.owners.get(shard) != self.name:
            self._lost.add(shard)
        took_ms = round((self._now_s() - began_s) * 1000, 1)
        extra = {"shard": shard, "queues": len(engine.queues), "took_ms": took_ms}
        logger.debug("a shard is open", extra=extra)
        self._tell()
        for told in self.when_opened:
            told(shard)

    async def _close(self, shard: int) -> None:
        engine = self.engines.pop(shard, None)
        if engine is None:
            return
        for told in self.when_closed:
            told(shard)
        await self._forwarders.pop(shard).close()
        try:
            await engine.close()
        except NexoError as error:  # what was not written was not confirmed either
            extra = {"shard": shard, "reason": error.message}
            logger.warning("a shard was closed without its last commit", extra=extra)
        self._lost.discard(shard)

    def _check_place(self, name: str, shard: int) -> None:
        if name == EVENTS_TOPIC:
            raise TopicNotFound(
                f"in a cluster each shard has events of its own: {events_name(0)} to "
                f"{events_name(self.shards - 1)}",
                f"subscribe to {EVENTS_TOPIC}, or name it in Spark, for all of them together",
            )
        there = self.shard_of(name)
        if there != shard:
            raise InvalidArgument(
                f"{name!r} lives in shard {there} of the cluster, not in shard {shard}",
                "ask any node for it by its name",
            )


def describe(node: Node, epochs: dict[int, int], backlogs: dict[int, Backlog]) -> ClusterFigures:
    """The cluster as `nexo cluster status` shows it."""
    state, away_s = node.state, node.postgresql_away_s
    held = Counter(state.owners.values())
    return ClusterFigures(
        nodes=[
            NodeFigures(
                name=each.name,
                state=_state_of(each, node.unreached),
                shards=held[each.name],
                rpc=each.rpc,
                http=each.http,
                version=each.version,
                lease_s=round(max(0.0, each.left_s), 1),
                reason=_reason_of(each, node.unreached),
            )
            for each in sorted(state.nodes.values(), key=lambda each: each.name)
        ],
        shards=[
            ShardFigures(shard, owner, epochs.get(shard, 0), *_waiting(backlogs.get(shard)))
            for shard, owner in sorted(state.owners.items())
        ],
        told_by=node.name,
        postgresql_away_s=None if away_s is None else round(away_s, 1),
    )


def _waiting(backlog: Backlog | None) -> tuple[int | None, float | None]:
    if backlog is None:
        return None, None
    return backlog.messages, backlog.oldest_ms / 1000


def _reason_of(node: NodeState, unreached: dict[str, Unreached]) -> str:
    return unreached[node.name].reason if node.is_living and node.name in unreached else ""


def _state_of(node: NodeState, unreached: dict[str, Unreached]) -> str:
    if not node.is_living:
        return "down"
    if node.name in unreached:
        return "unreachable"
    return "draining" if node.is_draining else "up"
