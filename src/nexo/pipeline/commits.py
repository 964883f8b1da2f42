"""Commits: a micro-batch becomes part of a table as a whole, and once.

The table itself says how far it goes. Each commit names, as application transactions, the sources
that it has messages of and the offset behind the last one: `nexo.offset/orders` is at 1200. Delta
keeps the newest of each with the table, whatever happens to a checkpoint of Spark. A batch whose
first offset lies before that brings what is there already, so nothing of it is committed as it is.
Two that commit at once are told apart by the same transactions: where both bring messages of one
source, the second fails and looks again. Others are put behind one another by Delta.

The number of a micro-batch could not do this: an older copy of a checkpoint gives the same number
to other messages.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from nexo.pipeline.delta import LOG, create_table, store_errors
from nexo.pipeline.lake import sync
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nexo.pipeline.delta import Kind
    from nexo.pipeline.files import Added
    from nexo.pipeline.lake import Lake

TRIES_MAX = 20
RETRIES_MAX = 30  # of delta-rs, of one commit: others were quicker so often
_OFFSET = "nexo.offset/"


class Commits:
    """Those of one process into one table, which is made if it is not there."""

    def __init__(self, lake: Lake, kind: Kind) -> None:
        self.kind = kind
        self._folder = lake.folder
        self._uri = lake.table(*kind.path)
        self._table = create_table(lake, kind)

    def refresh(self) -> None:
        with store_errors(self._uri):
            self._table.update_incremental()

    def next_offset(self, source: str) -> int | None:
        """Behind what the table has of a source; None if it has nothing of it."""
        return self._table.transaction_version(_OFFSET + source)

    def commit(
        self, added: Iterable[Added], query: str, batch: int, anew: Collection[str] = ()
    ) -> set[str]:
        """Make these files part of the table. If it has some of their messages already, the
        sources of those are returned and nothing is committed. Of the sources `anew` it has other
        messages under the same offsets, and takes these too."""
        files = list(added)
        for _ in range(TRIES_MAX):
            self.refresh()
            behind = {
                each.source
                for each in files
                if each.source not in anew and each.first < (self.next_offset(each.source) or 0)
            }
            if behind or not files:
                return behind
            ends: dict[str, int] = {}
            for each in files:
                ends[each.source] = max(ends.get(each.source, 0), each.last + 1)
            try:
                self._put(files, ends, query, batch)
                return set()
            except CommitFailedError:  # somebody else has messages of the same source
                continue
        raise NexoError(
            f"other writers keep changing {self._uri}",
            "run only one archive job per source at a time",
        )

    def set_next_offset(self, source: str, offset: int) -> None:
        """From here on a source goes on at this offset; 0 if it is another one under the same
        name, whose offsets say nothing of the table."""
        self._put([], {source: offset}, "", 0)

    def _put(self, files: list[Added], ends: dict[str, int], query: str, batch: int) -> None:
        now_ms, before = time.time_ns() // 1_000_000, self._table.version()
        actions = [
            AddAction(each.path, each.size, each.partition, now_ms, True, each.stats)
            for each in files
        ]
        told = {
            "nexo.query": query,
            "nexo.batch": str(batch),
            "nexo.next_offsets": msgspec.json.encode(ends).decode(),
        }
        properties = CommitProperties(
            custom_metadata=told,
            max_commit_retries=RETRIES_MAX,
            app_transactions=offsets_told(ends),
        )
        with store_errors(self._uri):
            self._table.create_write_transaction(
                list(actions),
                mode="append",
                schema=self.kind.schema,
                partition_by=list(self.kind.partitions),
                commit_properties=properties,
            )
            self._table.update_incremental()
        if self._folder is not None:
            sync_log(Path(self._uri), range(before + 1, self._table.version() + 1))


def offsets_told(ends: Mapping[str, int]) -> list[Transaction]:
    """How a commit says how far a table goes."""
    return [Transaction(_OFFSET + name, end) for name, end in ends.items()]


def sync_log(table: Path, versions: Iterable[int]) -> None:
    """Commits are on disk: delta-rs leaves that to the file system."""
    for version in versions:
        sync(table / LOG / f"{version:020}.json")
    sync(table / LOG)
