"""The journal in PostgreSQL: one transaction a commit, sent whole in one round trip.

The tables carry the number of a *shard*, the state of one engine; a broker alone is shard 0. Who
opens a shard raises its epoch, and every commit checks in its own transaction that the epoch is
still the one it was opened with. The check holds the row of the shard until the commit has ended,
so that whoever raises the epoch waits for it, and finds what it wrote. One who was overtaken and
does not know it can therefore write nothing: its commit is refused with `Fenced`.

A connection that breaks while a commit is on its way leaves an outcome that nobody knows. The
journal then closes, as after a failed fsync, and the engine loads everything anew.

Opening reads the state of all owners in two statements and keeps it until the first commit: asking
for a hundred thousand owners one by one would be as many round trips.
"""

from __future__ import annotations

from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Commit, Stored, Usage
from nexo.journal.postgresql_connection import (
    AWAY_HINT,
    Connection,
    abandon,
    connect,
    shown_url,
    translate,
)
from nexo.journal.postgresql_transaction import Part, Transaction, fence_of, pipeline_on
from nexo.journal.rows import CORRUPT_HINT, decode_row, record_checksum, snapshot_checksum
from nexo.vocabulary.errors import DataCorrupt, Fenced, InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import POSTGRESQL_LOCK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.journal.postgresql_pipeline import Pipeline, Request
    from nexo.vocabulary.batch import Batch

_CLOSED = "the journal in PostgreSQL is not open"
_RAISE_EPOCH = """
    INSERT INTO shard VALUES (%b, 1, 0)
    ON CONFLICT (id) DO UPDATE SET epoch = shard.epoch + 1 RETURNING epoch, last_row
"""
_HIGHEST_ROW = "SELECT max(row) FROM payload WHERE shard = %b"
_SELECT_ROWS = """
    SELECT row, count, checksum, offsets, extras, payload FROM payload
    WHERE shard = %b AND row = ANY(%b::bigint[])
"""
_SELECT_SNAPSHOTS = "SELECT owner, number, checksum, data FROM snapshot WHERE shard = %b"
_SELECT_RECORDS = """
    SELECT owner, number, checksum, data FROM record WHERE shard = %b ORDER BY owner, number
"""
_LOCK = "SELECT pg_try_advisory_lock('shard'::regclass::oid::integer, %b)"
_HOLDER = """
    SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND classid = 'shard'::regclass AND objid = %b AND granted
"""
_USAGE = """
    SELECT sum(pg_total_relation_size(name::regclass))
    FROM unnest(ARRAY['payload', 'record', 'snapshot', 'shard']) AS name
"""


