"""The audit log: who changed what, through which door, and how it ended.

A line of JSON each, in `audit.jsonl` of the data directory. A file that has grown to its limit
becomes `audit.jsonl.1`, the one before it `.2`, and the oldest goes. Nothing here holds a secret:
tokens are named, never shown. A line that cannot be written is an error in the broker's log and
stops nobody's work, as a full disk would else lock out the operator who is to repair it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AUDIT_FILE = "audit.jsonl"
FILE_BYTES_MAX = 16 * 1024 * 1024
FILES_KEPT = 5  # besides the one that is written
ENTRIES_IN_MEMORY = 1_000  # where there is no data directory
RESOURCE_CHARS_MAX = 200  # names come from strangers too

logger = logging.getLogger("nexo.access")


class AuditEntry(msgspec.Struct, frozen=True):
    at_ms: int
    who: str  # the name of the token
    peer: str  # the address it came from
    door: str
    action: str
    resource: str
    outcome: str = ""  # `done`, or the code of what stopped it

    def ended(self, outcome: str) -> AuditEntry:
        resource = self.resource[:RESOURCE_CHARS_MAX]
        return msgspec.structs.replace(self, outcome=outcome, resource=resource)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class Audit:
    """`directory` None: the last entries are kept in memory."""

    def __init__(
        self,
        directory: Path | None,
        *,
        bytes_max: int = FILE_BYTES_MAX,
        files_kept: int = FILES_KEPT,
    ) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._files_kept = files_kept
        self._recent: deque[AuditEntry] = deque(maxlen=ENTRIES_IN_MEMORY)
        self._failed = False

    def write(self, entry: AuditEntry) -> None:
        if self._directory is None:
            self._recent.append(entry)
            return
        try:
            self._append(self._directory / AUDIT_FILE, _encode(entry) + b"\n")
        except OSError as error:
            if not self._failed:
                reason = os.strerror(error.errno or 0)
                logger.error("the audit log cannot be written", extra={"reason": reason})
            self._failed = True
        else:
            self._failed = False

    def read(self, limit: int) -> list[AuditEntry]:
        """The newest entries, the newest first."""
        if self._directory is None:
            return list(self._recent)[: -limit - 1 : -1]
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


def read_audit(directory: Path, limit: int, files_kept: int = FILES_KEPT) -> list[AuditEntry]:
    """The newest entries in a data directory, the newest first; a broker may be writing there."""
    path = directory / AUDIT_FILE
    found: list[AuditEntry] = []
    for each in (path, *_older(path, files_kept)):
        for line in _lines_backwards(each):
            if len(found) >= limit:
                return found
            with contextlib.suppress(msgspec.DecodeError):  # a crash may cut the last line
                found.append(_decode(line))
    return found


def _older(path: Path, files_kept: int) -> list[Path]:
    return [path.with_name(f"{path.name}.{number}") for number in range(1, files_kept + 1)]


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    yield from reversed(lines)
