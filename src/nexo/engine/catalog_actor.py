"""The actor of the catalog. In a commit it writes a record of its changes, now and then a snapshot.

The definitions of a hundred thousand queues are too many to be encoded in one step. So the
snapshot is that of one moment, encoded piece by piece while the broker works on, and is written
with the records of all that changed since that moment behind it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.engine.committer import CATALOG_RANK
from nexo.engine.recorder import StoredBytes
from nexo.journal.port import CATALOG, Write
from nexo.machine.catalog import Catalog, encoded_in_steps
from nexo.vocabulary import limits
from nexo.vocabulary.changes import Dropped, encode_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.committer import Draft
    from nexo.engine.context import Context
    from nexo.vocabulary.errors import NexoError


class CatalogActor:
    rank = CATALOG_RANK
    owner = CATALOG
    label = "the catalog"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.catalog = Catalog()
        self._record = CatalogRecord(self.enlist, StoredBytes())

    def enlist(self) -> None:
        """A definition changed that must be written now."""
        self._context.committer.enlist(self)

    async def durable(self) -> None:
        """Wait until what is defined now is on disk."""
        self.enlist()
        await self._context.committer.when_durable(None, self)

    def load(self, catalog: Catalog, stored: StoredBytes) -> None:
        """The catalog as the journal has it."""
        self.catalog = catalog
        self._record.close()
        self._record = CatalogRecord(self.enlist, stored)

    # -- In commits ---------------------------------------------------------------------------

    def collect(self, draft: Draft) -> None:
        changes = self.catalog.changes
        draft.dropped_owners += [each.owner for each in changes if isinstance(each, Dropped)]
        self._record.write(draft, self.catalog)

    def settle(self, mark: Any) -> None:
        """Nothing waits for a definition but its caller."""

    def suspend(self, error: NexoError) -> None:
        """Whoever needs the catalog is refused by the reload that follows."""

    def reopen(self) -> None:
        """It is never out of service for longer than a reload."""


class CatalogRecord:
    """A snapshot is due when the records since the last one are twice its size, so taking it
    costs a fixed share of the writing however many definitions there are."""

    def __init__(self, on_snapshot: Callable[[], None], stored: StoredBytes) -> None:
        """`on_snapshot` is told when a snapshot waits for a commit to be written with."""
        self._on_snapshot = on_snapshot
        self._snapshot_bytes, self._record_bytes = stored
        self._pieces: Iterator[bytes] | None = None  # those to come of a snapshot under way …
        self._encoded = bytearray()  # … what is there of it: it grows without being copied …
        self._since: list[bytes] = []  # … and the records that come behind it
        self._is_ready = False
        self._step: asyncio.Handle | None = None

    def write(self, draft: Draft, catalog: Catalog) -> None:
        """Put what changed since the last commit into the draft."""
        if catalog.changes:
            record = encode_changes(catalog.changes)
            catalog.changes = []
            self._record_bytes += len(record)
            if self._pieces is not None:
                self._since.append(record)
            draft.writes.append(Write(CATALOG, record))
        if self._is_ready:
            # It replaces all records of the catalog, also the one of this very commit.
            draft.add_snapshot(CATALOG, b"", self._encoded)
            draft.writes += [Write(CATALOG, record) for record in self._since]
            self._snapshot_bytes = len(self._encoded)
            self._record_bytes = sum(map(len, self._since))
            self._pieces, self._encoded, self._since, self._is_ready = None, bytearray(), [], False
        elif self._pieces is None and self._is_due:
            self._pieces = encoded_in_steps(catalog.image(), limits.CATALOG_STEP_DEFINITIONS)
            self._go_on()

    def close(self) -> None:
        """The state was loaded anew: a snapshot under way is of no use."""
        if self._step is not None:
            self._step.cancel()

    @property
    def _is_due(self) -> bool:
        least = limits.RECORD_BYTES_BEFORE_SNAPSHOT
        return self._record_bytes > max(least, 2 * self._snapshot_bytes)

    def _go_on(self) -> None:
        self._step = asyncio.get_running_loop().call_soon(self._encode)

    def _encode(self) -> None:
        assert self._pieces is not None
        piece = next(self._pieces, None)
        if piece is not None:
            self._encoded += piece
            self._go_on()
        else:
            self._is_ready = True
            self._on_snapshot()
