"""A disk in memory that fails like a real one, for SQLite to run on.

    xWrite ──▶ contents (what reads see: the system's cache)
                   │ xSync
                   ▼
               platter (what a power loss leaves)

A write stays *pending* until its file is synchronized. On a power loss each pending write is
kept, lost or torn at 512-byte sectors, on its own: disks reorder. After a failed fsync the same
happens to what was pending, the cache keeps showing the new contents, and no later fsync writes
them, since the system takes them for clean: only writing the bytes again helps. Files created and
deleted may turn out not to be until their directory is synchronized, which SQLite does with the
first fsync of a journal file that it made. A full disk takes what fits and says so.

Faults strike at the k-th operation that changes the disk, so a test can try every k. Everything
is drawn from one seeded `Random`; slowness is counted in `elapsed_ms`, nobody sleeps. (SQLite
draws the salts of its WAL by itself: the bytes differ from run to run, the operations do not.)
"""

from __future__ import annotations

import enum
from itertools import count
from typing import TYPE_CHECKING

import apsw
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SECTOR_BYTES = 512
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_names = count(1)


class Crashed(BaseException):
    """The power went at this operation. No `except Exception` may swallow that."""


class FaultKind(enum.Enum):
    CRASH = "crash"  # the power goes; until `restart` every operation fails
    FAIL = "fail"  # this operation reports an I/O error
    FULL = "full"  # from this operation on the disk has no room, until `capacity_bytes` is raised


class Fault(msgspec.Struct, frozen=True):
    """What happens at the operation of this number; the first is 1."""

    operation: int
    kind: FaultKind


class _Write(msgspec.Struct, frozen=True, gc=False):
    offset: int
    data: bytes


class _Cut(msgspec.Struct, frozen=True, gc=False):
    size_bytes: int


class _Inode:
    """The two sides of a file, and what lies between them."""

    __slots__ = ("contents", "is_new_journal", "locks", "pending", "platter")

    def __init__(self) -> None:
        self.is_new_journal = False
        self.contents = bytearray()
        self.platter = bytearray()
        self.pending: list[_Write | _Cut] = []
        self.locks: dict[_Handle, int] = {}

    def settle(self) -> None:
        for change in self.pending:
            _apply(self.platter, change)
        self.pending.clear()

    def scatter(self, random: Random) -> None:
        """Keep, lose or tear each pending change."""
        for change in self.pending:
            draw = random.random()
            if draw < 1 / 3:
                continue
            if draw < 2 / 3 or isinstance(change, _Cut):
                _apply(self.platter, change)
            else:
                _apply_torn(self.platter, change, random)
        self.pending.clear()


class SimulatedDisk(apsw.VFS):
    """Registered with SQLite under `name` until `close`."""

    def __init__(
        self,
        random: Random,
        faults: Sequence[Fault] = (),
        *,
        capacity_bytes: int | None = None,
        write_ms: float = 0.0,
        sync_ms: float = 0.0,
    ) -> None:
        self.name = f"nexo-simulated-{next(_names)}"
        super().__init__(self.name, base="")
        self.faults = {fault.operation: fault.kind for fault in faults}
        self.capacity_bytes = capacity_bytes
        self.write_ms = write_ms
        self.sync_ms = sync_ms
        self.operations = 0
        self.elapsed_ms = 0.0
        self.is_down = False
        self._random = random
        self._boot = 0
        self._files: dict[str, _Inode] = {}
        self._entries: dict[str, _Inode] = {}  # the directory as it is on the platter

    # -- What a test does ---------------------------------------------------------------------

    def close(self) -> None:
        self.unregister()

    def crash(self) -> None:
        """Cut the power now; files opened before are dead for good."""
        self.is_down = True
        self._boot += 1

    def kill(self) -> None:
        """The process dies, the system lives: nothing is lost but the open files."""
        self._boot += 1
        for inode in self._files.values():
            inode.locks.clear()

    def restart(self) -> None:
        """Power on again: from here on, files hold what the platter held."""
        if not self.is_down:
            self.crash()
        names = sorted(self._files.keys() | self._entries.keys())
        survivors: dict[str, _Inode] = {}
        for name in names:
            live, entry = self._files.get(name), self._entries.get(name)
            choice = live if live is entry else self._random.choice([live, entry])
            if choice is None:
                continue
            choice.scatter(self._random)
            choice.contents = bytearray(choice.platter)
            choice.locks.clear()
            survivors[name] = choice
        self._files = survivors
        self._entries = dict(survivors)
        self.is_down = False

    def flip(self, name: str, offset: int, bit: int) -> None:
        """A bit rots."""
        inode = self._files[name]
        for side in (inode.contents, inode.platter):
            if offset < len(side):
                side[offset] ^= 1 << bit

    def size_bytes(self, name: str) -> int:
        inode = self._files.get(name)
        return len(inode.contents) if inode is not None else 0

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.contents) for inode in self._files.values())

    # -- What SQLite calls --------------------------------------------------------------------

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        self.require_up(self._boot)
        return pathname in self._files

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _Handle:  # type: ignore[override]  # noqa: N802
        self.require_up(self._boot)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        inode = self._files.get(path)
        if inode is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.exception_for(apsw.SQLITE_CANTOPEN)
            self.strike(apsw.SQLITE_CANTOPEN)
            inode = self._files[path] = _Inode()
            inode.is_new_journal = bool(flags[0] & _JOURNALS)
        flags[1] = flags[0]
        return _Handle(self, inode, self._boot)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.require_up(self._boot)
        if filename not in self._files:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
        self.strike(apsw.SQLITE_IOERR_DELETE)
        del self._files[filename]
        if syncdir:
            self.settle_directory()

    # -- What its files call ------------------------------------------------------------------

    def require_up(self, boot: int) -> None:
        if self.is_down:
            raise Crashed(f"there is no power since operation {self.operations}")
        if boot != self._boot:
            raise apsw.exception_for(apsw.SQLITE_IOERR)  # a file of a former life

    def strike(self, failure: int) -> None:
        """Count an operation, and let happen what was planned for it."""
        self.operations += 1
        kind = self.faults.get(self.operations)
        if kind is None:
            return
        if kind is FaultKind.CRASH:
            self.crash()
            raise Crashed(f"power lost at operation {self.operations}")
        if kind is FaultKind.FULL:
            self.capacity_bytes = self.used_bytes
            return
        raise apsw.exception_for(failure)

    def room(self, inode: _Inode, end: int) -> int:
        """How far a write up to `end` may go."""
        if self.capacity_bytes is None:
            return end
        spare = max(0, self.capacity_bytes - self.used_bytes)
        return min(end, len(inode.contents) + spare)

    def tear(self, inode: _Inode, change: _Write) -> None:
        """A write that failed may have been done in part."""
        _apply_torn(inode.contents, change, self._random)
        inode.pending.append(
            _Write(
                change.offset,
                bytes(inode.contents[change.offset : change.offset + len(change.data)]),
            )
        )

    def lose_pending(self, inode: _Inode) -> None:
        inode.scatter(self._random)

    def settle_directory(self) -> None:
        """From now on it is sure which files there are."""
        self._entries = dict(self._files)


