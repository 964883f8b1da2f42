"""What an owner writes in a commit: a record of its changes, now and then a snapshot instead.

A start reads every snapshot and folds the records since. So that it costs what is held and not
what happened, the records of an owner that are more than its snapshot are *unfolded*, and those
of all owners together stay below a limit: beyond it, who has the most takes a snapshot with the
next commit. A snapshot is thus never larger than the records that made it due, and writing them
costs at most as much again as the records did.

A large snapshot takes several commits: each takes down a bounded part of the state, and the last
one writes all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nexo.engine.actor import PartOf
from nexo.journal.port import Write
from nexo.vocabulary import limits
from nexo.vocabulary.changes import encode_changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.committer import Draft, Participant
    from nexo.machine.snapshot import SnapshotInSteps

_SIZES = 64  # of unfolded bytes, by their number of bits


class StoredBytes(NamedTuple):
    """What the journal holds of an owner."""

    snapshot: int = 0
    records: int = 0


class Recorder(PartOf["Participant"]):
    """Writes for one owner."""

    __slots__ = (
        "_all",
        "_is_closed",
        "_making",
        "_owner",
        "_records",
        "_snapshot",
        "is_due",
        "size",
        "unfolded",
    )

    def __init__(self, all_recorders: Recorders, owner: int, actor: Participant) -> None:
        super().__init__(actor)
        self._all = all_recorders
        self._owner = owner
        self._snapshot, self._records = all_recorders.stored.pop(owner, StoredBytes())
        self.unfolded = 0  # the bytes of records beyond those of the snapshot …
        self.size = 0  # … and their number of bits: where `Recorders` has it
        self.is_due = False  # a snapshot is, with the next commit or a few more
        self._making: SnapshotInSteps | None = None
        self._is_closed = False
        self._weigh()

    def write(self, draft: Draft, changes: list[Any], begin: Callable[[], SnapshotInSteps]) -> bool:
        """Put the changes into the draft; true if a snapshot was taken."""
        record = b""
        if changes:
            record = encode_changes(changes)
            if self._making is not None:
                self._making.note(changes)
            if not self._is_closed:
                self._records += len(record)
                self._weigh()
                self._all.bound(self)
        elif not self.is_due:
            return False
        taken = self._go_on(draft, begin) if self.is_due else None
        if taken is None:
            if record:
                draft.writes.append(Write(self._owner, record))
            return False
        self._snapshot, self._records, self.is_due = len(taken), 0, False
        self._weigh()
        draft.add_snapshot(self._owner, record, taken)
        return True

    def _go_on(self, draft: Draft, begin: Callable[[], SnapshotInSteps]) -> bytearray | None:
        """Take down as much as this commit has room for; the snapshot, if that was the rest."""
        making = self._making
        if draft.snapshot_entries > 0:
            if making is None:
                making = self._making = begin()
            draft.snapshot_entries -= making.step(draft.snapshot_entries)
            if making.is_done:
                self._making = None
                return making.encoded
        self.come_back()
        return None

    def close(self) -> None:
        """The owner is about to be dropped: nothing but its last record may be written."""
        self._all.note(self, 0)
        self._is_closed, self.is_due, self._making = True, False, None

    def renewed(self, all_recorders: Recorders) -> Recorder:
        """The one to go on with when the owner's state was loaded anew."""
        self.close()
        all_recorders.stored.setdefault(self._owner, StoredBytes(self._snapshot, self._records))
        return Recorder(all_recorders, self._owner, self._actor)

    def come_back(self) -> None:
        """There is something for the next commit."""
        self._all.enlist_lazily(self._actor)

    def _weigh(self) -> None:
        if not self.is_due:
            unfolded = self._records - max(self._snapshot, limits.SNAPSHOT_BYTES_MIN)
            self._all.note(self, max(0, unfolded))


class Recorders:
    """All of an engine's, and how much a start would have to fold for them."""

    def __init__(
        self, enlist_lazily: Callable[[Participant], None], stored: dict[int, StoredBytes]
    ) -> None:
        self.enlist_lazily = enlist_lazily
        self._by_size: list[dict[Recorder, None]] = [{} for _ in range(_SIZES)]
        self.unfolded = 0
        self.stored = stored  # of owners that have no recorder yet

    def note(self, recorder: Recorder, unfolded: int) -> None:
        """A recorder has more or less that is unfolded than before."""
        self.unfolded += unfolded - recorder.unfolded
        recorder.unfolded = unfolded
        size = unfolded.bit_length()
        if size != recorder.size:
            self._by_size[recorder.size].pop(recorder, None)
            recorder.size = size
            if size:
                self._by_size[size][recorder] = None

    def bound(self, writing: Recorder) -> None:
        """Make snapshots due until what is unfolded is below the limit."""
        while self.unfolded > limits.UNFOLDED_BYTES_MAX:
            largest = next(of_size for of_size in reversed(self._by_size) if of_size)
            self._make_due(next(iter(largest)), writing)

    def fold_all(self) -> None:
        """Before an orderly end: the next start shall find snapshots alone."""
        for of_size in self._by_size:
            for recorder in list(of_size):
                self._make_due(recorder, None)

    def _make_due(self, recorder: Recorder, writing: Recorder | None) -> None:
        self.note(recorder, 0)
        recorder.is_due = True
        if recorder is not writing:
            recorder.come_back()
