"""Backups of a running broker: copied between commits, handed out in pieces, then forgotten."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.audit import audit
from nexo.journal.backup import restore as restore_journal
from nexo.journal.sqlite import JOURNAL_FILE
from nexo.vocabulary.errors import (
    DataCorrupt,
    InvalidArgument,
    NexoError,
    NotReady,
    RateLimited,
)
from nexo.vocabulary.limits import (
    BACKUP_IDLE_MS,
    BACKUP_PIECE_BYTES_MAX,
    BACKUP_SILENCE_MS,
    JOURNAL_USAGE_S,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from nexo.engine.context import Context
    from nexo.journal.port import Copy, Usage
    from nexo.journal.verify import Report


class BackupProgress(msgspec.Struct, frozen=True):
    backup: int
    copied_bytes: int
    total_bytes: int
    done: bool
    sha256: str = ""  # of the whole, once it is done


async def usage_if_known(backups: Backups) -> Usage | None:
    """The room that the journal takes, for who has more to tell than that; None while it cannot be
    asked, as a database that is away."""
    try:
        async with asyncio.timeout(JOURNAL_USAGE_S):
            return await backups.usage()
    except (NexoError, TimeoutError):
        return None


class Backups:
    """One at a time: a copy takes as much room as the journal itself. Whoever wants it asks for it
    several times a second, so one that nobody asks for was given up, and gives way to the next."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._number = 0
        self._beginning = False
        self._running: _Backup | None = None
        self._failed: tuple[int, BaseException] | None = None  # the last that did, and why

    async def begin(self) -> BackupProgress:
        """Begin a copy of everything. It ends by itself if nobody asks for it any more."""
        running = self._running
        if self._beginning or (running is not None and not running.is_given_up):
            raise RateLimited(
                "another backup is running", "wait until it has finished, then try again"
            )
        if running is not None:
            running.close()
        self._beginning = True
        try:
            copy = await self._context.desk.call(self._context.journal.copy, is_long=True)
        finally:
            self._beginning = False
        self._number += 1
        self._running = _Backup(self._context, self._number, copy, self._forget)
        return self._running.progress()

    async def usage(self) -> Usage:
        """The room that the journal takes."""
        usage: Usage = await self._context.desk.call(self._context.journal.usage)
        return usage

    async def progress(self, number: int, wait_ms: int = 0) -> BackupProgress:
        """How far it is; waits up to `wait_ms` for the end."""
        backup = self._find(number)
        await backup.wait(wait_ms)
        return backup.progress()

    async def read(self, number: int, offset: int, size: int) -> bytes:
        """A piece of a finished backup; empty at its end."""
        backup = self._find(number)
        if offset < 0 or not 0 < size <= BACKUP_PIECE_BYTES_MAX:
            raise InvalidArgument(f"a piece has 1 to {BACKUP_PIECE_BYTES_MAX} bytes")
        return await backup.read(offset, size)

    def end(self, number: int) -> None:
        self._find(number).close()

    async def close(self) -> None:
        """The broker stops: the copy is forgotten before the desk closes."""
        if self._running is not None:
            self._running.close()
            await self._context.desk.call(lambda: None)

    def _find(self, number: int) -> _Backup:
        if self._failed is not None and self._failed[0] == number:
            raise self._failed[1]
        if self._running is None or self._running.number != number:
            raise InvalidArgument(f"there is no backup {number}", "start a new one")
        self._running.touch()
        return self._running

    def _forget(self, number: int, error: BaseException | None) -> None:
        """The next may begin: at the desk its copy waits until this one's is removed."""
        self._running = None
        if error is not None:
            self._failed = (number, error)


class _Backup:
    """One copy under way, or finished and being fetched."""

    def __init__(
        self,
        context: Context,
        number: int,
        copy: Copy,
        forget: Callable[[int, BaseException | None], None],
    ) -> None:
        self.number = number
        self._context = context
        self._copy = copy
        self._forget = forget
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._now = BackupProgress(number, 0, 0, False)
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._ended)
        self.touch()

    async def _run(self) -> None:
        """Commits go first at the desk, so they only ever wait for one step."""
        step = await self._context.desk.call(self._copy.step, is_long=True)
        while not step.done:
            self._now = BackupProgress(self.number, step.copied_bytes, step.total_bytes, False)
            step = await self._context.desk.call(self._copy.step, is_long=True)
        digest = await asyncio.to_thread(_digest, self._copy)
        self._now = BackupProgress(self.number, step.total_bytes, step.total_bytes, True, digest)

    def progress(self) -> BackupProgress:
        if self._task.cancelled():
            raise NotReady("the backup was cancelled", "start a new one")
        if self._task.done() and (error := self._task.exception()) is not None:
            raise error
        return self._now

    async def wait(self, wait_ms: int) -> None:
        if wait_ms > 0:
            await asyncio.wait([self._task], timeout=wait_ms / 1000)

    async def read(self, offset: int, size: int) -> bytes:
        if not self._now.done:
            raise InvalidArgument("the backup is not done yet", "wait for it")
        return await asyncio.to_thread(self._copy.read, offset, size)

    def touch(self) -> None:
        """Somebody still wants it."""
        if self._idle is not None:
            self._idle.cancel()
        self._touched_s = self._loop.time()
        self._idle = self._loop.call_later(BACKUP_IDLE_MS / 1000, self.close)

    @property
    def is_given_up(self) -> bool:
        """Whether nobody has asked for it for long enough."""
        return self._loop.time() - self._touched_s >= BACKUP_SILENCE_MS / 1000

    def close(self, error: BaseException | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        self._task.cancel()
        self._forget(self.number, error)
        # At the desk: a step may be running in its thread.
        self._context.desk.submit(self._copy.close, lambda _, __: None, is_long=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What failed is let go of at once, and told to whoever asks for it next."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.close(error)


def restore(
    backup: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    copied: Callable[[int, int], None],
) -> Report:
    """Make a data directory from a backup and check all of it. `copied` hears how many bytes of
    how many are there."""
    restore_journal(backup, directory, JOURNAL_FILE, copied)
    report = audit(directory)
    if not report.is_sound:
        raise DataCorrupt(
            f"the backup is damaged: {report.findings[0].problem}",
            f"see nexo doctor --data {directory}, and take another backup",
        )
    return report


def _digest(copy: Copy) -> str:
    digest, offset = hashlib.sha256(), 0
    while piece := copy.read(offset, BACKUP_PIECE_BYTES_MAX):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
