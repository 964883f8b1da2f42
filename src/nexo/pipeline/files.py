"""Files of a table, as a task writes them: Parquet, with what a reader needs to pass them over.

A task has messages of many topics. Each goes to the table `messages`, those of `nexo.events` to
`events`, into a file for each partition. What comes back to the driver is small: of each file its
path, size, partition and the lowest and highest values in it, which is what a Delta *add* action
says. A file is part of no table before the driver has committed it, so a task that dies, or runs
twice, leaves at most a file that nobody reads and `compact --vacuum` removes.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, UTC_TIME, store_errors
from nexo.pipeline.lake import sync
from nexo.vocabulary.names import ARCHIVE_PREFIX, is_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.pipeline.delta import Kind
    from nexo.pipeline.lake import Lake

FILE_BYTES = 128 * 1024 * 1024  # about so large a file is when the next one is begun
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 * 1024 * 1024  # of rows that wait in memory to be written together
OPEN_FILES_MAX = 32  # of one task: messages of a topic are mostly of one or two days
_EVENT = pa.schema(
    [
        ("kind", pa.string()),
        ("queue", pa.string()),
        ("first_seq", pa.int64()),
        ("count", pa.int64()),
        ("at_ms", pa.int64()),
        ("created_ms", pa.int64()),
        ("attempts", pa.int32()),
        ("consumer", pa.string()),
        ("reason", pa.string()),
        ("delivered_ms", pa.int64()),
    ]
)
_MICROSECONDS_A_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)


class Added(msgspec.Struct, frozen=True):
    """A file that was written. `first` and `last` are the offsets in it."""

    table: str
    path: str  # below the table
    size: int
    partition: dict[str, str]
    source: str
    rows: int
    first: int
    last: int
    stats: str


def source_of(topic: str) -> str:
    """The name under which the lake has the messages of a topic."""
    return topic.removeprefix(ARCHIVE_PREFIX)


def write_files(lake: Lake, rows: Iterable[tuple[str, pa.RecordBatch]]) -> list[Added]:
    """Messages of topics, each batch with the name of its topic, as files. If this fails, what is
    half written is removed."""
    desk = _Desk(lake)
    try:
        for topic, batch in rows:
            desk.take(topic, batch)
        desk.close()
    except BaseException:
        desk.discard()
        raise
    return desk.added


class _Desk:
    """The files that a task has open."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._open: dict[tuple[str, date], TableFile] = {}
        self.added: list[Added] = []

    def take(self, topic: str, rows: pa.RecordBatch) -> None:
        source = source_of(topic)
        if any(key[0] != source for key in self._open):
            self.close()  # a slice is of one topic, and slices come one after the other
        tells_life = is_events(topic)
        kind = EVENTS_TABLE if tells_life else MESSAGES_TABLE
        when = "at" if tells_life else "created_at"
        plain = event_columns(rows) if tells_life else rows
        columns = [name for name in kind.schema.names if name not in kind.partitions]
        held = plain.select(columns).cast(pa.schema([kind.schema.field(name) for name in columns]))
        for day, some in _by_day(held, when):
            file = self._open.get((source, day))
            if file is None:
                if len(self._open) >= OPEN_FILES_MAX:
                    self.close()
                partition = {"source": source, "date": f"{day}"}
                mine = {name: partition[name] for name in kind.partitions}
                file = self._open[source, day] = TableFile(self._lake, kind, mine, source)
            file.write(some)
            if file.size >= FILE_BYTES:
                self.added.append(self._open.pop((source, day)).close())

    def close(self) -> None:
        self.added += [file.close() for file in self._open.values()]
        self._open.clear()

    def discard(self) -> None:
        """Leave nothing on a disk that may be full. What was closed is for `compact --vacuum`: it
        may take many deletions, and a task that fails should end."""
        for file in self._open.values():
            file.discard()