class PostgresqlJournal:
    """`url` as libpq reads it; `schema` is where the tables are."""

    def __init__(self, url: str, *, shard: int = 0, schema: str = "nexo") -> None:
        self._url = url
        self._shard = shard
        self._schema = schema
        self._pipeline: Pipeline | None = None
        self._fault: NexoError | None = None  # why it is closed, if nobody asked for it
        self._epoch = 0
        self._last_row = 0
        self._numbers: dict[int, int] = {}  # the last record number of each owner
        self._found: dict[int, Stored] | None = None  # all owners, until the first commit

    # -- Opening and closing ------------------------------------------------------------------

    def open(self) -> int:
        self.close()
        connection = connect(self._url, self._schema)
        try:
            self._check_alone(connection)
            self._take(connection)
            epoch, last_row = self._one(connection, _RAISE_EPOCH, self._shard)
            self._read(connection, int(epoch), last_row)
        except BaseException as error:
            abandon(connection)
            if isinstance(error, psycopg.Error):
                raise translate(error, "opening") from error
            raise
        self._pipeline, self._fault = pipeline_on(connection), None
        return self._epoch

    def _read(self, connection: Connection, epoch: int, last_row: int) -> None:
        """What the shard holds. Nobody else can write to it any more: its epoch was raised."""
        (highest,) = self._one(connection, _HIGHEST_ROW, self._shard)
        self._found = self._read_owners(connection)
        self._epoch, self._last_row = epoch, max(last_row, highest or 0)

    def _check_alone(self, connection: Connection) -> None:
        if self._one(connection, "SELECT to_regclass('cluster')")[0] is not None:
            raise InvalidArgument(
                f"the database at {shown_url(self._url)} holds a cluster",
                "start a node of it with --node NAME, or give this broker a database of its own",
            )

    def close(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        self._found = None
        self._numbers.clear()
        if pipeline is not None:
            abandon(pipeline.connection)

    def _take(self, connection: Connection) -> None:
        """A broker that runs is not to be overtaken by one that was started by mistake. The server
        needs a moment to notice that one was killed."""
        until_s = perf_counter() + POSTGRESQL_LOCK_S
        while not self._one(connection, _LOCK, self._shard)[0]:
            if perf_counter() > until_s:
                holders = connection.execute(_HOLDER, (self._shard,)).fetchall()
                who = holders[0][0] if holders else "another broker"
                raise NotReady(
                    f"the journal at {shown_url(self._url)} is in use by {who}",
                    "stop that broker, or give this one a database of its own",
                )
            sleep(0.05)

    def _read_owners(self, connection: Connection) -> dict[int, Stored]:
        """Everything but payloads, with every checksum checked."""
        found: dict[int, Stored] = {}
        self._numbers.clear()
        for owner, number, checksum, data in connection.execute(
            _SELECT_SNAPSHOTS, (self._shard,), binary=True
        ):
            if checksum != snapshot_checksum(owner, number, data):
                raise _corrupt(f"table snapshot, owner {owner}: the checksum does not match")
            found[owner] = Stored(data, [])
            self._numbers[owner] = number
        for owner, number, checksum, data in connection.execute(
            _SELECT_RECORDS, (self._shard,), binary=True
        ):
            if checksum != record_checksum(owner, number, data):
                raise _corrupt(f"table record, owner {owner}, number {number}: checksum")
            last = self._numbers.get(owner, 0)
            if number != last + 1:
                raise _corrupt(f"table record, owner {owner}: {number} follows {last}")
            found.setdefault(owner, Stored(None, [])).records.append(data)
            self._numbers[owner] = number
        return found

    # -- Reading ------------------------------------------------------------------------------

    def owners(self) -> list[int]:
        return sorted(self._stored())

    def load(self, owner: int) -> Stored:
        return self._stored().get(owner, Stored(None, []))

    def last_row(self) -> int:
        self._open_connection()
        return self._last_row

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        connection = self._open_connection()
        try:
            found = {
                columns[0]: decode_row(columns)
                for columns in connection.execute(
                    _SELECT_ROWS, (self._shard, list(set(rows))), binary=True
                )
            }
        except psycopg.Error as error:
            raise self._failed(error, "reading") from error
        for row in rows:
            if row not in found:
                raise _corrupt(f"table payload, row {row}: it is missing")
        return [found[row] for row in rows]

    def usage(self) -> Usage:
        connection = self._open_connection()
        try:
            (stored_bytes,) = self._one(connection, _USAGE)
        except psycopg.Error as error:
            raise self._failed(error, "reading") from error
        return Usage(stored_bytes=int(stored_bytes), free_bytes=0)

    def tidy(self) -> bool:
        """PostgreSQL tidies up by itself. This tells whether it is still there, and still ours."""
        self._run([fence_of(self._shard, self._epoch)], "reading")
        return False

    def copy(self) -> NoReturn:
        self._open_connection()
        raise InvalidArgument(
            "a journal in PostgreSQL is backed up by PostgreSQL's own tools",
            f"pg_dump --schema {self._schema} of a running broker gives a consistent backup",
        )

    def _stored(self) -> dict[int, Stored]:
        connection = self._open_connection()
        if self._found is None:
            try:
                self._found = self._read_owners(connection)
            except psycopg.Error as error:
                raise self._failed(error, "reading") from error
        return self._found

    @staticmethod
    def _one(connection: Connection, statement: str, *given: Any) -> tuple[Any, ...]:
        found = connection.execute(statement.encode(), given).fetchone()
        assert found is not None
        return found

    # -- Writing ------------------------------------------------------------------------------

    @property
    def next_is_long(self) -> bool:
        return False

    def commit(self, commit: Commit) -> float:
        """In the thread of the caller. Those of a broker that runs go through `Writer`."""
        began_s = perf_counter()
        transaction = Transaction()
        part = self.put(commit, transaction)
        self._run(transaction.requests(), "writing")
        self.written(part)
        return perf_counter() - began_s

    def put(self, commit: Commit, transaction: Transaction) -> Part:
        """Put a commit into a transaction. Raises if the journal is closed."""
        self._check_open()
        return transaction.put(self._shard, self._epoch, commit, self._numbers, self._last_row)

    def written(self, part: Part) -> None:
        self._found = None
        self._last_row = part.last_row
        self._numbers.update(part.numbers)
        if part.dropped_owners:
            for owner in part.dropped_owners:
                self._numbers.pop(owner, None)

    def _run(self, requests: list[Request], doing: str) -> None:
        """A transaction on the connection that reads. After an error nothing of it is stored, or
        nobody knows: then the journal is closed."""
        pipeline = self._open_pipeline()
        try:
            pipeline.run(requests)
        except (postgresql.UniqueViolation, postgresql.DiskFull) as error:
            raise translate(error, doing) from error
        except psycopg.Error as error:
            raise self._failed(error, doing) from error
        except BaseException:
            self.stop(NotReady("a commit to PostgreSQL was interrupted", AWAY_HINT))
            raise

    # -- Faults -------------------------------------------------------------------------------

    def overtaken(self) -> NexoError:
        return Fenced(
            "another broker has taken over the journal in PostgreSQL",
            "stop one of the two: a journal belongs to one broker at a time",
        )

    def stop(self, fault: NexoError) -> None:
        """It is closed until it is opened again."""
        self.close()
        self._fault = fault.anew()

    def _check_open(self) -> None:
        if self._pipeline is None:
            raise (self._fault or NotReady(_CLOSED, "call open() first")).anew()

    def _open_pipeline(self) -> Pipeline:
        """That of the connection that reads. Raises if the journal is closed."""
        self._check_open()
        assert self._pipeline is not None
        return self._pipeline

    def _open_connection(self) -> Connection:
        return self._open_pipeline().connection

    def _failed(self, error: psycopg.Error, doing: str) -> NexoError:
        """The error to raise; the journal is closed."""
        found = (
            self.overtaken()
            if isinstance(error, postgresql.DivisionByZero)
            else translate(error, doing)
        )
        self.stop(found)
        return found


def _corrupt(what: str) -> DataCorrupt:
    return DataCorrupt(what, CORRUPT_HINT)
