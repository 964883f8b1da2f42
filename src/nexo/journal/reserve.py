"""A little disk space kept back, so that acks can be journaled when the disk is full.

Without it a full disk is a trap: messages are removed by acks, an ack is a write, and no write
succeeds. The reserve is a file of zeros beside the journal. When a commit meets a full disk the
file is emptied, commits that store no payload go on in the room it leaves, and commits that do
are refused until the reserve could be filled again.
"""

from __future__ import annotations

import apsw

RESERVE_BYTES = 8 * 1024 * 1024
_STEP = bytes(64 * 1024)  # SQLite's file system takes less than 128 KiB at a time
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_TRANSIENT_DB


class Reserve:
    """It goes through SQLite's file system, so that a simulated disk holds it as well."""

    def __init__(self, file: str, vfs: str, size_bytes: int = RESERVE_BYTES) -> None:
        self._file = file
        self._vfs = vfs
        self._size_bytes = size_bytes
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
        """Fill it again. It takes twice its size for a moment: with less room than that the next
        commits would only spend it anew."""
        if self._size_bytes == 0:
            self.spent = False
            return True
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


def _fill(handle: apsw.VFSFile, size_bytes: int) -> bool:
    try:
        for offset in range(0, 2 * size_bytes, len(_STEP)):
            handle.xWrite(_STEP[: 2 * size_bytes - offset], offset)
    except apsw.Error:
        handle.xTruncate(0)
        return False
    handle.xTruncate(size_bytes)
    return True
