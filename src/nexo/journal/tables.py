"""The tables of the journal's file: their statements, and reads that check every checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.journal.port import Stored
from nexo.journal.rows import (
    CORRUPT_HINT,
    decode_row,
    meta_checksum,
    record_checksum,
    snapshot_checksum,
)
from nexo.vocabulary.errors import DataCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import apsw

    from nexo.vocabulary.batch import Batch

INSERT_ROW = "INSERT INTO payload VALUES (?, ?, ?, ?, ?, ?)"
INSERT_RECORD = "INSERT INTO record VALUES (?, ?, ?, ?)"
REPLACE_SNAPSHOT = "INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)"
REPLACE_META = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
DELETE_ROWS = "DELETE FROM payload WHERE row BETWEEN ? AND ?"
DELETE_RECORDS = "DELETE FROM record WHERE owner = ?"
DELETE_SNAPSHOT = "DELETE FROM snapshot WHERE owner = ?"

_MISMATCH = "the checksum does not match"

_SELECT_ROW = "SELECT * FROM payload WHERE row = ?"
_SELECT_HIGHEST_ROW = "SELECT max(row) FROM payload"
_SELECT_META = "SELECT value, checksum FROM meta WHERE name = ?"
_SELECT_SNAPSHOT = "SELECT number, checksum, data FROM snapshot WHERE owner = ?"
_SELECT_RECORDS = "SELECT number, checksum, data FROM record WHERE owner = ? ORDER BY number"
_SELECT_LAST_NUMBER = """
    SELECT max(
        coalesce((SELECT max(number) FROM record WHERE owner = ?1), 0),
        coalesce((SELECT number FROM snapshot WHERE owner = ?1), 0)
    )
"""
# Leaps from owner to owner instead of reading every record.
_SELECT_OWNERS = """
    WITH RECURSIVE found(owner) AS (
        SELECT min(owner) FROM record
        UNION ALL
        SELECT (SELECT min(owner) FROM record WHERE owner > found.owner)
        FROM found WHERE found.owner IS NOT NULL
    )
    SELECT owner FROM found WHERE owner IS NOT NULL
    UNION SELECT owner FROM snapshot ORDER BY owner
"""


def read_meta(connection: apsw.Connection, name: str) -> int:
    """A number of the table meta, 0 if it was never set."""
    found = connection.execute(_SELECT_META, (name,)).fetchone()
    if found is None:
        return 0
    value, checksum = found
    if not isinstance(value, int) or checksum != meta_checksum(name, value):
        raise DataCorrupt(f"table meta, {name}: {_MISMATCH}", CORRUPT_HINT)
    return value


def read_highest_row(connection: apsw.Connection) -> int:
    """The highest row that is stored, 0 if there is none."""
    return connection.execute(_SELECT_HIGHEST_ROW).get or 0


def read_row(connection: apsw.Connection, row: int) -> Batch:
    columns = connection.execute(_SELECT_ROW, (row,)).fetchone()
    if columns is None:
        raise DataCorrupt(f"table payload, row {row}: it is missing", CORRUPT_HINT)
    return decode_row(columns)


def read_owners(connection: apsw.Connection) -> list[int]:
    return [owner for (owner,) in connection.execute(_SELECT_OWNERS) if isinstance(owner, int)]


def read_last_number(connection: apsw.Connection, owner: int) -> int:
    """The number of the owner's last record, 0 if there was none."""
    number = connection.execute(_SELECT_LAST_NUMBER, (owner,)).get
    return number if isinstance(number, int) else 0


def read_owner(connection: apsw.Connection, owner: int) -> Stored:
    stored, problems = scan_owner(connection, owner)
    if problems:
        raise DataCorrupt(problems[0], CORRUPT_HINT)
    return stored


def scan_owner(connection: apsw.Connection, owner: int) -> tuple[Stored, list[str]]:
    """An owner's state, and everything that is wrong with it."""
    problems = []
    snapshot, last = None, 0
    found = connection.execute(_SELECT_SNAPSHOT, (owner,)).fetchone()
    if found is not None:
        number, checksum, data = found
        if (
            isinstance(number, int)
            and isinstance(data, bytes)
            and checksum == snapshot_checksum(owner, number, data)
        ):
            snapshot, last = data, number
        else:
            problems.append(f"table snapshot, owner {owner}: {_MISMATCH}")
    records = []
    for number, checksum, data in connection.execute(_SELECT_RECORDS, (owner,)):
        if not (
            isinstance(number, int)
            and isinstance(data, bytes)
            and checksum == record_checksum(owner, number, data)
        ):
            problems.append(f"table record, owner {owner}, number {number}: {_MISMATCH}")
            continue
        if number != last + 1:
            problems.append(f"table record, owner {owner}: {number} follows {last}")
        last = number
        records.append(data)
    return Stored(snapshot, records), problems


def ranges(rows: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, last): one statement deletes a whole range."""
    found: list[tuple[int, int]] = []
    for row in sorted(rows):
        if found and found[-1][1] + 1 == row:
            found[-1] = (found[-1][0], row)
        else:
            found.append((row, row))
    return found
