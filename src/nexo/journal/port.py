"""The journal port: what any store must do to keep a broker's promises. This is the whole page.

An *owner* is a number that stands for the catalog (0), a queue or a topic. An owner's state is its
last snapshot plus the records written since, both opaque bytes here. Payloads are *rows*: batches
under a number that the engine hands out, never used twice, held by one or more owners. Nothing
here names a file: a store may as well be a database on another machine.

All methods are called by one thread at a time and may block. A method that raises `ReadOnly` has
changed nothing that a later `load` would show, except that a commit whose outcome the store
cannot know (a failed fsync) may turn out to have happened; the engine then loads everything anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from nexo.vocabulary.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence


CATALOG = 0  # the owner number of the catalog


class Write(msgspec.Struct, frozen=True, gc=False):
    """What changed in one owner. A snapshot stands for every earlier record, this one included."""

    owner: int
    record: bytes
    snapshot: bytes | bytearray | None = None


class Commit(msgspec.Struct, frozen=True):
    """Everything that becomes durable together, or not at all."""

    writes: list[Write]
    rows: list[tuple[int, Batch]]
    dropped_rows: list[int]
    dropped_owners: list[int]


class Stored(msgspec.Struct, frozen=True):
    """An owner as it was last committed: the records follow the snapshot, oldest first."""

    snapshot: bytes | None
    records: list[bytes]


class Usage(msgspec.Struct, frozen=True):
    """How much room the store takes, in bytes; `free_bytes` is inside the store, reusable."""

    stored_bytes: int
    free_bytes: int


class Copied(msgspec.Struct, frozen=True):
    """How far a copy is, in bytes."""

    copied_bytes: int
    total_bytes: int  # it may grow on the way
    done: bool


class Copy(Protocol):
    """A copy of everything, made in steps between which commits go on."""

    def step(self) -> Copied:
        """A few milliseconds of copying. When it is done, the copy is the store as of its last
        commit, durably."""

    def read(self, offset: int, size: int) -> bytes:
        """A part of the finished copy, from any thread; empty at its end."""

    def close(self) -> None:
        """Forget it, finished or not."""


class Journal(Protocol):
    def open(self) -> int:
        """Open and recover; returns the boot epoch: one more than at any open before, durably."""

    def owners(self) -> list[int]:
        """The owners that have state."""

    def load(self, owner: int) -> Stored:
        """The state of an owner; an unknown one is empty."""

    def last_row(self) -> int:
        """The highest row number ever committed, also if all rows are gone since; 0 at first."""

    @property
    def next_is_long(self) -> bool:
        """Whether the next commit has work of the journal's own to do as well, which takes its
        time however quick the disk is."""

    def commit(self, commit: Commit) -> float:
        """Make it durable: when this returns, it is on disk. Tells how many seconds the disk
        itself took."""

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        """These rows, in this order. `DataCorrupt` if one is missing or its checksum is wrong."""

    def usage(self) -> Usage:
        """The room taken."""

    def tidy(self) -> bool:
        """Idle work, a short step at a time (giving space back); true if there is more to do."""

    def copy(self) -> Copy:
        """Begin a copy; there is one at a time."""

    def close(self) -> None:
        """Let go of everything; a closed journal may be opened again."""


class Writing(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A call of `commit` as a value: who runs it for several journals of one store may join it
    with others' and write all of them at once."""

    journal: Journal
    commit: Commit

    def __call__(self) -> float:
        return self.journal.commit(self.commit)


class Committing(Protocol):
    """Whoever has something to write: to a journal of its own, or as one of many of a store."""

    @property
    def journal(self) -> Journal: ...

    def begin(self) -> None:
        """Write it."""

    def begin_joined(self) -> Commit | None:
        """What it is, if it is to be written with that of others; `end_joined` is told how that
        ended. None: there is nothing, or it goes the usual way."""

    def end_joined(self, sync_s: float | None, error: BaseException | None) -> None: ...
