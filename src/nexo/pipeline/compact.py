"""compact: few large files instead of many small ones, in each folder of a table.

The new files are written elsewhere, next to links to what came meanwhile; then the new folder and
the old one change places in one step of the file system. So at any moment the folder holds each
row once. A reader that had the old files open reads on; one that had listed them and comes to open
them later finds them gone, which is an error and never a wrong answer. Our own jobs are waited for.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from nexo.pipeline.commits import finish_all
from nexo.pipeline.formats import PARQUET, compact_table, require_format
from nexo.pipeline.lake import prepare, sync
from nexo.vocabulary.errors import DataCorrupt, NexoError

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake

TARGET_BYTES = 128 * 1024 * 1024

_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


class Compact(msgspec.Struct, frozen=True):
    target_bytes: int = TARGET_BYTES
    files_min: int = 2


def run(job: JobRun, lake: Lake, asked: Compact) -> dict[str, int]:
    """How many folders were compacted, and the files in them before and after."""
    require_format(job.spark, lake.format)
    lake.require(lake.root)
    prepare(job.spark)
    if lake.format != PARQUET:
        return _by_itself(job, lake)
    found = {"folders": 0, "files_before": 0, "files_after": 0, "rows": 0}
    staging = lake.internal("staging", "compact")
    with lake.only_one("compact"):
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        with lake.locked():
            finish_all(lake)
        for folder in _folders(lake):
            if job.should_stop():
                break
            files = sorted(folder.glob("*.parquet"))
            size = sum(each.stat().st_size for each in files)
            wanted = max(1, -(-size // asked.target_bytes))
            if len(files) < asked.files_min or len(files) <= wanted:
                continue
            rows = _compact(job, lake, folder, files, wanted)
            found["folders"] += 1
            found["files_before"] += len(files)
            found["files_after"] += len(list(folder.glob("*.parquet")))
            found["rows"] += rows
            job.teller.add(str(folder.relative_to(lake.root)), rows)
        shutil.rmtree(staging, ignore_errors=True)
    return found


def _folders(lake: Lake) -> list[Path]:
    return sorted([*lake.messages.glob("source=*/date=*"), *lake.events.glob("date=*")])


def _compact(job: JobRun, lake: Lake, folder: Path, files: list[Path], wanted: int) -> int:
    written, fresh = (lake.internal("staging", "compact", name) for name in ("written", "fresh"))
    for each in (written, fresh):
        shutil.rmtree(each, ignore_errors=True)
    rows = job.spark.read.parquet(*map(str, files))
    rows = rows.coalesce(1) if wanted == 1 else rows.repartitionByRange(wanted, "offset")
    rows.sortWithinPartitions("offset").write.parquet(str(written))
    before, after = _rows(files), _rows(sorted(written.glob("*.parquet")))
    if before != after:
        raise DataCorrupt(
            f"{folder} has {before} rows and {after} when written anew",
            "nothing was changed; check the files with pyarrow or DuckDB",
        )
    fresh.mkdir(parents=True)
    for number, file in enumerate(sorted(written.glob("*.parquet"))):
        sync(file)
        file.rename(fresh / f"part-compact-{files[-1].stem[-30:]}-{number:05}.parquet")
    _switch(lake, folder, fresh, files)
    return before


def _switch(lake: Lake, folder: Path, fresh: Path, files: list[Path]) -> None:
    """The new folder in place of the old one, with what has come since the files were listed."""
    with lake.alone(), lake.locked():
        for late in set(folder.glob("*.parquet")) - set(files):
            try:
                os.link(late, fresh / late.name)
            except OSError:  # a file system without links
                shutil.copy2(late, fresh / late.name)
        exchange(fresh, folder)
    shutil.rmtree(fresh)  # which is the old one now


def _rows(files: list[Path]) -> int:
    return sum(pq.read_metadata(each).num_rows for each in files)


def _by_itself(job: JobRun, lake: Lake) -> dict[str, int]:
    found = {"folders": 0, "files_before": 0, "files_after": 0, "rows": 0}
    for table in (lake.messages, lake.events):
        if table.is_dir():
            compact_table(job.spark, table, lake.format)
            found["folders"] += 1
    return found


def exchange(one: Path, other: Path) -> None:
    """Each is where the other was. There is no moment at which one of the names is missing."""
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = library.renamex_np(first, second, _EXCHANGE)
    else:
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE)
    if failed:
        reason = os.strerror(ctypes.get_errno())
        raise NexoError(
            f"the file system of {other} cannot exchange two folders: {reason}",
            "nothing was changed; keep the lake on a local disk (ext4, xfs, btrfs, APFS), or "
            "use --format delta, which compacts by itself",
        )
