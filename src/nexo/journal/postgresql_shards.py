"""The journals of many shards in one PostgreSQL, for one node: they share two connections.

One thread writes. What waited while one transaction ran is the next one, of all shards together,
in as many statements as a commit of one has; each shard's part is fenced by its own epoch. If a
fence does not hold, that shard's part is taken out and the rest is written. Another thread opens
shards and reads, so that a shard that is being loaded keeps nobody from writing.

Only who owns a shard, by the table `owner`, may open it; opening raises its epoch.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Writing
from nexo.journal.postgresql import Draft, PostgresqlJournal, columns_of
from nexo.journal.postgresql_connection import (
    AWAY_HINT,
    Connection,
    abandon,
    connect_node,
    translate,
)
from nexo.journal.tables import ranges
from nexo.vocabulary.errors import Fenced, InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import JOINING_TURNS, POSTGRESQL_AGAIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nexo.journal.port import Commit

    Job = Callable[[], Any]
    Outcome = tuple[Any, BaseException | None]
    Done = Callable[[Any, BaseException | None], None]

# As for one shard, but with its number as a column. See there for the division by zero.
_FENCE = """
    SELECT 1 / (count(*) = cardinality(%b::integer[]))::integer FROM (
        SELECT 1 FROM shard JOIN unnest(%b::integer[], %b::bigint[]) AS mine(id, epoch)
        USING (id, epoch) FOR SHARE OF shard) AS held
