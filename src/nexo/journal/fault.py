"""What SQLite reports, as errors of the house.

| SQLite                            | raised        | the journal then, if it was writing |
|-----------------------------------|---------------|-------------------------------------|
| FULL                              | `ReadOnly`    | goes on, with a rolled back file    |
| IOERR, READONLY, CANTOPEN, others | `ReadOnly`    | is broken until opened again        |
| CORRUPT, NOTADB                   | `DataCorrupt` | is broken until opened again        |
| BUSY, LOCKED                      | `NotReady`    | was not open                        |
"""

from __future__ import annotations

import apsw

from nexo.journal.rows import CORRUPT_HINT
from nexo.vocabulary.errors import DataCorrupt, NexoError, NotReady, ReadOnly

FULL_HINT = "free some space: pushes are accepted again by themselves when there is room"
FAILED_HINT = "look at the system log for disk errors, and check the mount and its permissions"


def disk_full(file: str) -> ReadOnly:
    return ReadOnly(f"the disk under {file} is full, nothing was stored", FULL_HINT)


def translate(error: apsw.Error, doing: str, file: str) -> NexoError:
    """The error to raise for one that SQLite raised while `doing` something to `file`."""
    if isinstance(error, apsw.FullError):
        return disk_full(file)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return NotReady(
            f"{file} is in use by another process",
            "only one broker may use a data directory: stop the other, or choose another directory",
        )
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return DataCorrupt(f"{doing} {file}: {error}", CORRUPT_HINT)
    return ReadOnly(f"{doing} {file} failed: {describe(error)}", FAILED_HINT)


def describe(error: apsw.Error) -> str:
    """SQLite's words with the name of its code, which tells a failed fsync from a failed write."""
    code = getattr(error, "extendedresult", 0)
    name = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code)
    text = str(error) or type(error).__name__
    return f"{text} [{name}]" if isinstance(name, str) else text
