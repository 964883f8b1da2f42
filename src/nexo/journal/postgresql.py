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

from contextlib import suppress
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from psycopg import errors as postgresql

from nexo.journal.port import Commit, Stored, Usage, Write
from nexo.journal.postgresql_connection import (
    AWAY_HINT,
    Connection,
    abandon,
    connect,
    shown_url,
    translate,
)
from nexo.journal.rows import (
    CORRUPT_HINT,
    decode_row,
    encode_row,
    record_checksum,
    snapshot_checksum,
)
from nexo.journal.tables import ranges
from nexo.vocabulary.errors import (
    DataCorrupt,
    InvalidArgument,
    NexoError,
    NotReady,
)
from nexo.vocabulary.limits import POSTGRESQL_LOCK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.journal.rows import RowColumns
    from nexo.vocabulary.batch import Batch

# Parameters go as they are in memory (%b): as text, bytes would be hexadecimal, and twice as many.
# It divides by zero where the epoch is another: an error ends the transaction on the server, which
# an answer of no rows would not, and the commit behind it is on its way already.
_FENCE = """
    SELECT 1 / (SELECT count(*) FROM
        (SELECT 1 FROM shard WHERE id = %b AND epoch = %b FOR SHARE) AS mine)
"""
_INSERT_ROWS = """
    INSERT INTO payload SELECT %b, * FROM unnest(
        %b::bigint[], %b::integer[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[])
"""
_INSERT_RECORDS = """
    INSERT INTO record
    SELECT %b, * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
"""
_REPLACE_SNAPSHOTS = """
    INSERT INTO snapshot
    SELECT %b, * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
    ON CONFLICT (shard, owner) DO UPDATE
    SET number = excluded.number, checksum = excluded.checksum, data = excluded.data
"""
_DELETE_ROWS = """
    DELETE FROM payload USING unnest(%b::bigint[], %b::bigint[]) AS gone(first, last)
    WHERE shard = %b AND row BETWEEN gone.first AND gone.last
"""
_DELETE_RECORDS = "DELETE FROM record WHERE shard = %b AND owner = ANY(%b::bigint[])"
_DELETE_SNAPSHOTS = "DELETE FROM snapshot WHERE shard = %b AND owner = ANY(%b::bigint[])"
_KEEP_LAST_ROW = "UPDATE shard SET last_row = %b WHERE id = %b"
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
        self._connection: Connection | None = None
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
        self._connection, self._fault = connection, None
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
        connection, self._connection = self._connection, None
        self._found = None
        self._numbers.clear()
        if connection is not None:
            abandon(connection)

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
        connection = self._open_connection()
        try:
            self._one(connection, _FENCE, self._shard, self._epoch)
        except psycopg.Error as error:
            raise self._failed(error, "reading") from error
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
        connection = self._open_connection()
        draft = Draft(commit, self._numbers, self._last_row)
        self._found = None
        began_s = perf_counter()
        try:
            with connection.pipeline(), connection.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute(_FENCE, (self._shard, self._epoch))
                draft.send(cursor, self._shard)
                cursor.execute("COMMIT")
        except postgresql.UniqueViolation as error:
            self._roll_back(connection)
            raise InvalidArgument("a row of this number is stored already") from error
        except psycopg.Error as error:
            raise self._failed(error, "writing") from error
        except BaseException:
            self._stop(NotReady("a commit to PostgreSQL was interrupted", AWAY_HINT))
            raise
        self._last_row = draft.last_row
        self._numbers.update(draft.numbers)
        for owner in commit.dropped_owners:
            self._numbers.pop(owner, None)
        return perf_counter() - began_s

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error as error:
            self._stop(translate(error, "writing"))

    # -- Faults -------------------------------------------------------------------------------

    def _open_connection(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self._fault is not None:
            raise self._fault.anew()
        raise NotReady("the journal in PostgreSQL is not open", "call open() first")

    def _failed(self, error: psycopg.Error, doing: str) -> NexoError:
        """The error to raise. Unless the server is merely out of room, the journal closes."""
        if isinstance(error, psycopg.errors.PipelineAborted):
            error = error.__context__ if isinstance(error.__context__, psycopg.Error) else error
        found = translate(error, doing)
        connection = self._connection
        if isinstance(error, postgresql.DiskFull) and connection is not None:
            self._roll_back(connection)
        else:
            self._stop(found)
        return found

    def _stop(self, fault: NexoError) -> None:
        self._fault = fault.anew()
        connection, self._connection = self._connection, None
        self._found = None
        if connection is not None:
            with suppress(psycopg.Error):
                abandon(connection)


class Draft:
    """A commit as the arrays of a few statements, however much there is in it."""

    def __init__(self, commit: Commit, numbers: dict[int, int], last_row: int) -> None:
        self.dropped = set(commit.dropped_rows)
        encoded = [encode_row(row, batch) for row, batch in commit.rows]
        self.last_row = max([last_row, *[columns[0] for columns in encoded]])
        # One that writes nothing else asks whether there is room: then it is to be stored, too.
        is_probe = not commit.writes
        self.rows: list[RowColumns] = [
            columns for columns in encoded if is_probe or columns[0] not in self.dropped
        ]
        self.dropped_owners = commit.dropped_owners
        self.numbers: dict[int, int] = {}
        self._records: dict[int, list[tuple[int, int, int, bytes]]] = {}
        self.snapshots: dict[int, tuple[int, int, int, bytes | bytearray]] = {}
        for write in commit.writes:
            number = self.numbers.get(write.owner) or numbers.get(write.owner, 0)
            self._note(write, number + 1)

    def _note(self, write: Write, number: int) -> None:
        owner = write.owner
        self.numbers[owner] = number
        if write.snapshot is None:
            checksum = record_checksum(owner, number, write.record)
            self._records.setdefault(owner, []).append((owner, number, checksum, write.record))
        else:
            checksum = snapshot_checksum(owner, number, write.snapshot)
            self._records.pop(owner, None)  # it stands for them
            self.snapshots[owner] = (owner, number, checksum, write.snapshot)

    @property
    def records(self) -> list[tuple[int, int, int, bytes]]:
        return [each for of_owner in self._records.values() for each in of_owner]

    @property
    def keeps_last_row(self) -> bool:
        """Whether no stored row says any more which number was the highest."""
        return self.last_row in self.dropped

    def send(self, cursor: psycopg.Cursor[tuple[Any, ...]], shard: int) -> None:
        if self.rows:
            cursor.execute(_INSERT_ROWS, (shard, *columns_of(self.rows)))
        if self.snapshots:
            cursor.execute(_DELETE_RECORDS, (shard, list(self.snapshots)))
            cursor.execute(_REPLACE_SNAPSHOTS, (shard, *columns_of(list(self.snapshots.values()))))
        if records := self.records:
            cursor.execute(_INSERT_RECORDS, (shard, *columns_of(records)))
        if self.dropped:
            bounds = ranges(self.dropped)
            cursor.execute(_DELETE_ROWS, (*columns_of(bounds), shard))
            if self.keeps_last_row:
                cursor.execute(_KEEP_LAST_ROW, (self.last_row, shard))
        if self.dropped_owners:
            cursor.execute(_DELETE_RECORDS, (shard, self.dropped_owners))
            cursor.execute(_DELETE_SNAPSHOTS, (shard, self.dropped_owners))


def columns_of(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _corrupt(what: str) -> DataCorrupt:
    return DataCorrupt(what, CORRUPT_HINT)
