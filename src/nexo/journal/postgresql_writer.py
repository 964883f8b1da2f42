"""Who writes to PostgreSQL, for one journal or for many: what waited while one transaction ran is
the next one, of all of them together.

A transaction is sent by the event loop itself, which then watches the socket. A thread is used for
what may block (to connect, to look who was overtaken) and for commits that take their time.
Another thread reads: a shard that is being loaded keeps nobody from writing.

If the fence of a shard does not hold, its part is taken out and the rest is written. If a part
cannot be stored, they are tried one by one, so that it fails alone.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Writing
from nexo.journal.postgresql_connection import AWAY_HINT, Connection, abandon, translate
from nexo.journal.postgresql_transaction import Transaction, pipeline_on
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import POSTGRESQL_AGAIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.journal.postgresql_pipeline import Pipeline, Request, Statement
    from nexo.journal.postgresql_transaction import Lease, Part, Participant

    Job = Callable[[], Any]
    Done = Callable[[Any, BaseException | None], None]
    _CallPart = tuple["_Call", Part]

_CAN_WATCH = sys.platform != "win32"  # whose event loop watches no sockets of others
_EPOCHS = "SELECT id, epoch FROM shard WHERE id = ANY(%b::integer[])"


class _Call:
    """A commit that waits, and who is told of its end."""

    __slots__ = ("commit", "done", "is_long", "is_told", "journal")

    def __init__(self, job: Writing, done: Done, is_long: bool) -> None:
        self.journal = cast("Participant", job.journal)
        self.commit = job.commit
        self.done = done
        self.is_long = is_long
        self.is_told = False

    def tell(self, took_s: float | None, error: NexoError | None) -> None:
        self.is_told = True
        self.done(took_s, error)


class Writer:
    """The runner of the desks of its journals.

    `turns` of the event loop are let go by before a transaction begins: those whose last commit
    has just ended are about to come with the next. Without them the shards of a node would take
    turns instead of going together."""

    def __init__(self, connect: Callable[[], Connection], turns: int = 0, *more: Statement) -> None:
        self._link = Link(connect, *more)
        self.lease: Lease | None = None  # of a node: all that is written is written under it
        self._turns = turns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nexo-writer")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="nexo-reader")
        self._waiting: list[_Call] = []
        self._calls: list[_Call] = []  # of the round under way
        self._round: asyncio.Task[None] | None = None  # which the event loop would forget
        self._is_writing = False
        self.transactions = 0  # that were written

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        """Run a call of a journal, and tell its outcome in the event loop. A commit is written with
        the next transaction."""
        if type(job) is not Writing:  # isinstance of a struct takes as long as the rest of this
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._reads, job).add_done_callback(
                lambda finished: _tell_one(finished, done)
            )
            return
        self._waiting.append(_Call(job, done, is_long))
        if not self._is_writing:
            self._is_writing = True
            self._begin_soon(self._turns)

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

    def _begin_soon(self, turns: int) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._begin_soon, turns - 1)
        else:
            self._round = loop.create_task(self._write())
            self._round.add_done_callback(self._ended)

    def _ended(self, ended: asyncio.Task[None]) -> None:
        self._round, self._is_writing = None, False
        if ended.cancelled() or ended.exception() is not None:  # what it is doing, nobody knows
            self._link.drop()
        if ended.cancelled():  # with the event loop
            return
        error = ended.exception()
        if error is not None:  # whatever it was, nobody may wait for ever
            for call in self._calls:
                if not call.is_told:
                    call.done(None, error)
        if self._waiting and not self._is_writing:
            self._is_writing = True
            self._begin_soon(self._turns)

    # -- One round ----------------------------------------------------------------------------

    async def _write(self) -> None:
        """Everything that waits is one transaction, unless something is wrong with a part."""
        self._calls, self._waiting = self._waiting, []
        groups = [self._calls]
        while groups:
            groups += await self._write_together(groups.pop())

    async def _write_together(self, calls: list[_Call]) -> list[list[_Call]]:
        """Write all of them or none; returns what is to be tried again, in groups."""
        began_s = perf_counter()
        is_long = any(call.is_long for call in calls)
        lease = self.lease
        drawn = await self._apart(lambda: _draw(calls, lease)) if is_long else _draw(calls, lease)
        for call, refusal in drawn.refused:
            call.tell(None, refusal)
        if not drawn.parts:
            return []
        error = await self._try(drawn.requests, is_long)
        if error is not None:
            return await self._failed(drawn.parts, error)
        self.transactions += 1
        took_s = perf_counter() - began_s
        for call, part in drawn.parts:
            call.journal.written(part)
            call.is_told = True
            call.done(took_s, None)
        return []

    async def _try(
        self, requests: list[Request], is_long: bool
    ) -> psycopg.Error | NexoError | None:
        """Send a transaction and wait for its end; why nothing of it is stored."""
        try:
            pipeline = self._link.pipeline
            if pipeline is None or is_long or not _CAN_WATCH:
                await self._apart(lambda: self._link.get().run(requests))
                return None
            pipeline.begin(requests)
            await _watch(pipeline)
        except (psycopg.Error, NexoError) as error:
            return error
        return pipeline.error

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
                call.tell(None, translate(error, "writing"))
            return []
        if isinstance(error, psycopg.Error):
            self._link.drop()
            error = translate(error, "writing")
        _stop(parts, error)
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
            _stop(parts, translate(error, "writing") if isinstance(error, psycopg.Error) else error)
            return []
        lost = [each for each in parts if epochs.get(each[1].shard) != each[1].epoch]
        if not lost:  # the database is older than the lease: the next renewal tells
            _stop(parts, NotReady("a commit to PostgreSQL was refused", AWAY_HINT))
            return []
        for call, part in lost:
            _stop([(call, part)], call.journal.overtaken())
        rest = [call for call, part in parts if epochs.get(part.shard) == part.epoch]
        return [rest] if rest else []


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
            parts.append((call, call.journal.put(call.commit, transaction)))
        except NexoError as error:
            refused.append((call, error))
    return _Drawn(transaction.requests(), parts, refused)


def _stop(parts: list[_CallPart], error: NexoError) -> None:
    for call, _ in parts:
        call.journal.stop(error)
        call.tell(None, error.anew())


def _tell_one(finished: asyncio.Future[Any], done: Done) -> None:
    if finished.cancelled():
        return
    error = finished.exception()
    done(None if error is not None else finished.result(), error)


async def _watch(pipeline: Pipeline) -> None:
    """Until the transaction has ended. What is watched is a descriptor of our own: libpq closes its
    own when the server is gone, and the next connection of a client may have the same number before
    the event loop has forgotten it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    socket, is_writing = os.dup(pipeline.socket), not pipeline.is_sent

    def ready() -> None:
        try:
            is_over = pipeline.advance()
            # After an error on a socket uvloop tells no more of it, and what ends the connection
            # may stand behind what has just been read.
            while not is_over and _is_readable(socket):
                is_over = pipeline.advance()
        except psycopg.Error as error:
            if not ended.done():
                ended.set_exception(error)
        else:
            if is_over and not ended.done():
                ended.set_result(None)
            elif pipeline.is_sent and is_writing:
                stop_writing()

    def stop_writing() -> None:
        nonlocal is_writing
        is_writing = False
        loop.remove_writer(socket)

    loop.add_reader(socket, ready)
    if is_writing:
        loop.add_writer(socket, ready)
    try:
        await ended
    finally:
        loop.remove_reader(socket)
        if is_writing:
            loop.remove_writer(socket)
        os.close(socket)


def _is_readable(socket: int) -> bool:
    """Also if it has failed, or was closed by the other side."""
    found = select.poll()
    found.register(socket, select.POLLIN)
    return bool(found.poll(0))


class Link:
    """A connection that is made when it is needed."""

    def __init__(self, connect: Callable[[], Connection], *more: Statement) -> None:
        self._connect, self._more = connect, more
        self._failed: tuple[float, NexoError] | None = None
        self.pipeline: Pipeline | None = None

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
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            abandon(pipeline.connection)