class _Handle:
    """An open file."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode, boot: int) -> None:
        self._disk = disk
        self._inode = inode
        self._boot = boot

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.require_up(self._boot)
        return bytes(self._inode.contents[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        disk, inode = self._disk, self._inode
        disk.require_up(self._boot)
        change = _Write(offset, bytes(data))
        disk.elapsed_ms += disk.write_ms
        try:
            disk.strike(apsw.SQLITE_IOERR_WRITE)
        except Crashed:
            inode.pending.append(change)
            raise
        except apsw.IOError:
            disk.tear(inode, change)
            raise
        end = offset + len(change.data)
        fits = disk.room(inode, end)
        if fits < end:
            change = _Write(offset, change.data[: max(0, fits - offset)])
        if change.data:
            _apply(inode.contents, change)
            inode.pending.append(change)
        if fits < end:
            raise apsw.exception_for(apsw.SQLITE_FULL)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.require_up(self._boot)
        self._disk.strike(apsw.SQLITE_IOERR_TRUNCATE)
        change = _Cut(newsize)
        _apply(self._inode.contents, change)
        self._inode.pending.append(change)

    def xSync(self, flags: int) -> None:  # noqa: N802
        disk = self._disk
        disk.require_up(self._boot)
        disk.elapsed_ms += disk.sync_ms
        try:
            disk.strike(apsw.SQLITE_IOERR_FSYNC)
        except apsw.IOError:
            disk.lose_pending(self._inode)
            raise
        self._inode.settle()
        if self._inode.is_new_journal:
            self._inode.is_new_journal = False
            disk.settle_directory()

    def xFileSize(self) -> int:  # noqa: N802
        self._disk.require_up(self._boot)
        return len(self._inode.contents)

    def xClose(self) -> None:  # noqa: N802
        self._inode.locks.pop(self, None)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._disk.require_up(self._boot)
        others = max(
            (held for who, held in self._inode.locks.items() if who is not self), default=0
        )
        # A shared lock bears all but a pending one; the pending and exclusive bear none.
        refused = others >= (
            apsw.SQLITE_LOCK_PENDING
            if level == apsw.SQLITE_LOCK_SHARED
            else apsw.SQLITE_LOCK_RESERVED
            if level == apsw.SQLITE_LOCK_RESERVED
            else apsw.SQLITE_LOCK_SHARED
        )
        if refused:
            raise apsw.exception_for(apsw.SQLITE_BUSY)
        self._inode.locks[self] = max(level, self._inode.locks.get(self, 0))

    def xUnlock(self, level: int) -> None:  # noqa: N802
        if level == apsw.SQLITE_LOCK_NONE:
            self._inode.locks.pop(self, None)
        else:
            self._inode.locks[self] = level

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        held = self._inode.locks.values()
        return any(level >= apsw.SQLITE_LOCK_RESERVED for level in held)

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # as SQLite takes every disk to be


def _apply(side: bytearray, change: _Write | _Cut) -> None:
    if isinstance(change, _Cut):
        if change.size_bytes < len(side):
            del side[change.size_bytes :]
        return
    if change.offset > len(side):
        side.extend(bytes(change.offset - len(side)))
    side[change.offset : change.offset + len(change.data)] = change.data


def _apply_torn(side: bytearray, change: _Write, random: Random) -> None:
    """Some sectors of a write."""
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if random.random() < 1 / 2:
            part = change.data[start - change.offset : stop - change.offset]
            _apply(side, _Write(start, part))
        start = stop
