"""A connection that writes: one transaction at a time, with parts of one journal or of many.

A transaction is sent by the event loop itself, which then watches the socket. A thread is used for
what may block (to connect, to look who was overtaken), for commits that take their time, and for
what is tried again.

If the fence of a shard does not hold, its part is taken out and the rest is written. If a part
cannot be stored, they are tried one by one, so that it fails alone.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors as postgresql

from nexo.journal.postgresql_connection import AWAY_HINT, Connection, abandon, translate
from nexo.journal.postgresql_transaction import Transaction, pipeline_on
from nexo.journal.postgresql_watch import Watch
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import POSTGRESQL_AGAIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from nexo.journal.port import Commit
    from nexo.journal.postgresql_pipeline import Pipeline, Request, Statement
    from nexo.journal.postgresql_transaction import Lease, Part, Participant
    from nexo.journal.postgresql_watch import Ended

    Done = Callable[[Any, BaseException | None], None]
    Call = tuple[Any, Commit, Done]  # the first: a participant
    _CallPart = tuple[Call, Part]

_CAN_WATCH = sys.platform != "win32"  # whose event loop watches no sockets of others
_EPOCHS = "SELECT id, epoch FROM shard WHERE id = ANY(%b::integer[])"


class Track:
    """`news` is called when the track is free again, with the seconds that the event loop and the
    server took, if no thread had to see to it; and when one has to."""

    def __init__(self, link: Link, threads: Executor, news: Callable[[float | None], None]) -> None:
        self.link = link
        self._threads = threads
        self._news = news
        self.is_free = True
        self.is_apart = False  # a thread sees to what is written: it may take its time
        self._sent: tuple[list[_CallPart], float] = [], 0.0  # what is on its way, and since when
        self._round: asyncio.Task[None] | None = None  # which the event loop would forget
        self._untold: dict[Participant, Done] = {}  # of that round
        self._lease: Lease | None = None
        self.transactions = 0  # that were written

    def write(self, calls: list[Call], lease: Lease | None, is_long: bool) -> None:
        """Write all of them at once, without waiting for anything: each is told how it ended.
        `lease`: of a node, under which it is written."""
        self.is_free, self._lease = False, lease
        pipeline = self.link.pipeline
        if pipeline is None or is_long or not _CAN_WATCH:
            self._go_apart(calls, self._write_apart([calls]))
            return
        try:
            drawn = _draw(calls, lease)
            if drawn.parts:
                self._send(pipeline, drawn)
        except BaseException as error:
            self.link.drop()  # what it is doing, nobody knows
            self._give_up(calls, error)
            raise
        for (_, _, done), refusal in drawn.refused:
            done(None, refusal)
        if not drawn.parts:
            self._end()

    def _end(self, took_s: float | None = None) -> None:
        self.is_free, self.is_apart = True, False
        self._news(took_s)

    def _send(self, pipeline: Pipeline, drawn: _Drawn) -> None:
        self._sent = drawn.parts, perf_counter()
        try:
            pipeline.begin(drawn.requests)
            self.link.watch(self._heard)
        except psycopg.Error as error:
            self._go_apart([call for call, _ in drawn.parts], self._again(drawn.parts, error))

    def _heard(self, failure: psycopg.Error | None) -> None:
        """The transaction has ended."""
        (parts, began_s), self._sent = self._sent, ([], 0.0)
        pipeline = self.link.pipeline
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
        self._end(took_s)

    def _give_up(self, calls: list[Call], error: BaseException) -> None:
        for _, _, done in calls:
            done(None, error)
        self._end()

    # -- The same in a thread -----------------------------------------------------------------

    def _go_apart(self, calls: list[Call], work: Coroutine[None, None, None]) -> None:
        self.is_apart = True
        self._untold = {journal: done for journal, _, done in calls}
        self._round = asyncio.get_running_loop().create_task(work)
        self._round.add_done_callback(self._ended_apart)
        self._news(None)

    def _ended_apart(self, ended: asyncio.Task[None]) -> None:
        untold, self._untold, self._round = self._untold, {}, None
        if ended.cancelled() or ended.exception() is not None:  # what it is doing, nobody knows
            self.link.drop()
        if ended.cancelled():  # with the event loop
            self.is_free, self.is_apart = True, False
            return
        error = ended.exception()
        if error is not None:  # whatever it was, nobody may wait for ever
            for done in untold.values():
                done(None, error)
        self._end()

    def _tell(self, call: Call, took_s: float | None, error: NexoError | None) -> None:
        del self._untold[call[0]]
        call[2](took_s, error)

    async def _write_apart(self, groups: list[list[Call]]) -> None:
        while groups:
            groups += await self._write_together(groups.pop())

    async def _again(self, parts: list[_CallPart], error: psycopg.Error | NexoError) -> None:
        await self._write_apart(await self._failed(parts, error))

    async def _write_together(self, calls: list[Call]) -> list[list[Call]]:
        """Write all of them or none; returns what is to be tried again, in groups."""
        began_s = perf_counter()
        lease = self._lease
        drawn: _Drawn = await self._apart(lambda: _draw(calls, lease))
        for call, refusal in drawn.refused:
            self._tell(call, None, refusal)
        if not drawn.parts:
            return []
        try:
            await self._apart(lambda: self.link.get().run(drawn.requests))
        except (psycopg.Error, NexoError) as error:
            return await self._failed(drawn.parts, error)
        self.transactions += 1
        took_s = perf_counter() - began_s
        for call, part in drawn.parts:
            call[0].written(part)
            self._tell(call, took_s, None)
        return []

    async def _apart(self, job: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    # -- Faults -------------------------------------------------------------------------------

    async def _failed(
        self, parts: list[_CallPart], error: psycopg.Error | NexoError
    ) -> list[list[Call]]:
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
            self.link.drop()
            error = translate(error, "writing")
        self._stop(parts, error)
        return []

    async def _take_out(self, parts: list[_CallPart]) -> list[list[Call]]:
        """Those whose epoch was raised by another are no more; the others are tried again."""

        def read() -> dict[int, int]:
            connection = self.link.get().connection
            shards = [part.shard for _, part in parts]
            return dict(connection.execute(_EPOCHS.encode(), (shards,)).fetchall())

        try:
            epochs: dict[int, int] = await self._apart(read)
        except (psycopg.Error, NexoError) as error:
            self.link.drop()
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
    refused: list[tuple[Call, NexoError]]


def _draw(calls: list[Call], lease: Lease | None) -> _Drawn:
    transaction = Transaction(lease)
    parts: list[_CallPart] = []
    refused: list[tuple[Call, NexoError]] = []
    for call in calls:
        try:
            parts.append((call, call[0].put(call[1], transaction)))
        except NexoError as error:
            refused.append((call, error))
    return _Drawn(transaction.requests(), parts, refused)


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
