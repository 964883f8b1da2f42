"""migrate: a lake of Parquet folders, as it was before lakes were Delta tables, converted in place.

No data file is written anew: Delta's log is put next to them. What a killed archive had committed
and not moved is moved first, as it would have done itself. The files of a table and the offset
behind the last message of each source, from the manifests of old, are its first commit. Manifests
are removed in the end, and as long as there is one, or a table without a log, the lake counts as
not converted: stopped at any moment, run it again.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
from deltalake import CommitProperties, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from nexo.pipeline.commits import offsets_told, sync_log
from nexo.pipeline.delta import (
    EVENTS_TABLE,
    LOG,
    MESSAGES_TABLE,
    is_old,
    properties,
    store_errors,
)
from nexo.pipeline.files import stats_of
from nexo.pipeline.lake import sync
from nexo.pipeline.tables import INSIGHTS_TABLES
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import ARCHIVE_PREFIX, EVENTS_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.pipeline.delta import Kind
    from nexo.pipeline.lake import Lake

_STREAM = "archive-"


class Manifest(msgspec.Struct, frozen=True):
    """What the archive of old put down for the last micro-batch of a source: `files` is where each
    staged file goes, both below the lake."""

    query: str
    batch: int
    files: dict[str, str]
    next_offset: int
    floor: int = 0


class Migrated(msgspec.Struct):
    tables: int = 0
    files: int = 0
    sources: int = 0


def run(lake: Lake) -> Migrated:
    """How many tables were converted, with how many files, and the sources that are in them."""
    if lake.folder is None or not is_old(lake):
        raise InvalidArgument(
            f"{lake} is not a lake of Parquet folders", "a lake of Delta tables needs no conversion"
        )
    done = Migrated()
    internal = lake.folder / "_nexo"
    manifests = {
        file: msgspec.json.decode(file.read_bytes(), type=Manifest)
        for file in sorted(internal.glob("commits/*.json"))
    }
    for manifest in manifests.values():
        _finish(lake.folder, manifest)
    for kind in (MESSAGES_TABLE, EVENTS_TABLE, *INSIGHTS_TABLES):
        ends = _ends(manifests, kind)
        done.sources += len(ends)
        _convert(lake, kind, ends, done)
    for old in ("staging", "locks", "checkpoints/archive"):
        shutil.rmtree(internal / old, ignore_errors=True)
    for file in manifests:
        file.unlink()
    if manifests:
        (internal / "commits").rmdir()
        sync(internal)
    return done


def _finish(root: Path, manifest: Manifest) -> None:
    """Move what was committed and not moved."""
    for staged, target in manifest.files.items():
        source, place = root / staged, root / target
        if source.exists():  # else it was moved before
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
            sync(place.parent)


def _ends(manifests: dict[Path, Manifest], kind: Kind) -> dict[str, int]:
    """The offset behind what the table has of each source."""
    ends = {}
    for file, manifest in manifests.items():
        topic = file.stem.removeprefix(_STREAM).replace("%2F", "/")
        if kind == (EVENTS_TABLE if topic == EVENTS_TOPIC else MESSAGES_TABLE):
            ends[topic.removeprefix(ARCHIVE_PREFIX)] = manifest.next_offset
    return ends


def _convert(lake: Lake, kind: Kind, ends: dict[str, int], done: Migrated) -> None:
    """The files of a table, and where its sources end, as the first commit of a Delta table."""
    assert lake.folder is not None
    place = lake.folder.joinpath(*kind.path)
    files = [each for each in sorted(place.rglob("*.parquet")) if LOG not in each.parts]
    if (place / LOG / f"{0:020}.json").exists() or not (files or ends):
        return
    for each in files:
        if each.name.startswith("."):  # of an insights job that was killed while it wrote
            each.unlink()
    added = [_added(place, kind, each) for each in files if each.exists()]
    uri = lake.table(*kind.path)
    with store_errors(uri):
        create_table_with_add_actions(
            uri,
            Schema.from_arrow(kind.schema),
            added,
            partition_by=list(kind.partitions),
            configuration=properties(kind),
            commit_properties=CommitProperties(app_transactions=offsets_told(ends)),
        )
    sync_log(place, [0])
    done.tables += 1
    done.files += len(added)


def _added(place: Path, kind: Kind, file: Path) -> AddAction:
    """What the log says of a file that is there, by its folders and its footer. (Delta's own
    convert misreads folders whose names have a percent sign in them, as those of queues of other
    SQS accounts do.)"""
    path = file.relative_to(place)
    partition: dict[str, str | None] = {}
    for folder in path.parts[:-1]:
        name, _, value = folder.partition("=")
        partition[name] = unquote(value)
    state = file.stat()
    return AddAction(
        path.as_posix(),
        state.st_size,
        partition,
        int(state.st_mtime * 1000),
        True,
        stats_of(pq.read_metadata(file), kind.skipped_by),
    )
