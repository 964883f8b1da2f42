"""The tables of the insights: a Parquet file for each day, replaced as a whole.

A reader that has listed the files finds each of them at any moment, as it was or as it is now.
What is in a queue at the end of a minute follows from the minute before; a file carries the depth
of every queue at the end of its day, so that the next one goes on from there.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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


class Tables:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._minutes = lake.insights / "queue_minutes"
        self._letters = lake.insights / "dead_letters"
        self._consumers = lake.insights / "consumers"
        for table in (self._minutes, self._letters, self._consumers):
            table.mkdir(parents=True, exist_ok=True)

    def put(
        self, rows: pa.Table, replace: bool = False, depths: dict[str, int] | None = None
    ) -> None:
        """Rows of figures: what is there of the same queue and minute gives way, with `replace`
        the whole day does. `depths` are those before the first of these days, if they are known
        from elsewhere than the file before."""
        minutes = _of_facet(rows, "minute", {"depth": 0}, QUEUE_MINUTES)
        letters = _of_facet(rows, "reason", {}, DEAD_LETTERS, detail="reason", count="dead_letters")
        consumers = _of_facet(rows, "consumer", {"share": 0.0}, CONSUMERS, detail="consumer")
        days = sorted(pc.unique(_days(minutes)).to_pylist())
        if not days:
            return
        for day in days:  # those without a dead letter too: there may have been one before
            merged = self._merged(self._letters, day, _on(day, letters), replace)
            _write(self._letters / f"{day}.parquet", merged)
            merged = self._merged(self._consumers, day, _on(day, consumers), replace)
            _write(self._consumers / f"{day}.parquet", _with_shares(merged))
        self._level(days[0], {day: _on(day, minutes) for day in days}, replace, depths)

    def _level(
        self, first: str, fresh: dict[str, pa.Table], replace: bool, depths: dict[str, int] | None
    ) -> None:
        """Write the days from the first that changed on, each going on from the depths before."""
        known = sorted({*fresh, *(each.stem for each in self._minutes.glob("*.parquet"))})
        earlier = [day for day in known if day < first]
        if depths is None:
            depths = _depths_of(self._minutes / f"{earlier[-1]}.parquet") if earlier else {}
        for day in [day for day in known if day >= first]:
            file = self._minutes / f"{day}.parquet"
            if day in fresh:
                merged = self._merged(self._minutes, day, fresh[day], replace)
            else:
                merged = pq.read_table(file, schema=QUEUE_MINUTES)
            levelled, depths = with_depths(merged, depths)
            told = {_DEPTHS: json.dumps(depths).encode()}
            _write(file, levelled.replace_schema_metadata(told))

    def _merged(self, table: Path, day: str, fresh: pa.Table, replace: bool) -> pa.Table:
        file = table / f"{day}.parquet"
        keys = [name for name in _KEYS if name in fresh.schema.names]
        if file.exists() and not replace:
            kept = pq.read_table(file, schema=fresh.schema)
            kept = kept.join(fresh.select(keys), keys, join_type="left anti")
            fresh = pa.concat_tables([kept.cast(fresh.schema), fresh])
        return fresh.sort_by([(key, "ascending") for key in keys])


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


def _days(rows: pa.Table) -> pa.ChunkedArray:
    return pc.strftime(rows["minute"], format="%Y-%m-%d")


def _on(day: str, rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(_days(rows), day))


def _depths_of(file: Path) -> dict[str, int]:
    found = pq.read_schema(file).metadata or {}
    depths: dict[str, int] = json.loads(found.get(_DEPTHS, b"{}"))
    return depths


def _write(file: Path, rows: pa.Table) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    pq.write_table(rows, fresh)
    fresh.replace(file)
