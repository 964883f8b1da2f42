"""Who writes to PostgreSQL, for one journal or for many: what waited while one transaction ran is
the next one, of all of them together.

A transaction is sent by the event loop itself, which then watches the socket. A thread is used for
what may block (to connect, to look who was overtaken), for commits that take their time, and for
what is tried again. Another thread reads: a shard that is being loaded keeps nobody from writing.

If the fence of a shard does not hold, its part is taken out and the rest is written. If a part
cannot be stored, they are tried one by one, so that it fails alone.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Writing
from nexo.journal.postgresql_connection import AWAY_HINT, Connection, abandon, translate
from nexo.journal.postgresql_transaction import Transaction, pipeline_on
from nexo.journal.postgresql_watch import Watch
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import COMMIT_TURNS, POSTGRESQL_AGAIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from nexo.journal.port import Commit, Committing
    from nexo.journal.postgresql_pipeline import Pipeline, Request, Statement
    from nexo.journal.postgresql_transaction import Lease, Part, Participant
    from nexo.journal.postgresql_watch import Ended

    Job = Callable[[], Any]
    Done = Callable[[Any, BaseException | None], None]
    _Call = tuple[Any, Commit, Done]  # the first: a participant
    _CallPart = tuple[_Call, Part]

_CAN_WATCH = sys.platform != "win32"  # whose event loop watches no sockets of others
_EPOCHS = "SELECT id, epoch FROM shard WHERE id = ANY(%b::integer[])"


class Writer:
    """The runner of the desks of its journals.

    `turns` of the event loop are let go by before a transaction begins: those whose last commit
    has just ended are about to come with the next. Without them the shards of a node would take
    turns instead of going together."""

    def __init__(
        self, connect: Callable[[], Connection], turns: int = COMMIT_TURNS, *more: Statement
    ) -> None:
        self._link = Link(connect, *more)
        self.lease: Lease | None = None  # of a node: all that is written is written under it
        self._turns = turns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nexo-writer")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="nexo-reader")
        self._coming: list[Committing] = []
        self._waiting: list[_Call] = []
        self._is_long = False  # one of them is
        self._is_writing = False  # or about to
        self._sent: tuple[list[_CallPart], float] = [], 0.0  # what is on its way, and since when
        self._round: asyncio.Task[None] | None = None  # which the event loop would forget
        self._untold: dict[Participant, Done] = {}  # of that round
        self.transactions = 0  # that were written

    def soon(self, committing: Committing) -> None:
        """It has something to write. It is asked for that when the next transaction is put
        together: one callback of the event loop, however many shards of a node there are."""
        self._coming.append(committing)
        if not self._is_writing:
            self._begin_soon()

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        """Run a call of a journal, and tell its outcome in the event loop. A commit is written with
        the next transaction."""
        if type(job) is not Writing:  # isinstance of a struct takes as long as the rest of this
            self._read(job, done)
            return
        self._waiting.append((job.journal, job.commit, done))
        if is_long:
            self._is_long = True
        if not self._is_writing:
            self._begin_soon()

    def _read(self, job: Job, done: Done) -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._reads, job).add_done_callback(
            lambda finished: _tell_one(finished, done)
        )

    def close(self) -> None:
        """Let go of everything, once what waits is done. May block."""
        self._thread.shutdown()
        self._reads.shutdown()
        self._link.drop()

    def commit_all(self, jobs: Iterable[Writing]) -> None:
        """All of them in one transaction, or none: for who has the store to itself. May block."""
        transaction = Transaction()
        parts: list[tuple[Participant, Part]] = []
        for job in jobs:
            journal = cast("Participant", job.journal)
            parts.append((journal, journal.put(job.commit, transaction)))
        try:
            self._link.get().run(transaction.requests())
        except postgresql.DivisionByZero as error:
            raise parts[0][0].overtaken() from error
        except psycopg.Error as error:
            self._link.drop()
            raise translate(error, "writing") from error
        for journal, part in parts:
            journal.written(part)

    # -- One round ----------------------------------------------------------------------------

    def _begin_soon(self) -> None:
        self._is_writing = True
        self._count_down(self._turns)

    def _count_down(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._count_down, turns - 1)
        else:
            self._begin()

    def _begin(self) -> None:
        """Everything that waits is one transaction, unless something is wrong with a part."""
        coming, self._coming = iter(self._coming), []
        try:
            for each in coming:
                commit = each.begin_joined()
                if commit is not None:
                    self._waiting.append((each.journal, commit, each.end_joined))
        finally:  # should one of them fail, the others come with the next
            self._coming += coming
            calls, self._waiting = self._waiting, []
            if calls:
                self._write(calls)
            else:
                self._end()

    def _end(self) -> None:
        self._is_writing = False
        if self._coming or self._waiting:
            self._begin_soon()

    def _write(self, calls: list[_Call]) -> None:
        """Send all of them, without waiting for anything."""
        pipeline = self._link.pipeline
        is_long, self._is_long = self._is_long, False
        if pipeline is None or is_long or not _CAN_WATCH:
            self._go_apart(calls, self._write_apart([calls]))
            return
        try:
            drawn = _draw(calls, self.lease)
            if drawn.parts:
                self._send(pipeline, drawn)
        except BaseException as error:
            self._link.drop()  # what it is doing, nobody knows
            self._give_up(calls, error)
            raise
        for (_, _, done), refusal in drawn.refused:
            done(None, refusal)
        if not drawn.parts:
            self._end()

    def _send(self, pipeline: Pipeline, drawn: _Drawn) -> None:
        self._sent = drawn.parts, perf_counter()
        try:
            pipeline.begin(drawn.requests)
            self._link.watch(self._heard)
        except psycopg.Error as error:
            self._go_apart([call for call, _ in drawn.parts], self._again(drawn.parts, error))

    def _heard(self, failure: psycopg.Error | None) -> None:
        """The transaction has ended."""
        (parts, began_s), self._sent = self._sent, ([], 0.0)
        pipeline = self._link.pipeline
        assert pipeline is not None
        error = failure or pipeline.error
        if error is not None:
            self._go_apart([call for call, _ in parts], self._again(parts, error))
            return
        self.transactions += 1
        took_s, untold = perf_counter() - began_s, iter(parts)
        try:
            for (journal, _, done), part in untold:
                journal.written(part)
                done(took_s, None)
        except BaseException as raised:  # whatever it was, nobody may wait for ever
            self._give_up([call for call, _ in untold], raised)
            raise
        self._end()

    def _give_up(self, calls: list[_Call], error: BaseException) -> None:
        for _, _, done in calls:
            done(None, error)
        self._end()

    # -- The same in a thread -----------------------------------------------------------------

    def _go_apart(self, calls: list[_Call], work: Coroutine[None, None, None]) -> None:
        self._untold = {journal: done for journal, _, done in calls}
        self._round = asyncio.get_running_loop().create_task(work)
        self._round.add_done_callback(self._ended_apart)

    def _ended_apart(self, ended: asyncio.Task[None]) -> None:
        untold, self._untold, self._round = self._untold, {}, None
        if ended.cancelled() or ended.exception() is not None:  # what it is doing, nobody knows
            self._link.drop()
        if ended.cancelled():  # with the event loop
            self._is_writing = False
            return
        error = ended.exception()
        if error is not None:  # whatever it was, nobody may wait for ever
            for done in untold.values():
                done(None, error)
        self._end()

    def _tell(self, call: _Call, took_s: float | None, error: NexoError | None) -> None:
        del self._untold[call[0]]
        call[2](took_s, error)

    async def _write_apart(self, groups: list[list[_Call]]) -> None:
        while groups:
            groups += await self._write_together(groups.pop())

    async def _again(self, parts: list[_CallPart], error: psycopg.Error | NexoError) -> None:
        await self._write_apart(await self._failed(parts, error))

    async def _write_together(self, calls: list[_Call]) -> list[list[_Call]]:
        """Write all of them or none; returns what is to be tried again, in groups."""
        began_s = perf_counter()
        lease = self.lease
        drawn: _Drawn = await self._apart(lambda: _draw(calls, lease))
        for call, refusal in drawn.refused:
            self._tell(call, None, refusal)
        if not drawn.parts:
            return []
        try:
            await self._apart(lambda: self._link.get().run(drawn.requests))
        except (psycopg.Error, NexoError) as error:
            return await self._failed(drawn.parts, error)
        self.transactions += 1
        took_s = perf_counter() - began_s
        for call, part in drawn.parts:
            call[0].written(part)
            self._tell(call, took_s, None)
        return []

    async def _apart(self, job: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    # -- Faults -------------------------------------------------------------------------------

    async def _failed(
        self, parts: list[_CallPart], error: psycopg.Error | NexoError
    ) -> list[list[_Call]]:
        """Nothing was written, or nobody knows. Tell those whose fault it is."""
        if isinstance(error, postgresql.DivisionByZero):
            return await self._take_out(parts)
        if isinstance(error, postgresql.UniqueViolation) and len(parts) > 1:
            return [[call] for call, _ in parts]
        if isinstance(error, (postgresql.UniqueViolation, postgresql.DiskFull)):
            for call, _ in parts:
                self._tell(call, None, translate(error, "writing"))
            return []
        if isinstance(error, psycopg.Error):
            self._link.drop()
            error = translate(error, "writing")
        self._stop(parts, error)
        return []

    async def _take_out(self, parts: list[_CallPart]) -> list[list[_Call]]:
        """Those whose epoch was raised by another are no more; the others are tried again."""

        def read() -> dict[int, int]:
            connection = self._link.get().connection
            shards = [part.shard for _, part in parts]
            return dict(connection.execute(_EPOCHS.encode(), (shards,)).fetchall())

        try:
            epochs: dict[int, int] = await self._apart(read)
        except (psycopg.Error, NexoError) as error:
            self._link.drop()
            told = translate(error, "writing") if isinstance(error, psycopg.Error) else error
            self._stop(parts, told)
            return []
        lost = [each for each in parts if epochs.get(each[1].shard) != each[1].epoch]
        if not lost:  # the database is older than the lease: the next renewal tells
            self._stop(parts, NotReady("a commit to PostgreSQL was refused", AWAY_HINT))
            return []
        for call, part in lost:
            self._stop([(call, part)], call[0].overtaken())
        rest = [call for call, part in parts if epochs.get(part.shard) == part.epoch]
        return [rest] if rest else []

    def _stop(self, parts: list[_CallPart], error: NexoError) -> None:
        for call, _ in parts:
            call[0].stop(error)
            self._tell(call, None, error.anew())


class _Drawn(NamedTuple):
    """A transaction that is drawn up, and those who have no part in it."""

    requests: list[Request]
    parts: list[_CallPart]
    refused: list[tuple[_Call, NexoError]]


def _draw(calls: list[_Call], lease: Lease | None) -> _Drawn:
    transaction = Transaction(lease)
    parts: list[_CallPart] = []
    refused: list[tuple[_Call, NexoError]] = []
    for call in calls:
        try:
            parts.append((call, call[0].put(call[1], transaction)))
        except NexoError as error:
            refused.append((call, error))
    return _Drawn(transaction.requests(), parts, refused)


def _tell_one(finished: asyncio.Future[Any], done: Done) -> None:
    if finished.cancelled():
        return
    error = finished.exception()
    done(None if error is not None else finished.result(), error)


class Link:
    """A connection that is made when it is needed."""

    def __init__(self, connect: Callable[[], Connection], *more: Statement) -> None:
        self._connect, self._more = connect, more
        self._failed: tuple[float, NexoError] | None = None
        self._watch: Watch | None = None
        self.pipeline: Pipeline | None = None

    def watch(self, ended: Ended) -> None:
        """Tell the end of the transaction that has just begun, in the event loop."""
        assert self.pipeline is not None
        if self._watch is None or not self._watch.is_of(asyncio.get_running_loop()):
            self._forget()
            self._watch = Watch(self.pipeline)
        self._watch.wait(ended)

    def get(self) -> Pipeline:
        """It may block."""
        if self.pipeline is None:
            if self._failed is not None and monotonic() < self._failed[0]:
                raise self._failed[1].anew()  # one of many shards has just tried
            try:
                self.pipeline = pipeline_on(self._connect(), *self._more)
            except NexoError as error:
                self._failed = monotonic() + POSTGRESQL_AGAIN_S, error.anew()
                raise
        return self.pipeline

    def drop(self) -> None:
        self._forget()
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            abandon(pipeline.connection)

    def _forget(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
