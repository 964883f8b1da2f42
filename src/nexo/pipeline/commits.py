"""Commits: a micro-batch becomes part of a table as a whole, and once.

Spark writes the files of a batch into a staging folder. Then a *manifest* that names them and
their places is put down in one step: from that moment on the batch is committed. Moving them is
only work that is left, and whoever comes next finishes it. A batch that Spark runs again, because
it died before its own log said so, is found in the manifest and is not written again. The manifest
also says up to which offset the table goes, so a checkpoint from before adds nothing twice.

Spark's file sink keeps such a log too (`_spark_metadata`), but only Spark reads it: pandas and
DuckDB would see what a crash left behind, and compaction could never replace a file. Here the
files that are in a table are the table.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from nexo.pipeline.lake import sync, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.pipeline.lake import Lake


class Manifest(msgspec.Struct, frozen=True):
    """`files` is where each staged file goes, both below the lake."""

    query: str
    batch: int
    files: dict[str, str]
    next_offset: int  # of the source: behind everything that this batch and those before hold
    floor: int = 0  # below it the batches of this query bring what was in the table before them


class Commits:
    """Those of one stream into one table."""

    def __init__(self, lake: Lake, stream: str, table: Path) -> None:
        self._lake = lake
        self._table = table
        self._manifest = lake.internal("commits", f"{stream}.json")
        self._staging = lake.internal("staging", stream)

    def last(self) -> Manifest | None:
        try:
            return msgspec.json.decode(self._manifest.read_bytes(), type=Manifest)
        except FileNotFoundError:
            return None

    def recover(self) -> None:
        """Finish what a process that died has committed, and remove what it has not."""
        last = self.last()
        with self._lake.locked():
            if last is not None:
                _move(self._lake, last)
        shutil.rmtree(self._staging, ignore_errors=True)

    def holds(self, query: str, batch: int) -> bool:
        """Whether this batch is in the table already."""
        last = self.last()
        return last is not None and (last.query, last.batch) == (query, batch)

    def floor(self, query: str, batch: int) -> int:
        """The first offset of a batch that is to be written. A checkpoint may be older than the
        table, restored or named by its path: until it has caught up, batches bring what is there.
        Else all counts, also when a topic was made anew and its offsets begin again."""
        last = self.last()
        if last is None:
            return 0
        goes_on = last.query == query and last.batch < batch
        return last.floor if goes_on else last.next_offset

    def begin_anew(self) -> None:
        """The source is another one under the same name: its offsets say nothing of the table."""
        last = self.last()
        if last is not None:
            anew = msgspec.structs.replace(last, next_offset=0, floor=0)
            write_atomically(self._manifest, msgspec.json.encode(anew))

    def stage(self, batch: int) -> Path:
        """An empty place for the files of a batch."""
        place = self._staging / str(batch)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def commit(self, query: str, batch: int) -> None:
        """Make what was staged part of the table."""
        place, root = self._staging / str(batch), self._lake.root
        last, floor = self.last(), self.floor(query, batch)
        next_offset = before = last.next_offset if last is not None else 0
        files = {}
        for number, staged in enumerate(sorted(place.rglob("part-*.parquet"))):
            next_offset = max(next_offset, offsets_in(staged)[1] + 1)
            sync(staged)
            # With where it begins: a batch that an older checkpoint numbers anew is another one.
            name = f"part-{batch:08}-{number:05}-{query[:8]}-{before}.parquet"
            target = self._table / staged.parent.relative_to(place) / name
            files[str(staged.relative_to(root))] = str(target.relative_to(root))
        floor = floor if next_offset == before else 0  # what comes now lies behind it
        manifest = Manifest(query, batch, files, next_offset, floor)
        with self._lake.locked():
            write_atomically(self._manifest, msgspec.json.encode(manifest))
            _move(self._lake, manifest)
        shutil.rmtree(place, ignore_errors=True)


def finish_all(lake: Lake) -> None:
    """Move what was committed and not moved: the work of a process that died. The lake is
    locked."""
    for file in lake.internal("commits").glob("*.json"):
        _move(lake, msgspec.json.decode(file.read_bytes(), type=Manifest))


def _move(lake: Lake, manifest: Manifest) -> None:
    folders = set()
    for staged, target in manifest.files.items():
        source, place = lake.root / staged, lake.root / target
        if source.exists():  # else it was moved before
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            folders |= {place.parent, place.parent.parent}
    for folder in folders:  # before the next manifest, which no longer knows of these files
        sync(folder)


def offsets_in(file: Path) -> tuple[int, int]:
    """The lowest and the highest offset in a file, by what its footer says; of an empty one 0 and
    -1."""
    footer = pq.read_metadata(file)
    names = [footer.schema.column(index).path for index in range(footer.num_columns)]
    column = names.index("offset")
    groups = [footer.row_group(index).column(column) for index in range(footer.num_row_groups)]
    told = [group.statistics for group in groups if group.num_values]
    return min((int(each.min) for each in told), default=0), max(
        (int(each.max) for each in told), default=-1
    )
