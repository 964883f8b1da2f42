"""The store of one simulated node: its two connections to the tables, and the journals of its
shards behind one writer, as `nexo.journal.postgresql_shards` has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from nexo.journal.memory import MemoryJournal
from nexo.journal.port import Writing
from nexo.vocabulary.errors import Fenced, InvalidArgument, NexoError, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nexo.engine.desk import Done, Job
    from nexo.journal.port import Commit, Committing, Stored, Usage
    from nexo.simulation.cluster.database import Database
    from nexo.simulation.cluster.network import Network, Place
    from nexo.vocabulary.batch import Batch

Result = TypeVar("Result")
Outcome = tuple[Any, Exception | None]

_TRACKS = 2  # as a writer has them


class SimulatedStore:
    def __init__(
        self, network: Network, place: Place, database: Database, name: str, run: int
    ) -> None:
        self.name, self.run = name, run
        self.network, self.database = network, database
        self.leases: Any = SimulatedConnection(self, place)
        self.hands: Any = SimulatedConnection(self, place)
        self.runner = SimulatedShards(self)

    def journal(self, shard: int) -> SimulatedJournal:
        return SimulatedJournal(self, shard)

    def renewed(self, until_us: int) -> None:
        """This database never goes back to an older state."""

    async def end(self) -> None:
        await self.leases.end()
        await self.hands.end()


class SimulatedConnection:
    """To the tables; one call after the other."""

    def __init__(self, store: SimulatedStore, place: Place) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        network, database = store.network, store.database
        tables = self._tables = database.tables(store.name, store.run)

        def told() -> None:
            if network.way(place, network.store).value == "open":
                network.loop.call_later(network.lag_s(), self._news.set, context=place.context)

        database.listeners[tables] = told

    async def call(self, work: Callable[[Any], Result]) -> Result:
        async with self._turn:
            return await self._store.network.transact(lambda: work(self._tables))

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def end(self) -> None:
        self._store.database.listeners.pop(self._tables, None)


class SimulatedShards:
    """Runs the calls to the journals of all shards of a node: what waited while one transaction ran
    is the next one, each part with its fence. Two may be under way, of different shards."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._reading = asyncio.Lock()
        self._coming: list[Committing] = []
        self._waiting: list[tuple[Writing, Done]] = []
        self._writing = 0  # how many transactions are under way
        self.is_broken = False  # the connection that reads

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        if isinstance(job, Writing):
            self._waiting.append((job, done))
            self._go_on()
        else:
            self._store.network.loop.create_task(self._read(job, done))

    def soon(self, committing: Committing) -> None:
        self._coming.append(committing)
        self._go_on()

    def _go_on(self) -> None:
        if self._writing < _TRACKS:
            self._writing += 1
            self._store.network.loop.create_task(self._write())

    def close(self) -> None:
        """One shard needs it no more; the others may."""

    async def _read(self, job: Job, done: Done) -> None:
        def lost() -> None:
            """The journal that it is about finds its connection broken."""
            self.is_broken = True
            _outcome_of(job)
            self.is_broken = False

        result, error = None, None
        async with self._reading:
            try:
                result = await self._store.network.transact(job, lost, may_be_late=False)
            except NexoError as raised:
                error = raised
        done(result, error)

    async def _write(self) -> None:
        while self._coming or self._waiting:
            half = (len(self._coming) + 1) // 2  # some for the other
            coming, self._coming = self._coming[:half], self._coming[half:]
            if self._coming:
                self._go_on()
            for each in coming:
                commit = each.begin_joined()
                if commit is not None:
                    self._waiting.append((Writing(each.journal, commit), each.end_joined))
            calls, self._waiting = self._waiting, []
            outcomes = await self._commit([job for job, _ in calls])
            for (_, done), outcome in zip(calls, outcomes, strict=True):
                done(*outcome)
        self._writing -= 1

    async def _commit(self, jobs: list[Writing]) -> list[Outcome]:
        """All of them in one transaction; each has its outcome."""
        told: dict[Writing, Outcome] = {}
        parts: list[tuple[Writing, Any, int]] = []
        for job in jobs:
            journal: Any = job.journal
            _, error = _outcome_of(journal.check_open)
            if error is None:
                parts.append((job, journal, journal.epoch))
            else:
                told[job] = None, error

        def work() -> list[Outcome]:
            return [_outcome_of(journal.write, job.commit, epoch) for job, journal, epoch in parts]

        def lost() -> None:
            for _, journal, _ in parts:
                journal.stop(NotReady("the connection to the database is lost"))

        try:
            outcomes = await self._store.network.transact(work, lost)
        except NexoError as error:
            outcomes = [(None, error.anew()) for _ in parts]
        for (job, journal, _), outcome in zip(parts, outcomes, strict=True):
            told[job] = outcome
            if isinstance(outcome[1], Fenced):
                journal.stop(outcome[1])
        return [told[job] for job in jobs]


