"""What an owner writes in a commit: a record of its changes, now and then a snapshot instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.journal.port import Write
from nexo.vocabulary.changes import encode_changes
from nexo.vocabulary.limits import RECORD_BYTES_BEFORE_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.committer import Draft


class Recorder:
    """A snapshot is due when the records since the last one are twice its size, so folding costs
    a fixed share of the writing however large the state is."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._record_bytes = 0
        self._snapshot_bytes = 0

    def write(self, draft: Draft, changes: list[Any], snapshot: Callable[[], bytes]) -> bool:
        """Put the changes into the draft; true if a snapshot was taken."""
        if not changes:
            return False
        record = encode_changes(changes)
        self._record_bytes += len(record)
        taken = None
        if self._record_bytes > max(RECORD_BYTES_BEFORE_SNAPSHOT, 2 * self._snapshot_bytes):
            taken = snapshot()
            self._snapshot_bytes, self._record_bytes = len(taken), 0
        draft.writes.append(Write(self._owner, record, taken))
        return taken is not None
