"""The audit log: who changed what, through which door, and how it ended.

A line of JSON each, in `audit.jsonl` of the data directory. A file that has grown to its limit
becomes `audit.jsonl.1`, the one before it `.2`, and the oldest goes. Nothing here holds a secret:
tokens are named, never shown. A line that cannot be written is an error in the broker's log and
stops nobody's work, as a full disk would else lock out the operator who is to repair it.

Whoever has any token can be refused thousands of times a second. What was refused therefore has
files of its own, so that it never pushes out what was done; and of refusals that are alike only the
first few within a minute have lines, the rest are counted and told as one when the minute is over.
What was done has a line each, always.

Entries are numbered in the order in which they are written, over both kinds of files and from one
start to the next: times may be alike, or go back with the clock.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.limits import (
    AUDIT_ENTRIES_IN_MEMORY,
    AUDIT_FILE_BYTES_MAX,
    AUDIT_FILES_KEPT,
    AUDIT_REFUSED_KINDS_MAX,
    AUDIT_REFUSED_LINES_MAX,
    AUDIT_REFUSED_WINDOW_MS,
    AUDIT_RESOURCE_CHARS_MAX,
    AUDIT_TAIL_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

AUDIT_FILE = "audit.jsonl"  # what was done
REFUSED_FILE = "audit-refused.jsonl"

logger = logging.getLogger("nexo.access")


class AuditEntry(msgspec.Struct, frozen=True):
    at_ms: int
    who: str  # the name of the token
    peer: str  # the address it came from
    door: str
    action: str
    resource: str
    outcome: str = ""  # `done`, or the code of what stopped it
    count: int = 1  # how many that are alike this stands for; the rest tells of the last of them
    number: int = 0  # in the order in which they were written; 0: by an earlier version

    def ended(self, outcome: str) -> AuditEntry:
        resource = self.resource[:AUDIT_RESOURCE_CHARS_MAX]
        return msgspec.structs.replace(self, outcome=outcome, resource=resource)


_FILES = (AUDIT_FILE, REFUSED_FILE)
_Kind = tuple[str, str, str, str, str]
_OTHERS: _Kind = ("(others)", "", "", "(several)", "refused")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class Audit:
    """`directory` None: the last entries are kept in memory."""

    def __init__(
        self,
        directory: Path | None,
        *,
        bytes_max: int = AUDIT_FILE_BYTES_MAX,
        files_kept: int = AUDIT_FILES_KEPT,
        tell: bool = False,
    ) -> None:
        """`tell`: entries go to the log of the broker as well, for who has no files to keep."""
        self._directory = directory
        self._tell = tell
        self._bytes_max = bytes_max
        self._files_kept = files_kept
        self._recent: dict[str, deque[AuditEntry]] = {
            name: deque(maxlen=AUDIT_ENTRIES_IN_MEMORY) for name in _FILES
        }
        self._refusals = _Refusals()
        self._failed = False
        self._number = 0 if directory is None else _last_number(directory, files_kept)

    def write(self, entry: AuditEntry) -> None:
        """What was done, or may have been: it is never left out."""
        self._write(AUDIT_FILE, entry)

    def write_refused(self, entry: AuditEntry) -> None:
        """What was refused, so that nothing was done."""
        for each in self._refusals.take(entry):
            self._write(REFUSED_FILE, each)

    def flush(self, now_ms: int | None = None) -> None:
        """Tell of the refusals that were only counted, if their minute is over; without a time
        in any case."""
        for each in self._refusals.end(now_ms):
            self._write(REFUSED_FILE, each)

    def _write(self, file: str, entry: AuditEntry) -> None:
        self._number += 1
        entry = msgspec.structs.replace(entry, number=self._number)
        if self._tell:
            logger.info("audit", extra=msgspec.structs.asdict(entry))
        if self._directory is None:
            self._recent[file].append(entry)
            return
        try:
            self._append(self._directory / file, _encode(entry) + b"\n")
        except OSError as error:
            if not self._failed:
                reason = os.strerror(error.errno or 0)
                logger.error("cannot write the audit log", extra={"reason": reason})
            self._failed = True
        else:
            self._failed = False

    def read(self, limit: int) -> list[AuditEntry]:
        """The newest entries, the newest first."""
        if self._directory is None:
            return _newest((reversed(each) for each in self._recent.values()), limit)
        return read_audit(self._directory, limit)

    def _append(self, path: Path, line: bytes) -> None:
        # Opened each time: management is rare, and a file that somebody moved away is made anew.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size >= self._bytes_max:
            self._rotate(path)

    def _rotate(self, path: Path) -> None:
        files = [path, *_older(path, self._files_kept)]
        for newer, older in reversed(list(itertools.pairwise(files))):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)


class _Refusals:
    """Refusals of the last minute by what they have in common; the name they were about does not
    count, since whoever is refused chooses it."""

    def __init__(self) -> None:
        self._began_ms = 0
        self._lines: dict[_Kind, int] = {}
        self._counted: dict[_Kind, AuditEntry] = {}

    def take(self, entry: AuditEntry) -> list[AuditEntry]:
        """The lines to write now."""
        told = self.end(entry.at_ms)
        if not self._lines:
            self._began_ms = entry.at_ms
        kind = (entry.who, entry.peer, entry.door, entry.action, entry.outcome)
        if kind not in self._lines and len(self._lines) >= AUDIT_REFUSED_KINDS_MAX:
            kind = _OTHERS
            who, peer, door, action, outcome = kind
            entry = AuditEntry(entry.at_ms, who, peer, door, action, "", outcome)
        lines = self._lines[kind] = self._lines.get(kind, 0) + 1
        if lines <= AUDIT_REFUSED_LINES_MAX and kind is not _OTHERS:
            told.append(entry)
        else:
            before = self._counted.get(kind)
            count = 1 if before is None else before.count + 1
            self._counted[kind] = msgspec.structs.replace(entry, count=count)
        return told

    def end(self, now_ms: int | None) -> list[AuditEntry]:
        """What was counted in a window that is over; nothing while it is not. A clock that was
        set back ends it too."""
        if now_ms is not None and 0 <= now_ms - self._began_ms < AUDIT_REFUSED_WINDOW_MS:
            return []
        told = sorted(self._counted.values(), key=lambda entry: entry.at_ms)
        self._lines.clear()
        self._counted.clear()
        return told


def read_audit(directory: Path, limit: int, files_kept: int = AUDIT_FILES_KEPT) -> list[AuditEntry]:
    """The newest entries in a data directory, the newest first; a broker may be writing there."""
    return _newest((_entries(directory / name, files_kept) for name in _FILES), limit)


def _newest(sources: Iterable[Iterable[AuditEntry]], limit: int) -> list[AuditEntry]:
    merged = heapq.merge(*sources, key=_order, reverse=True)
    return list(itertools.islice(merged, limit))


def _order(entry: AuditEntry) -> tuple[int, int]:
    return entry.number, entry.at_ms


def _last_number(directory: Path, files_kept: int) -> int:
    """The number of the entry that was written last."""
    newest = [
        next(_entries(directory / name, files_kept, AUDIT_TAIL_BYTES), None) for name in _FILES
    ]
    return max((entry.number for entry in newest if entry is not None), default=0)


def _entries(path: Path, files_kept: int, bytes_max: int = -1) -> Iterator[AuditEntry]:
    """The entries of a file and those before it, the newest first; of each file the last bytes."""
    for each in (path, *_older(path, files_kept)):
        for line in _lines_backwards(each, bytes_max):
            with contextlib.suppress(msgspec.DecodeError):  # a crash may cut the last line
                yield _decode(line)


def _older(path: Path, files_kept: int) -> list[Path]:
    return [path.with_name(f"{path.name}.{number}") for number in range(1, files_kept + 1)]


def _lines_backwards(path: Path, bytes_max: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            if bytes_max >= 0:
                file.seek(max(0, file.seek(0, os.SEEK_END) - bytes_max))
            lines = file.read().splitlines()
    except (
        FileNotFoundError,
        NotADirectoryError,
    ):  # the journal says what is wrong with the folder
        return
    yield from reversed(lines)
