"""compact: few large files instead of many small ones, in each partition of a table.

This is Delta's optimize: the new files and the word that the old ones are out are one commit, so a
reader sees each row once, and one that began before reads the old files to its end. The archive
may go on. Old files stay for those who look at older versions, until `--vacuum` removes them, and
with them what jobs have left behind that were killed.

An archive that runs on does the same by itself, in a thread, when small files pile up.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from nexo.pipeline.delta import (
    EVENTS_TABLE,
    MESSAGES_TABLE,
    check_lake,
    check_not_old,
    find_table,
    store_errors,
)
from nexo.pipeline.tables import INSIGHTS_TABLES
from nexo.vocabulary.errors import InvalidArgument, NexoError
from nexo.vocabulary.units import show_duration

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from nexo.pipeline.delta import Kind
    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake

TARGET_BYTES = 128 * 1024 * 1024
SMALL_FILES_MAX = 50  # of a partition: when an archive that runs on compacts it
LOOK_EVERY_S = 60.0
CLOSE_S = 30.0  # how long the end of an archive waits for its compaction
# A file is written before it is committed, and a younger one may be about to be.
VACUUM_S_MIN = 3_600.0
KINDS = (MESSAGES_TABLE, EVENTS_TABLE, *INSIGHTS_TABLES)

Partition = tuple[tuple[str, str], ...]  # the columns and the values of one


class Compact(msgspec.Struct, frozen=True):
    target_bytes: int = TARGET_BYTES
    files_min: int = 2
    vacuum_s: float | None = None  # remove what no version younger than this has

    def check(self) -> None:
        if self.vacuum_s is not None and self.vacuum_s < VACUUM_S_MIN:
            raise InvalidArgument(
                f"--vacuum {show_duration(self.vacuum_s)} is too short",
                "use at least 1h: a running job may be about to commit newer files",
            )


class Compacted(msgspec.Struct):
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    vacuumed: int = 0


def run(job: JobRun, lake: Lake, asked: Compact) -> dict[str, int]:
    """How many partitions were compacted, and the files in them before and after."""
    asked.check()
    check_lake(lake)
    tables = [(kind, table) for kind in KINDS if (table := find_table(lake, kind)) is not None]
    if not tables:
        raise InvalidArgument(
            f"there are no tables in {lake}",
            "run nexo pipeline run archive first, or name another --lake",
        )
    found = Compacted()
    for kind, table in tables:
        with store_errors(table.table_uri):
            for partition in crowded(table, kind, asked.target_bytes, asked.files_min):
                if job.should_stop():
                    return msgspec.structs.asdict(found)
                rows = _compact(table, partition, asked.target_bytes, found)
                job.teller.add("/".join((kind.name, *(f"{k}={v}" for k, v in partition))), rows)
            if asked.vacuum_s is not None:
                found.vacuumed += len(_vacuum(table, asked.vacuum_s))
    return msgspec.structs.asdict(found)


class TableState(msgspec.Struct, frozen=True):
    """A table by its log. `small_files` are in partitions where compaction would join them."""

    name: str
    version: int
    rows: int
    size_bytes: int
    files: int
    small_files: int
    committed_ms: int
    operation: str


def table_states(lake: Lake) -> list[TableState]:
    """How the tables are that there are."""
    check_not_old(lake)
    found = []
    for kind in KINDS:
        table = find_table(lake, kind)
        if table is None:
            continue
        with store_errors(table.table_uri):
            adds = pa.table(table.get_add_actions(flatten=True))
            last = table.history(1)[0]
        found.append(
            TableState(
                name=kind.name,
                version=table.version(),
                rows=sum(each or 0 for each in adds["num_records"].to_pylist()),
                size_bytes=sum(adds["size_bytes"].to_pylist()),
                files=adds.num_rows,
                small_files=sum(crowded(table, kind, TARGET_BYTES, 2).values()),
                committed_ms=int(last.get("timestamp", 0)),
                operation=str(last.get("operation", "")),
            )
        )
    return found


def crowded(
    table: DeltaTable, kind: Kind, target_bytes: int, files_min: int
) -> dict[Partition, int]:
    """The partitions with so many files that could be larger, and how many those are. Two that
    together are larger than the target stay as they are."""
    adds = pa.table(table.get_add_actions(flatten=True))
    names = [f"partition.{name}" for name in kind.partitions]
    sizes: dict[Partition, list[int]] = defaultdict(list)
    columns = [adds[name].to_pylist() for name in names]
    for index, size in enumerate(adds["size_bytes"].to_pylist()):
        values = tuple(str(column[index]) for column in columns)
        if size < target_bytes:
            sizes[tuple(zip(kind.partitions, values, strict=True))].append(size)
    return {
        partition: len(found)
        for partition, found in sizes.items()
        if len(found) >= max(2, files_min) and sum(sorted(found)[:2]) <= target_bytes
    }


def _compact(table: DeltaTable, partition: Partition, target_bytes: int, found: Compacted) -> int:
    """The rows that were written anew."""
    chosen = [(name, "=", value) for name, value in partition]
    try:
        told = table.optimize.compact(partition_filters=chosen or None, target_size=target_bytes)
    except CommitFailedError:  # another compaction was quicker
        table.update_incremental()
        return 0
    rows = 0
    if told["numFilesRemoved"]:
        found.partitions += 1
        found.files_before += told["numFilesRemoved"]
        found.files_after += told["numFilesAdded"]
        rows = _rows_of_last(table, told["numFilesAdded"])
        found.rows += rows
    return rows


def _rows_of_last(table: DeltaTable, files: int) -> int:
    """The rows of the files that came last."""
    adds = pa.table(table.get_add_actions(flatten=True)).sort_by(
        [("modification_time", "descending")]
    )
    return sum(adds["num_records"].slice(0, files).to_pylist())


def _vacuum(table: DeltaTable, age_s: float) -> list[str]:
    hours = -(-int(age_s) // 3_600)
    removed: list[str] = table.vacuum(
        retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return removed


class Housekeeping:
    """Compaction next to an archive that runs on."""

    def __init__(
        self,
        lake: Lake,
        names: tuple[str, ...],
        *,
        every_s: float = LOOK_EVERY_S,
        files_max: int = SMALL_FILES_MAX,
    ) -> None:
        self._lake = lake
        self._kinds = [kind for kind in KINDS if kind.name in names]
        self._every_s = every_s
        self._files_max = files_max
        self._looked_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self.compacted = Compacted()

    def look(self) -> None:
        """After a commit: see to it that small files do not pile up, now and then."""
        is_due = time.monotonic() - self._looked_s >= self._every_s
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._looked_s = time.monotonic()
            self._thread = threading.Thread(target=self._tidy, daemon=True, name="compaction")
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _tidy(self) -> None:
        # What goes wrong here goes wrong in the archive too, and is said there.
        with contextlib.suppress(NexoError, OSError, CommitFailedError):
            for kind in self._kinds:
                table = find_table(self._lake, kind)
                if table is None:
                    continue
                with store_errors(table.table_uri):
                    for partition in crowded(table, kind, TARGET_BYTES, self._files_max):
                        _compact(table, partition, TARGET_BYTES, self.compacted)