"""
_INSERT_ROWS = """
    INSERT INTO payload SELECT * FROM unnest(%b::integer[],
        %b::bigint[], %b::integer[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[])
"""
_INSERT_RECORDS = """
    INSERT INTO record SELECT * FROM unnest(
        %b::integer[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
"""
_REPLACE_SNAPSHOTS = """
    INSERT INTO snapshot SELECT * FROM unnest(
        %b::integer[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
    ON CONFLICT (shard, owner) DO UPDATE
    SET number = excluded.number, checksum = excluded.checksum, data = excluded.data
"""
_DELETE_ROWS = """
    DELETE FROM payload USING unnest(%b::integer[], %b::bigint[], %b::bigint[])
        AS gone(shard, first, last)
    WHERE payload.shard = gone.shard AND row BETWEEN gone.first AND gone.last
"""
_DELETE_RECORDS = """
    DELETE FROM record USING unnest(%b::integer[], %b::bigint[]) AS gone(shard, owner)
    WHERE record.shard = gone.shard AND record.owner = gone.owner
"""
_DELETE_SNAPSHOTS = """
    DELETE FROM snapshot USING unnest(%b::integer[], %b::bigint[]) AS gone(shard, owner)
    WHERE snapshot.shard = gone.shard AND snapshot.owner = gone.owner
"""
_KEEP_LAST_ROWS = """
    UPDATE shard SET last_row = kept.row
    FROM unnest(%b::integer[], %b::bigint[]) AS kept(id, row) WHERE shard.id = kept.id
"""
_EPOCHS = "SELECT id, epoch FROM shard WHERE id = ANY(%b::integer[])"
_ROWS = "SELECT row FROM payload WHERE shard = %b"
_RAISE_EPOCH = """
    UPDATE shard SET epoch = epoch + 1 WHERE id = %b AND EXISTS (
        SELECT FROM owner JOIN node ON node.name = owner.node
        WHERE owner.shard = %b AND node.name = %b AND node.run = %b)
    RETURNING epoch, last_row
"""


class Shards:
    """The store of a node: `node` is its name, `run` the number that it drew at its start."""

    def __init__(self, url: str, node: str, run: int, *, schema: str = "nexo") -> None:
        self.node, self.run_number = node, run
        self._url = url
        self._schema = schema
        self._writes = ThreadPoolExecutor(1, thread_name_prefix="nexo-writer")
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="nexo-reader")
        self._waiting: list[tuple[Writing, Done]] = []
        self._is_writing = False
        self._writer = _Lazy(url, schema)
        self.reader = _Lazy(url, schema)
        self.transactions = 0  # that were written

    def journal(self, shard: int) -> ShardJournal:
        return ShardJournal(self, self._url, shard, self._schema)

    # -- The runner of the desks of all shards ------------------------------------------------

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        """Run a call of one shard's journal, and tell its outcome in the event loop."""
        if not isinstance(job, Writing):
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._reads, job).add_done_callback(
                lambda finished: _tell_one(finished, done)
            )
            return
        self._waiting.append((job, done))
        if not self._is_writing:
            self._is_writing = True
            self._write_soon()

    def close(self) -> None:
        """One shard needs it no more; the others may."""

    def end(self) -> None:
        """Let go of everything, once what waits is done. May block."""
        self._writes.shutdown()
        self._reads.shutdown()
        self._writer.drop()
        self.reader.drop()

    def commit_all(self, jobs: Sequence[Writing]) -> None:
        """All of them in one transaction, or none: for who has the store to itself. May block."""
        parts = []
        for job in jobs:
            assert isinstance(job.journal, ShardJournal)
            parts.append(job.journal.part(job))
        faults, is_refused = self._try(parts, False)
        for fault in faults.values():
            raise fault
        if is_refused:
            raise InvalidArgument("a row of these numbers is stored already")
        for part in parts:
            part.journal.written(part)

    def _write_soon(self, turns: int = JOINING_TURNS) -> None:
        """Begin some turns of the loop later. Those whose last commit has just ended are about to
        come with the next: without them the shards would take turns instead of going together."""
        if turns:
            asyncio.get_running_loop().call_soon(self._write_soon, turns - 1)
        else:
            self._write_next()

    def _write_next(self) -> None:
        """Everything that waits is one transaction."""
        calls, self._waiting = self._waiting, []
        jobs = [job for job, _ in calls]
        loop = asyncio.get_running_loop()

        def finished(future: asyncio.Future[list[Outcome]]) -> None:
            self._is_writing = False
            if future.cancelled():
                return
            error = future.exception()
            outcomes = [(None, error)] * len(calls) if error is not None else future.result()
            for (_, done), (result, fault) in zip(calls, outcomes, strict=True):
                done(result, fault)
            if self._waiting and not self._is_writing:
                self._is_writing = True
                self._write_soon()

        loop.run_in_executor(self._writes, self._write, jobs).add_done_callback(finished)

    # -- Writing, in the thread that writes ---------------------------------------------------

    def _write(self, jobs: Sequence[Writing]) -> list[Outcome]:
        """All of them in one transaction; each has its outcome."""
        began_s = perf_counter()
        told: dict[Writing, Outcome] = {}
        parts: dict[ShardJournal, _Part] = {}
        for job in jobs:
            assert isinstance(job.journal, ShardJournal)
            try:
                parts[job.journal] = job.journal.part(job)
            except NexoError as error:
                told[job] = None, error
        alone = False
        while parts:
            tried = [next(iter(parts.values()))] if alone else list(parts.values())
            faults, alone = self._try(tried, alone)
            for part in tried:
                if part.journal in faults:
                    told[part.job] = None, faults[part.journal]
                    del parts[part.journal]
                elif not faults and (not alone or len(tried) == 1):
                    part.journal.written(part)
                    told[part.job] = perf_counter() - began_s, None
                    del parts[part.journal]
        return [told[job] for job in jobs]

    def _try(self, parts: list[_Part], alone: bool) -> tuple[dict[ShardJournal, NexoError], bool]:
        """Write all of them. If something is wrong nothing was written: with which it is, and
        whether the others are to be tried one by one."""
        try:
            connection = self._writer.get()
            with connection.pipeline(), connection.cursor() as cursor:
                cursor.execute("BEGIN")
                _send(cursor, parts)
                cursor.execute("COMMIT")
        except NexoError as error:  # there is no connection, so nothing was sent
            return _stopped(parts, error), alone
        except psycopg.Error as error:
            return self._failed(parts, _cause_of(error), alone)
        self.transactions += 1
        return {}, alone

    def _failed(
        self, parts: list[_Part], error: psycopg.Error, alone: bool
    ) -> tuple[dict[ShardJournal, NexoError], bool]:
        if isinstance(error, postgresql.DivisionByZero) and self._writer.roll_back():
            return self._lost(parts), alone
        if isinstance(error, postgresql.DiskFull) and self._writer.roll_back():
            return {part.journal: translate(error, "writing") for part in parts}, alone
        if isinstance(error, postgresql.UniqueViolation) and self._writer.roll_back():
            if len(parts) > 1:
                return {}, True
            told = InvalidArgument("a row of this number is stored already")
            return {parts[0].journal: told}, alone
        self._writer.drop()
        return _stopped(parts, translate(error, "writing")), alone

    def _lost(self, parts: list[_Part]) -> dict[ShardJournal, NexoError]:
        """Those whose epoch was raised by another."""
        try:
            shards = [part.journal.shard for part in parts]
            rows = self._writer.get().execute(_EPOCHS.encode(), (shards,)).fetchall()
        except psycopg.Error as error:
            self._writer.drop()
            return _stopped(parts, translate(error, "writing"))
        epochs: dict[int, int] = dict(rows)
        lost = [part for part in parts if epochs.get(part.journal.shard) != part.epoch]
        if not lost:  # it cannot be; but to try for ever would be worse
            return _stopped(parts, NotReady("a commit to PostgreSQL was refused", AWAY_HINT))
        found: dict[ShardJournal, NexoError] = {}
        for part in lost:
            found |= _stopped([part], _fenced(part.journal.shard))
        return found


def _tell_one(finished: asyncio.Future[Any], done: Done) -> None:
    if finished.cancelled():
        return
    error = finished.exception()
    done(None if error is not None else finished.result(), error)


def _stopped(parts: list[_Part], error: NexoError) -> dict[ShardJournal, NexoError]:
    for part in parts:
        part.journal.stop(error)
    return {part.journal: error.anew() for part in parts}


class ShardJournal(PostgresqlJournal):
    """The journal of one shard. Between `open` and a fault it belongs to this node."""

    def __init__(self, shards: Shards, url: str, shard: int, schema: str) -> None:
        super().__init__(url, shard=shard, schema=schema)
        self._shards = shards
        self._is_open = False

    @property
    def shard(self) -> int:
        return self._shard

    def open(self) -> int:
        self.close()
        try:
            self._open()
        except NotReady:  # a connection that was not used for long may have ended meanwhile
            self._open()
        self._is_open, self._fault = True, None
        return self._epoch

    def _open(self) -> None:
        shards, shard = self._shards, self._shard
        connection = shards.reader.get()
        try:
            raised = connection.execute(
                _RAISE_EPOCH.encode(), (shard, shard, shards.node, shards.run_number)
            ).fetchone()
            if raised is None:
                raise _fenced(shard)
            self._read(connection, *raised)
        except psycopg.Error as error:
            raise self._failed(error, "opening") from error

    def close(self) -> None:
        self._is_open = False
        self._found = None
        self._numbers.clear()

    def rows(self) -> list[int]:
        """The numbers of all rows that are stored, also of those that nobody refers to."""
        found = self._open_connection().execute(_ROWS.encode(), (self._shard,)).fetchall()
        return [row for (row,) in found]

    def tidy(self) -> bool:
        """Whether the shard is still ours, the lease of the node tells."""
        self._check_open()
        return False

    def commit(self, commit: Commit) -> float:
        """Alone, in the thread that reads: a commit of many goes through `Shards`."""
        began_s = perf_counter()
        part = self.part(Writing(self, commit))
        connection = self._open_connection()
        try:
            with connection.pipeline(), connection.cursor() as cursor:
                cursor.execute("BEGIN")
                _send(cursor, [part])
                cursor.execute("COMMIT")
        except psycopg.Error as error:
            cause = _cause_of(error)
            is_usable = self._shards.reader.roll_back()
            if isinstance(cause, postgresql.UniqueViolation) and is_usable:
                raise InvalidArgument("a row of this number is stored already") from error
            found = translate(cause, "writing")
            if not (isinstance(cause, postgresql.DiskFull) and is_usable):
                self.stop(found)
            raise found from error
        self.written(part)
        return perf_counter() - began_s

    # -- For the thread that writes -----------------------------------------------------------

    def part(self, job: Writing) -> _Part:
        """Its part of a transaction. Raises if it is closed."""
        self._check_open()
        draft = Draft(job.commit, self._numbers, self._last_row)
        return _Part(self, self._epoch, job, draft)

    def written(self, part: _Part) -> None:
        self._found = None
        self._last_row = part.draft.last_row
        self._numbers.update(part.draft.numbers)
        for owner in part.job.commit.dropped_owners:
            self._numbers.pop(owner, None)

    def stop(self, fault: NexoError) -> None:
        """It is closed until it is opened again."""
        self._fault = fault.anew()
        self._is_open = False
        self._found = None

    def _check_open(self) -> None:
        if not self._is_open:
            fault = self._fault or NotReady("the shard is not open", "call open() first")
            raise fault.anew()

    def _open_connection(self) -> Connection:
        self._check_open()
        return self._shards.reader.get()

    def _failed(self, error: psycopg.Error, doing: str) -> NexoError:
        found = translate(_cause_of(error), doing)
        self._shards.reader.drop()
        self.stop(found)
        return found


class _Part(NamedTuple):
    """What one shard has in a transaction."""

    journal: ShardJournal
    epoch: int
    job: Writing
    draft: Draft


def _send(cursor: psycopg.Cursor[tuple[Any, ...]], parts: list[_Part]) -> None:
    """The statements of a transaction. One shard's rows stand behind another's."""
    shards = [part.journal.shard for part in parts]
    cursor.execute(_FENCE, (shards, shards, [part.epoch for part in parts]))
    drafts = [(part.journal.shard, part.draft) for part in parts]
    rows = [(shard, *row) for shard, draft in drafts for row in draft.rows]
    snapshots = [(shard, *row) for shard, draft in drafts for row in draft.snapshots.values()]
    records = [(shard, *row) for shard, draft in drafts for row in draft.records]
    gone = [(shard, *bounds) for shard, draft in drafts for bounds in ranges(draft.dropped)]
    kept = [(shard, draft.last_row) for shard, draft in drafts if draft.keeps_last_row]
    owners = [(shard, owner) for shard, draft in drafts for owner in draft.dropped_owners]
    for statement, values in (
        (_INSERT_ROWS, rows),
        (_DELETE_RECORDS, [row[:2] for row in snapshots]),
        (_REPLACE_SNAPSHOTS, snapshots),
        (_INSERT_RECORDS, records),
        (_DELETE_ROWS, gone),
        (_KEEP_LAST_ROWS, kept),
        (_DELETE_RECORDS, owners),
        (_DELETE_SNAPSHOTS, owners),
    ):
        if values:
            cursor.execute(statement, columns_of(values))


class _Lazy:
    """A connection that is made when it is needed. Only one thread uses it."""

    def __init__(self, url: str, schema: str) -> None:
        self._given = url, schema
        self._connection: Connection | None = None
        self._failed: tuple[float, NexoError] | None = None

    def get(self) -> Connection:
        if self._connection is None:
            if self._failed is not None and monotonic() < self._failed[0]:
                raise self._failed[1].anew()  # one of many shards has just tried
            try:
                self._connection = connect_node(*self._given)
            except NexoError as error:
                self._failed = monotonic() + POSTGRESQL_AGAIN_S, error.anew()
                raise
        return self._connection

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection)

    def roll_back(self) -> bool:
        """Whether it can be used for another transaction."""
        try:
            self.get().execute("ROLLBACK")
        except (psycopg.Error, NexoError):
            self.drop()
            return False
        return True


def _cause_of(error: psycopg.Error) -> psycopg.Error:
    """What aborted a pipeline."""
    if isinstance(error, psycopg.errors.PipelineAborted):
        return error.__context__ if isinstance(error.__context__, psycopg.Error) else error
    return error


def _fenced(shard: int) -> Fenced:
    return Fenced(f"shard {shard} belongs to another node", "try again: its owner is asked")