def _outcome_of(work: Callable[..., Any], *given: Any) -> Outcome:
    try:
        return work(*given), None
    except NexoError as error:
        return None, error


class SimulatedJournal:
    """The journal of one shard. Between `open` and a fault it belongs to this node."""

    def __init__(self, store: SimulatedStore, shard: int) -> None:
        self._store, self._shard = store, shard
        self._database = store.database
        self._inner = MemoryJournal(store.database.disks[shard])
        self._fault: NexoError | None = None
        self._is_open = False
        self._found: dict[int, Stored] | None = None  # all owners, until the first commit
        self.epoch = 0

    def open(self) -> int:
        self.close()
        store, disk = self._store, self._database.disks[self._shard]
        self._check_connection()
        self.epoch = self._database.raise_epoch(self._shard, store.name, store.run)
        self._inner.open()
        disk.epoch = self.epoch  # it was raised already
        self._is_open, self._fault = True, None
        self._found = {owner: self._inner.load(owner) for owner in self._inner.owners()}
        return self.epoch

    def close(self) -> None:
        self._is_open = False
        self._found = None

    def stop(self, fault: NexoError) -> None:
        self._fault = fault.anew()
        self.close()

    def owners(self) -> list[int]:
        return sorted(self._stored())

    def load(self, owner: int) -> Stored:
        return self._stored().get(owner) or self._inner.load(-1)

    def last_row(self) -> int:
        self._check_open()
        return self._inner.last_row()

    @property
    def next_is_long(self) -> bool:
        return False

    def commit(self, commit: Commit) -> float:
        """Alone, where the shard is read."""
        self._check_open()
        try:
            return self.write(commit, self.epoch)
        except Fenced as error:
            self.stop(error)
            raise

    def write(self, commit: Commit, epoch: int) -> float:
        """In the transaction: it was begun in that epoch, whatever this node has done since."""
        if not self._database.holds(self._shard, epoch):
            raise Fenced(f"shard {self._shard} belongs to another node")
        self._found = None
        return self._inner.commit(commit)

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        self._check_open()
        return self._inner.fetch(rows)

    def usage(self) -> Usage:
        self._check_open()
        return self._inner.usage()

    def tidy(self) -> bool:
        self._check_open()
        return False

    def copy(self) -> NoReturn:
        raise InvalidArgument("a cluster is backed up by its database")

    def _stored(self) -> dict[int, Stored]:
        self._check_open()
        if self._found is None:
            self._found = {owner: self._inner.load(owner) for owner in self._inner.owners()}
        return self._found

    def check_open(self) -> None:
        if not self._is_open:
            fault = self._fault or NotReady("the shard is not open")
            raise fault.anew()

    def _check_open(self) -> None:
        self.check_open()
        self._check_connection()

    def _check_connection(self) -> None:
        if self._store.runner.is_broken:
            fault = NotReady("the connection to the database is lost")
            self.stop(fault)
            raise fault