class TableFile:
    """A file of a table that is being written."""

    def __init__(self, lake: Lake, kind: Kind, partition: dict[str, str], source: str = "") -> None:
        self._lake = lake
        self._kind = kind
        self._source = source
        self._partition = partition
        # The path only looks like its partition: a queue of another SQS account has slashes in
        # its name, and what a file holds stands in the table's log.
        folders = [f"{name}={each.replace('/', '_')}" for name, each in self._partition.items()]
        self._path = "/".join([*folders, f"part-{uuid.uuid4()}.parquet"])
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0
        self._lowest: dict[str, Any] = {}
        self._highest: dict[str, Any] = {}
        self._empty: dict[str, int] = dict.fromkeys(kind.skipped_by, 0)
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None

    @property
    def size(self) -> int:
        """About, of what is written so far."""
        return self._stream.tell() if self._stream is not None else 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> Added:
        self._flush()
        with store_errors(self._lake.table(*self._kind.path)):
            assert self._writer is not None
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
            if self._lake.folder is not None:  # on disk before the log says that it is there
                file = self._lake.folder.joinpath(*self._kind.path, self._path)
                sync(file)
                sync(file.parent)
        return Added(
            table=self._kind.name,
            path=self._path,
            size=size,
            partition=self._partition,
            source=self._source,
            rows=self._rows,
            first=self._lowest.get("offset", 0),
            last=self._highest.get("offset", -1),
            stats=self._stats(),
        )

    def discard(self) -> None:
        """Of a store that is no folder nothing is there before a file is closed."""
        if self._lake.folder is not None:
            with contextlib.suppress(OSError):
                self._lake.folder.joinpath(*self._kind.path, self._path).unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._measure(rows)
        with store_errors(self._lake.table(*self._kind.path)):
            if self._writer is None:
                self._stream = self._opened()
                # Ids and bodies differ in every row: a dictionary of them is work for nothing.
                few = ["consumer", "group_id", "kind", "priority", "queue", "reason"]
                known = [name for name in few if name in rows.schema.names]
                self._writer = pq.ParquetWriter(self._stream, rows.schema, use_dictionary=known)
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)

    def _opened(self) -> Any:
        if self._lake.folder is None:
            return self._lake.files().open_output_stream(f"{self._kind.name}/{self._path}")
        file = self._lake.folder.joinpath(*self._kind.path, self._path)
        file.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(file), "wb")

    def _measure(self, rows: pa.Table) -> None:
        self._rows += rows.num_rows
        for name in self._kind.skipped_by:
            bounds = pc.min_max(rows[name]).as_py()
            self._empty[name] += rows[name].null_count
            if bounds["min"] is not None:
                self._lowest[name] = min(self._lowest.get(name, bounds["min"]), bounds["min"])
                self._highest[name] = max(self._highest.get(name, bounds["max"]), bounds["max"])

    def _stats(self) -> str:
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: _told(each) for name, each in self._lowest.items()},
                "maxValues": {name: _told(each, up=True) for name, each in self._highest.items()},
                "nullCount": self._empty,
            }
        )


def stats_of(footer: pq.FileMetaData, columns: Iterable[str]) -> str:
    """The same of a file that is there, by its footer."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    names = [footer.schema.column(index).path for index in range(footer.num_columns)]
    lowest, highest, empty = {}, {}, {}
    for name in (each for each in columns if each in names):
        told = [group.column(names.index(name)).statistics for group in groups]
        if told and all(each is not None and each.has_min_max for each in told):
            lowest[name] = _told(min(each.min for each in told))
            highest[name] = _told(max(each.max for each in told), up=True)
            empty[name] = sum(each.null_count or 0 for each in told)
    found = {"minValues": lowest, "maxValues": highest, "nullCount": empty}
    return json.dumps({"numRecords": footer.num_rows, **found})


def _told(value: Any, up: bool = False) -> Any:
    """As Delta writes it: times have milliseconds, so the highest is told a little higher."""
    if not isinstance(value, datetime):
        return value
    if up and value.microsecond % 1000:
        value += timedelta(milliseconds=1)
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"


def _by_day(rows: pa.RecordBatch, when: str) -> Iterator[tuple[date, pa.RecordBatch]]:
    days = rows[when].cast(pa.int64()).to_numpy(zero_copy_only=False) // _MICROSECONDS_A_DAY
    for day in np.unique(days).tolist():
        some = (
            rows if days[0] == days[-1] == day and (days == day).all() else rows.filter(days == day)
        )
        yield _EPOCH + timedelta(days=int(day)), some


def event_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Messages of `nexo.events` as the columns of the table."""
    told = _parsed(rows["body"].to_pylist())
    moments = {
        name: pc.multiply(told[f"{short}_ms"], 1000).cast(UTC_TIME)
        for name, short in (("at", "at"), ("created_at", "created"), ("delivered_at", "delivered"))
    }
    known = pc.greater(told["delivered_ms"], 0)
    # An event that cannot be read still has its place, and the time at which it came.
    came = rows["created_at"].cast(UTC_TIME)
    columns = {
        **{name: told[name] for name in ("kind", "queue", "first_seq", "count")},
        "at": pc.coalesce(moments["at"], came),
        "created_at": moments["created_at"],
        **{name: told[name] for name in ("attempts", "consumer", "reason")},
        "delivered_at": pc.if_else(known, moments["delivered_at"], pa.scalar(None, UTC_TIME)),
        "offset": rows["offset"],
    }
    return pa.RecordBatch.from_pydict(columns)


def _parsed(bodies: list[bytes]) -> dict[str, pa.Array]:
    """A column for each field of an event."""
    text = b"\n".join(bodies)
    options = pj.ParseOptions(explicit_schema=_EVENT, unexpected_field_behavior="ignore")
    reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        found = pj.read_json(pa.BufferReader(text), reading, options)
    except pa.ArrowInvalid:
        found = None
    if found is None or found.num_rows != len(bodies):
        found = pa.Table.from_pylist([_read(each) for each in bodies], schema=_EVENT)
    return {name: found[name].combine_chunks() for name in _EVENT.names}


def _read(body: bytes) -> dict[str, Any]:
    """One event, or nothing of it if it is none."""
    try:
        event = json.loads(body)
        pa.Table.from_pylist([event], schema=_EVENT)
    except (ValueError, pa.ArrowException):
        return {}
    return event if isinstance(event, dict) else {}
