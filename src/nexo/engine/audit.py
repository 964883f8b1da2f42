"""The audit of a data directory: the journal's own check, plus whether its records make sense."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.recovery import (
    load_catalog,
    load_queue,
    load_topic,
    new_queue,
    new_topic,
    rows_of,
)
from nexo.journal.port import CATALOG
from nexo.journal.verify import verify
from nexo.machine import invariants
from nexo.machine.catalog import Catalog
from nexo.vocabulary.changes import QueueDefined
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    import os

    from nexo.journal.port import Stored
    from nexo.journal.verify import Report


def audit(path: str | os.PathLike[str], *, vfs: str | None = None) -> Report:
    """Check a data directory that no broker has open; nothing is changed."""
    fold = RecordFold()
    report = verify(path, fold, vfs=vfs)
    return msgspec.structs.replace(
        report, latest_ms=fold.latest_ms, queues=fold.queues, queued=fold.queued
    )


class RecordFold:
    """Folds each owner's records as a start would, and looks at what comes out."""

    def __init__(self) -> None:
        self._catalog = Catalog()
        self.latest_ms = 0
        self.queues = 0
        self.queued = 0  # messages in them; in topics there are more

    def rows_of(self, owner: int, stored: Stored) -> tuple[set[int], list[str]]:
        """The rows that the owner's state refers to, and complaints about that state."""
        try:
            if owner == CATALOG:
                self._catalog = load_catalog(stored)
                return set(), []
            return self._rows(owner, stored)
        except NexoError as error:
            return set(), [error.message]
        except AssertionError as broken:
            return set(), [f"the state of owner {owner} contradicts itself: {broken}"]

    def _rows(self, owner: int, stored: Stored) -> tuple[set[int], list[str]]:
        defined = self._catalog.definition(owner)
        if isinstance(defined, QueueDefined):
            queue = new_queue(defined, count(1), 1)
            load_queue(queue, stored)
            self.latest_ms = max(self.latest_ms, queue.now_ms)
            self.queues += 1
            self.queued += queue.depth
            invariants.check(queue)
            return {row for rows in rows_of(queue) for row in rows}, []
        if defined is not None:
            topic = new_topic(defined, count(1))
            load_topic(topic, stored)
            self.latest_ms = max(self.latest_ms, topic.now_ms)
            return {row for rows in rows_of(topic) for row in rows}, []
        return set(), [f"owner {owner} has state but is not in the catalog"]
