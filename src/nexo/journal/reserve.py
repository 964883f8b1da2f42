"""Disk space kept back, so that acks can be journaled when the disk is full.

Without it a full disk is a trap: messages are removed by acks, an ack is a write, and no write
succeeds. The reserve is a file of zeros beside the journal. When a commit that stores no payload
meets a full disk the file is emptied; such commits then go on in the room it leaves, and those
that store payloads are refused until the reserve could be filled again.

It is as large as the WAL grows between two checkpoints. That is also the most that the journal's
file can grow by when the WAL is folded in, so with the reserve a checkpoint always succeeds, the
WAL starts over in its own room, and acks do not run out of space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = bytes(64 * 1024)  # SQLite's file system takes less than 128 KiB at a time
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_TRANSIENT_DB


class Reserve:
    """It goes through SQLite's file system, so that a simulated disk holds it as well."""

    def __init__(
        self, file: str, vfs: str, size_bytes: int, free_bytes: Callable[[], int] | None
    ) -> None:
        self._file = file
        self._vfs = vfs
        self._size_bytes = size_bytes
        self._free_bytes = free_bytes
        self.spent = False

    def prepare(self) -> None:
        """Fill it unless it is full; `spent` says if there was no room."""
        if self._size_bytes == 0:
            return
        try:
            handle = self._open()
            try:
                self.spent = handle.xFileSize() < self._size_bytes
            finally:
                handle.xClose()
        except apsw.Error:
            self.spent = True
        if self.spent:
            self.restore()

    def spend(self) -> bool:
        """Give the room to the journal; false if there was none to give."""
        if self._size_bytes == 0 or self.spent:
            return False
        self.spent = True
        try:
            handle = self._open()
            try:
                handle.xTruncate(0)
            finally:
                handle.xClose()
        except apsw.Error:
            return False
        return True

    def restore(self) -> bool:
        """Fill it again. It takes a quarter more for a moment: with less room than that the next
        commits would only spend it anew."""
        if self._size_bytes == 0:
            self.spent = False
            return True
        if self._free_bytes is not None and self._free_bytes() < _needed(self._size_bytes):
            return False  # asked before trying: this is tried at every push while the disk is full
        try:
            handle = self._open()
            try:
                self.spent = not _fill(handle, self._size_bytes)
            finally:
                handle.xClose()
        except apsw.Error:
            self.spent = True
        return not self.spent

    def _open(self) -> apsw.VFSFile:
        return apsw.VFSFile(self._vfs, self._file, [_FLAGS, 0])


def _needed(size_bytes: int) -> int:
    return size_bytes + size_bytes // 4


def _fill(handle: apsw.VFSFile, size_bytes: int) -> bool:
    try:
        for offset in range(0, _needed(size_bytes), len(_STEP)):
            handle.xWrite(_STEP, offset)
    except apsw.Error:
        handle.xTruncate(0)
        return False
    handle.xTruncate(size_bytes)
    return True
