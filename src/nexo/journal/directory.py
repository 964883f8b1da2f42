"""The data directory: its creation, its durability, and who has it open.

SQLite's own lock is what keeps a second broker out; `journal.lock` only says who holds it, so that
the refusal can name the other process. A lock file left by a killed broker means nothing.

A directory that is made here is for the broker's user alone. One that is there already may be open
to others. That is told, not refused: volumes of containers are often made so, by root, and the
files in them are private. It is refused only if another user owns it and everybody may write there:
then that user, and anybody else, can put a journal of their own in place, with their tokens in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import InvalidArgument, ReadOnly

if TYPE_CHECKING:
    from pathlib import Path

LOCK_FILE = "journal.lock"
PRIVATE = 0o600


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_file = path / LOCK_FILE

    def make(self) -> None:
        """Create it with its parents, durably: an entry lives in the directory above it."""
        self._check_owner()
        made = []
        path = self._path
        while not path.exists():
            made.append(path)
            path = path.parent
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in reversed(made):
                _synchronize(path.parent)
        except OSError as error:
            raise ReadOnly(
                f"cannot create the data directory {self._path}: {error.strerror}",
                "check the path and its permissions",
            ) from error

    def exposure(self) -> str:
        """What others may do with the directory, in words; empty if nothing, or if there is none
        yet."""
        try:
            mode = self._path.stat().st_mode
        except OSError:
            return ""
        for bits, who in ((stat.S_IRWXO, "everybody on this machine"), (stat.S_IRWXG, "its group")):
            if mode & bits:
                can = "change" if mode & bits & (stat.S_IWOTH | stat.S_IWGRP) else "look into"
                return f"{who} can {can} the data directory {self._path}"
        return ""

    @property
    def remedy(self) -> str:
        return f"chmod 700 {self._path}"

    def _check_owner(self) -> None:
        try:
            found = self._path.stat()
        except OSError:
            return
        is_foreign = found.st_uid not in (0, os.geteuid())
        if is_foreign and found.st_mode & stat.S_IWOTH:
            raise InvalidArgument(
                f"the data directory {self._path} belongs to user {found.st_uid}, and everybody "
                "can change it",
                f"choose another directory, or make it private: chown {os.geteuid()} {self._path}; "
                f"{self.remedy}",
            )

    def keep_private(self, file: Path) -> None:
        """Messages and the secrets of access keys are for the broker's user alone. The file is
        made here if it is not there: SQLite gives its WAL the same permissions. One that is there
        is not opened, since to close it again would undo the locks that this process has on it."""
        with contextlib.suppress(OSError):  # SQLite is about to say what is wrong, in its words
            if file.exists():
                file.chmod(PRIVATE)
            else:
                make_private(file)

    def settle(self) -> None:
        """Make the entries of the files in it durable. SQLite does so for its WAL, not for the
        file itself."""
        try:
            _synchronize(self._path)
        except OSError as error:
            raise ReadOnly(
                f"the data directory {self._path} cannot be synchronized: {error.strerror}",
                "check the system log for disk errors",
            ) from error

    def free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self._path).free
        except OSError:
            return 0

    def sign(self) -> None:
        """Say who holds the lock. On a full disk the broker goes on unnamed."""
        self.keep_private(self._lock_file)
        with contextlib.suppress(OSError):
            self._lock_file.write_text(f"{os.getpid()}\n", encoding="ascii")

    def unsign(self) -> None:
        with contextlib.suppress(OSError):
            self._lock_file.unlink(missing_ok=True)

    def owner(self) -> int | None:
        """The process that signed last."""
        try:
            return int(self._lock_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


def make_private(file: Path) -> None:
    """Make an empty file that nobody else could read at any moment. It must not be there yet."""
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))


def _synchronize(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
