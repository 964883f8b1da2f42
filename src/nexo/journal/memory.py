"""A journal in memory: nothing survives the process, everything else is as on disk.

Rows are turned into the very columns that the embedded journal stores, so a batch that could not
be written there is refused here too. A `MemoryDisk` outlives the journals opened on it: give the
same one to a second journal to see what a restarted broker would see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from nexo.journal.port import Commit, Stored, Usage
from nexo.journal.rows import CORRUPT_HINT, RowColumns, decode_row, encode_row
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, NotReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.vocabulary.batch import Batch


class MemoryDisk:
    """What was committed."""

    def __init__(self) -> None:
        self.epoch = 0
        self.last_row = 0
        self.rows: dict[int, RowColumns] = {}
        self.snapshots: dict[int, bytes] = {}
        self.records: dict[int, list[bytes]] = {}


class MemoryJournal:
    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self._store = disk if disk is not None else MemoryDisk()
        self._is_open = False

    def open(self) -> int:
        self._is_open = True
        self._store.epoch += 1
        return self._store.epoch

    def owners(self) -> list[int]:
        disk = self._disk()
        return sorted(disk.snapshots.keys() | disk.records.keys())

    def load(self, owner: int) -> Stored:
        disk = self._disk()
        return Stored(disk.snapshots.get(owner), list(disk.records.get(owner, ())))

    def last_row(self) -> int:
        return self._disk().last_row

    @property
    def next_is_long(self) -> bool:
        return False

    def commit(self, commit: Commit) -> float:
        disk = self._disk()
        dropped = set(commit.dropped_rows)
        encoded = [encode_row(row, batch) for row, batch in commit.rows]
        numbers = [columns[0] for columns in encoded]
        if len(set(numbers)) < len(numbers) or not disk.rows.keys().isdisjoint(numbers):
            raise InvalidArgument("a row of this number is stored already")
        for write in commit.writes:
            if write.snapshot is None:
                disk.records.setdefault(write.owner, []).append(bytes(write.record))
            else:
                disk.snapshots[write.owner] = bytes(write.snapshot)
                disk.records.pop(write.owner, None)
        for columns in encoded:
            if columns[0] not in dropped:
                disk.rows[columns[0]] = (*columns[:5], bytes(columns[5]))
        for row in dropped:
            disk.rows.pop(row, None)
        for owner in commit.dropped_owners:
            disk.records.pop(owner, None)
            disk.snapshots.pop(owner, None)
        disk.last_row = max(disk.last_row, *numbers) if numbers else disk.last_row
        return 0.0

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        disk = self._disk()
        batches = []
        for row in rows:
            columns = disk.rows.get(row)
            if columns is None:
                raise DataCorrupt(f"table payload, row {row}: it is missing", CORRUPT_HINT)
            batches.append(decode_row(columns))
        return batches

    def usage(self) -> Usage:
        disk = self._disk()
        stored = sum(len(columns[3]) + len(columns[5]) for columns in disk.rows.values())
        stored += sum(map(len, disk.snapshots.values()))
        stored += sum(len(record) for records in disk.records.values() for record in records)
        return Usage(stored_bytes=stored, free_bytes=0)

    def tidy(self) -> bool:
        self._disk()
        return False

    def copy(self) -> NoReturn:
        self._disk()
        raise InvalidArgument(
            "this broker keeps everything in memory and cannot be backed up",
            "start it with a data directory: nexo serve --data DIR",
        )

    def close(self) -> None:
        self._is_open = False

    def _disk(self) -> MemoryDisk:
        if not self._is_open:
            raise NotReady("the journal is not open", "call open() first")
        return self._store
