"""The tables of the insights: a Parquet file for each day, replaced as a whole.

A reader that has listed the files finds each of them at any moment, as it was or as it is now.
What is in a queue at the end of a minute follows from the minute before; a file carries the depth
of every queue at the end of its day, so that the next one goes on from there.

Pages show them as lines: the last day of a queue. A broker reads them, so nothing here loads Spark.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nexo.pipeline.lake import put_in_place

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.pipeline.lake import Lake

_DEPTHS = b"nexo.depths"
_KEYS = ("queue", "minute", "reason", "consumer")
_MINUTE = pa.timestamp("us", tz="UTC")
QUEUE_MINUTES = pa.schema(
    [
        ("queue", pa.string()),
        ("minute", _MINUTE),
        ("arrivals", pa.int64()),
        ("departures", pa.int64()),
        ("depth", pa.int64()),
        ("wait_ms_p50", pa.float64()),
        ("wait_ms_p99", pa.float64()),
        ("work_ms_p50", pa.float64()),
        ("work_ms_p99", pa.float64()),
        ("retries", pa.int64()),
        ("dead_letters", pa.int64()),
    ]
)
DEAD_LETTERS = pa.schema(
    [("queue", pa.string()), ("minute", _MINUTE), ("reason", pa.string()), ("count", pa.int64())]
)
CONSUMERS = pa.schema(
    [
        ("queue", pa.string()),
        ("minute", _MINUTE),
        ("consumer", pa.string()),
        ("deliveries", pa.int64()),
        ("acks", pa.int64()),
        ("share", pa.float64()),  # of the deliveries of this queue in this minute
    ]
)


MINUTES, LETTERS, WORKERS = "queue_minutes", "dead_letters", "consumers"
SCHEMAS = {MINUTES: QUEUE_MINUTES, LETTERS: DEAD_LETTERS, WORKERS: CONSUMERS}
_EMPTY = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
Figures = dict[str, pa.Table]  # by the name of their table

SHOWN = timedelta(days=1)


class Tables:
    def __init__(self, lake: Lake) -> None:
        self._root = lake.insights
        for name in SCHEMAS:
            (self._root / name).mkdir(parents=True, exist_ok=True)

    def put(self, rows: pa.Table) -> None:
        """Rows of figures: what is there of the same queue and minute gives way."""
        by_day = _by_day(rows)
        for day, fresh in by_day.items():
            for name, table in fresh.items():
                keys = [key for key in _KEYS if key in table.schema.names]
                kept = self._kept(name, day)
                kept = kept.join(table.select(keys), keys, join_type="left anti")
                fresh[name] = pa.concat_tables([kept.cast(table.schema), table])
        self._write(by_day)

    def correct(self, rows: pa.Table, depths: dict[str, int]) -> None:
        """The same from the archive, which has events that came late, and may not have the newest
        yet, nor those from before it was begun. Of each queue and minute the figures stay that
        tell of more. `depths` are those before the first of these days."""
        by_day = _by_day(rows)
        for day, fresh in by_day.items():
            kept = {name: self._kept(name, day) for name in SCHEMAS}
            told = _told(fresh)
            stays = {place for place, count in _told(kept).items() if count > told.get(place, -1)}
            for name, table in fresh.items():
                old, new = _of(stays, kept[name]), pc.invert(_of(stays, table))
                fresh[name] = pa.concat_tables([kept[name].filter(old), table.filter(new)])
        self._write(by_day, depths)

    def depths_before(self, day: str) -> tuple[str, dict[str, int]]:
        """The last day before this one that has figures, and the depths at its end. If there is
        none, nothing of both."""
        earlier = sorted(file.stem for file in self._files(MINUTES) if file.stem < day)
        if not earlier:
            return "", {}
        found = pq.read_schema(self._file(MINUTES, earlier[-1])).metadata or {}
        depths: dict[str, int] = json.loads(found.get(_DEPTHS, b"{}"))
        return earlier[-1], depths

    def _write(self, by_day: dict[str, Figures], depths: dict[str, int] | None = None) -> None:
        """These days, and the depths of those after them, each going on from the day before."""
        if not by_day:
            return
        for day, figures in by_day.items():
            _write(self._file(LETTERS, day), _sorted(figures[LETTERS]))
            _write(self._file(WORKERS, day), _with_shares(_sorted(figures[WORKERS])))
        first = min(by_day)
        if depths is None:
            _, depths = self.depths_before(first)
        known = {*by_day, *(file.stem for file in self._files(MINUTES))}
        for day in sorted(day for day in known if day >= first):
            minutes = by_day[day][MINUTES] if day in by_day else self._kept(MINUTES, day)
            levelled, depths = with_depths(_sorted(minutes), depths)
            told = {_DEPTHS: json.dumps(depths).encode()}
            _write(self._file(MINUTES, day), levelled.replace_schema_metadata(told))

    def _kept(self, name: str, day: str) -> pa.Table:
        file = self._file(name, day)
        return pq.read_table(file, schema=SCHEMAS[name]) if file.exists() else _EMPTY[name]

    def _file(self, name: str, day: str) -> Path:
        return self._root / name / f"{day}.parquet"

    def _files(self, name: str) -> list[Path]:
        return list((self._root / name).glob("*.parquet"))


def with_depths(minutes: pa.Table, before: dict[str, int]) -> tuple[pa.Table, dict[str, int]]:
    """What is in each queue at the end of each minute, and at the end of all of them. Rows are in
    order. More cannot leave than was there: if it did, it was there before the first event."""
    queues = minutes["queue"].to_numpy()
    net = minutes["arrivals"].to_numpy() - minutes["departures"].to_numpy()
    depth = np.zeros(len(net), dtype=np.int64)
    after = dict(before)
    starts = [0, *(np.flatnonzero(queues[1:] != queues[:-1]) + 1).tolist(), len(net)]
    for low, high in pairwise(starts):
        if low == high:
            continue
        level = before.get(queues[low], 0) + np.cumsum(net[low:high])
        depth[low:high] = level - np.minimum(0, np.minimum.accumulate(level))
        after[queues[low]] = int(depth[high - 1])
    place = minutes.schema.get_field_index("depth")
    return minutes.set_column(place, "depth", pa.array(depth)), after


def _with_shares(consumers: pa.Table) -> pa.Table:
    keys = ["queue", "minute"]
    totals: dict[Any, int] = {}
    pairs = list(zip(*(consumers[key].to_pylist() for key in keys), strict=True))
    deliveries = consumers["deliveries"].to_pylist()
    for pair, count in zip(pairs, deliveries, strict=True):
        totals[pair] = totals.get(pair, 0) + count
    shares = [
        count / totals[pair] if totals[pair] else 0.0
        for pair, count in zip(pairs, deliveries, strict=True)
    ]
    place = consumers.schema.get_field_index("share")
    return consumers.set_column(place, "share", pa.array(shares, pa.float64()))


def _of_facet(
    rows: pa.Table, facet: str, constants: dict[str, Any], schema: pa.Schema, **renamed: str
) -> pa.Table:
    """The rows that tell of one thing, in the columns of its table."""
    some = rows.filter(pc.equal(rows["facet"], facet))
    names = {target: source for source, target in renamed.items() if source == "detail"}
    names |= {target: source for target, source in renamed.items() if target != "detail"}
    columns = [
        pa.array([constants[name]] * some.num_rows, kind)
        if name in constants
        else some[names.get(name, name)].cast(kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _by_day(rows: pa.Table) -> dict[str, Figures]:
    """What Spark hands over, by day and table. A day without a dead letter has that table too."""
    tables = {
        MINUTES: _of_facet(rows, "minute", {"depth": 0}, QUEUE_MINUTES),
        LETTERS: _of_facet(rows, "reason", {}, DEAD_LETTERS, detail="reason", count="dead_letters"),
        WORKERS: _of_facet(rows, "consumer", {"share": 0.0}, CONSUMERS, detail="consumer"),
    }
    days = {name: _days(table) for name, table in tables.items()}
    return {
        day: {name: table.filter(pc.equal(days[name], day)) for name, table in tables.items()}
        for day in sorted(pc.unique(days[MINUTES]).to_pylist())
    }


def _days(rows: pa.Table) -> pa.ChunkedArray:
    return pc.strftime(rows["minute"], format="%Y-%m-%d")


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(key, "ascending") for key in _KEYS if key in rows.schema.names])


def _told(figures: Figures) -> dict[tuple[str, datetime], int]:
    """Of how many messages the figures of each queue and minute tell, all things together."""
    counted: dict[tuple[str, datetime], int] = {}
    for name, columns in ((MINUTES, ("arrivals", "departures")), (WORKERS, ("deliveries",))):
        for column in columns:
            for place, count in zip(
                _places(figures[name]), figures[name][column].to_pylist(), strict=True
            ):
                counted[place] = counted.get(place, 0) + count
    return counted


def _of(places: set[tuple[str, datetime]], rows: pa.Table) -> pa.Array:
    """Which rows are of these queues and minutes."""
    return pa.array([place in places for place in _places(rows)], pa.bool_())


def _places(rows: pa.Table) -> list[tuple[str, datetime]]:
    return list(zip(rows["queue"].to_pylist(), rows["minute"].to_pylist(), strict=True))


def _write(file: Path, rows: pa.Table) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    pq.write_table(rows, fresh)
    put_in_place(fresh, file)


class QueueDay(NamedTuple):
    """`columns` are those of `queue_minutes` by name, the oldest minute first."""

    queues: list[str]
    columns: dict[str, list[Any]]
    reasons: list[tuple[str, int]]


def queue_day(lake: Lake, queue: str, now: datetime | None = None) -> QueueDay:
    """The last day of one queue; with no name, or none that is there, that of the first."""
    since = (now or datetime.now(UTC)) - SHOWN
    minutes = _rows(lake.insights / "queue_minutes", since, QUEUE_MINUTES)
    queues: list[str] = sorted(pc.unique(minutes["queue"]).to_pylist())
    name = queue if queue in queues or not queues else queues[0]
    chosen = minutes.filter(pc.equal(minutes["queue"], name)).sort_by("minute")
    columns = {each: chosen[each].to_pylist() for each in chosen.column_names if each != "queue"}
    letters = _rows(lake.insights / "dead_letters", since, DEAD_LETTERS)
    letters = letters.filter(pc.equal(letters["queue"], name))
    counted = letters.group_by("reason").aggregate([("count", "sum")])
    reasons = zip(counted["reason"].to_pylist(), counted["count_sum"].to_pylist(), strict=True)
    return QueueDay(queues, columns, sorted(reasons, key=lambda each: (-each[1], each[0])))


def _rows(table: Path, since: datetime, schema: pa.Schema) -> pa.Table:
    first_day = since.date().isoformat()
    files = sorted(each for each in table.glob("*.parquet") if each.stem >= first_day)
    parts = [pq.read_table(file, schema=schema) for file in files]
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    moment = pa.scalar(since, schema.field("minute").type)
    return rows.filter(pc.greater_equal(rows["minute"], moment))
