"""What a transaction of the journal in PostgreSQL holds: parts of one or more shards, each fenced.

However many shards and queues changed, it is the same few statements: the rows of one shard stand
behind another's. A broker alone is a transaction with one part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from nexo.journal.postgresql_pipeline import BIGINT, BYTES, INTEGER, Pipeline, Statement
from nexo.journal.rows import encode_row, record_checksum, snapshot_checksum
from nexo.journal.tables import ranges

if TYPE_CHECKING:
    from nexo.journal.port import Commit
    from nexo.journal.postgresql_connection import Connection
    from nexo.journal.postgresql_pipeline import Request
    from nexo.vocabulary.errors import NexoError

# It divides by zero where the epoch of a shard is another: an error ends the transaction on the
# server, which an answer of no rows would not, and what follows is on its way already.
_FENCE = Statement(
    "fence",
    """
    SELECT 1 / (count(*) = cardinality($1))::integer FROM (
        SELECT FROM (SELECT unnest($1) AS id, unnest($2) AS epoch) AS mine
        JOIN shard USING (id, epoch) FOR SHARE OF shard) AS held
    """,
    INTEGER,
    BIGINT,
)
# The same where the row of a node is older than its last renewal: then so is all the rest, and what
# is to be written goes with something that is not there.
RENEWED = Statement(
    "renewed",
    """
    SELECT 1 / (count(*) > 0)::integer FROM node JOIN unnest($1, $2) AS mine(run, until_us)
    USING (run) WHERE extract(epoch FROM until) * 1000000 >= until_us
    """,
    BIGINT,
    BIGINT,
)
_INSERT_ROWS = Statement(
    "insert_rows",
    # For large payloads that is 1.5 times as fast as `SELECT unnest($1), …`, which is a little
    # quicker for the small values of the other statements.
    "INSERT INTO payload SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)",
    *(INTEGER, BIGINT, INTEGER, BIGINT, BYTES, BYTES, BYTES),
)
_INSERT_RECORDS = Statement(
    "insert_records",
    "INSERT INTO record SELECT unnest($1), unnest($2), unnest($3), unnest($4), unnest($5)",
    *(INTEGER, BIGINT, BIGINT, BIGINT, BYTES),
)
_REPLACE_SNAPSHOTS = Statement(
    "replace_snapshots",
    """
    INSERT INTO snapshot SELECT * FROM unnest($1, $2, $3, $4, $5)
    ON CONFLICT (shard, owner) DO UPDATE
    SET number = excluded.number, checksum = excluded.checksum, data = excluded.data
    """,
    *(INTEGER, BIGINT, BIGINT, BIGINT, BYTES),
)
_DELETE_ROWS = Statement(
    "delete_rows",
    """
    DELETE FROM payload USING unnest($1, $2, $3) AS gone(shard, first, last)
    WHERE payload.shard = gone.shard AND row BETWEEN gone.first AND gone.last
    """,
    *(INTEGER, BIGINT, BIGINT),
)
_DELETE_RECORDS = Statement(
    "delete_records",
    """
    DELETE FROM record USING unnest($1, $2) AS gone(shard, owner)
    WHERE record.shard = gone.shard AND record.owner = gone.owner
    """,
    INTEGER,
    BIGINT,
)
_DELETE_SNAPSHOTS = Statement(
    "delete_snapshots",
    """
    DELETE FROM snapshot USING unnest($1, $2) AS gone(shard, owner)
    WHERE snapshot.shard = gone.shard AND snapshot.owner = gone.owner
    """,
    INTEGER,
    BIGINT,
)
_KEEP_LAST_ROWS = Statement(
    "keep_last_rows",
    """
    UPDATE shard SET last_row = kept.row FROM unnest($1, $2) AS kept(id, row)
    WHERE shard.id = kept.id
    """,
    INTEGER,
    BIGINT,
)
_STATEMENTS = (
    *(_FENCE, _INSERT_ROWS, _INSERT_RECORDS, _REPLACE_SNAPSHOTS),
    *(_DELETE_ROWS, _DELETE_RECORDS, _DELETE_SNAPSHOTS, _KEEP_LAST_ROWS),
)


def pipeline_on(connection: Connection, *more: Statement) -> Pipeline:
    return Pipeline(connection, (*_STATEMENTS, *more))


class Participant(Protocol):
    """A journal that has a part in a transaction."""

    def put(self, commit: Commit, transaction: Transaction) -> Part:
        """Put a commit into it. Raises if the journal is closed."""

    def written(self, part: Part) -> None:
        """Its part is stored."""

    def stop(self, fault: NexoError) -> None:
        """It is closed until it is opened again."""

    def overtaken(self) -> NexoError:
        """What to say when the fence of its shard does not hold."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """What a journal remembers once its part is stored."""

    shard: int
    epoch: int
    numbers: dict[int, int]  # the last record number of each owner that wrote
    last_row: int
    dropped_owners: list[int]


class Lease(NamedTuple):
    """Of a node: the number of its run, and until when it was renewed, by the server's clock."""

    run: int
    until_us: int


class Transaction:
    """The rows of all tables that it stores and deletes, of one shard behind another's."""

    __slots__ = (
        "_fences",
        "_gone",
        "_kept",
        "_lease",
        "_owners",
        "_records",
        "_rows",
        "_snapshots",
    )

    def __init__(self, lease: Lease | None = None) -> None:
        self._lease = [] if lease is None else [lease]
        self._fences: list[tuple[int, int]] = []
        self._rows: list[tuple[Any, ...]] = []
        self._records: list[tuple[int, int, int, int, bytes]] = []
        self._snapshots: list[tuple[int, int, int, int, bytes | bytearray]] = []
        self._gone: list[tuple[int, int, int]] = []
        self._kept: list[tuple[int, int]] = []
        self._owners: list[tuple[int, int]] = []

    def put(
        self, shard: int, epoch: int, commit: Commit, numbers: dict[int, int], last_row: int
    ) -> Part:
        """Put a shard's commit into it: `numbers` and `last_row` are those of the one before."""
        self._fences.append((shard, epoch))
        stored = [(shard, *encode_row(row, batch)) for row, batch in commit.rows]
        for columns in stored:
            if columns[1] > last_row:
                last_row = columns[1]
        if commit.dropped_rows:
            dropped = set(commit.dropped_rows)
            if commit.writes:  # else it asks whether there is room, and is to be stored first
                stored = [columns for columns in stored if columns[1] not in dropped]
            self._gone += [(shard, *bounds) for bounds in ranges(dropped)]
            if last_row in dropped:  # no stored row says any more which number was the highest
                self._kept.append((shard, last_row))
        self._rows += stored
        if commit.dropped_owners:
            self._owners += [(shard, owner) for owner in commit.dropped_owners]
        found: dict[int, int] = {}
        for write in commit.writes:
            owner = write.owner
            number = found.get(owner)
            if number is None:
                number = numbers.get(owner, 0)
            elif write.snapshot is not None:  # it stands for those of this commit as well
                self._records = [each for each in self._records if each[:2] != (shard, owner)]
                self._snapshots = [each for each in self._snapshots if each[:2] != (shard, owner)]
            found[owner] = number = number + 1
            if write.snapshot is None:
                checksum = record_checksum(owner, number, write.record)
                self._records.append((shard, owner, number, checksum, write.record))
            else:
                checksum = snapshot_checksum(owner, number, write.snapshot)
                self._snapshots.append((shard, owner, number, checksum, write.snapshot))
        return Part(shard, epoch, found, last_row, commit.dropped_owners)

    def requests(self) -> list[Request]:
        """Its statements, in order."""
        wanted: tuple[tuple[Statement, list[Any]], ...] = (
            (RENEWED, self._lease),
            (_FENCE, self._fences),
            (_INSERT_ROWS, self._rows),
            (_DELETE_RECORDS, [row[:2] for row in self._snapshots]),
            (_REPLACE_SNAPSHOTS, self._snapshots),
            (_INSERT_RECORDS, self._records),
            (_DELETE_ROWS, self._gone),
            (_KEEP_LAST_ROWS, self._kept),
            (_DELETE_RECORDS, self._owners),
            (_DELETE_SNAPSHOTS, self._owners),
        )
        return [(statement, rows) for statement, rows in wanted if rows]


def fence_of(shard: int, epoch: int) -> Request:
    """The check alone that a shard is still at this epoch."""
    return _FENCE, [(shard, epoch)]
