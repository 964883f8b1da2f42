"""The tables of the insights: a row for each queue and minute, merged in by these.

What is in a queue at the end of a minute follows from the minute before. So a change to an old
minute changes the depths of those after it, and a new minute needs that of the last one before it:
both are in the table, and the newest few of each queue in memory, for that is where events come.
Files hold neighbouring minutes, and a merge opens only those that it changes.

Pages show them as lines: the last day of a queue. A broker reads them, so nothing here loads Spark.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from nexo.pipeline.commits import sync_log
from nexo.pipeline.delta import UTC_TIME, Kind, create_table, find_table, store_errors
from nexo.pipeline.files import TableFile
from nexo.pipeline.lake import INSIGHTS
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltalake import DeltaTable

    from nexo.pipeline.lake import Lake

_KEYS = ("queue", "minute", "reason", "consumer")
_MINUTE = UTC_TIME
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
KINDS = {name: Kind((INSIGHTS, name), schema, (), ("minute",)) for name, schema in SCHEMAS.items()}
INSIGHTS_TABLES = tuple(KINDS.values())
Figures = dict[str, pa.Table]  # by the name of their table
TRIES_MAX = 20
LEVELS_KEPT = (
    16  # minutes of each queue whose depths are in memory: most events are of the last two
)
# How far back the last minute of a queue is looked for; one that nothing has happened to for
# longer counts from zero.
LOOK_BACK = timedelta(days=35)
# The minutes of one file: the last of these are written anew at every tick, so they must be few.
_SLOT_US = 10 * 60 * 1_000_000
_NEVER = datetime.max.replace(tzinfo=UTC)

SHOWN = timedelta(days=1)


class Tables:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables = {name: create_table(lake, kind) for name, kind in KINDS.items()}
        self._levels: dict[str, list[tuple[datetime, int]]] = {}  # depths by minute, in order
        self._levels_of = -1  # the version of the table that they are of
        self._has_looked_back = False

    def put(self, rows: pa.Table) -> None:
        """Rows of figures: what is there of the same queue and minute gives way."""
        fresh = _by_table(rows)
        if not fresh[MINUTES].num_rows:
            return
        self._attempt(LETTERS, lambda: fresh[LETTERS])
        self._attempt(WORKERS, lambda: self._with_others(fresh[WORKERS]))
        self._attempt(MINUTES, lambda: self._levelled(fresh[MINUTES], None))

    def correct(self, rows: pa.Table, depths: dict[str, int]) -> None:
        """The same from the archive, which has events that came late, and may not have the newest
        yet, nor those from before it was begun. Of each queue and minute the figures stay that
        tell of more. `depths` are those before the first of these days."""
        fresh = _by_table(rows)
        if not fresh[MINUTES].num_rows:
            return
        first = pc.min(fresh[MINUTES]["minute"]).as_py()
        kept = {name: self._since(name, first) for name in SCHEMAS}
        told = _told(fresh)
        stays = {place for place, count in _told(kept).items() if count > told.get(place, -1)}
        changed = {name: each.filter(pc.invert(_of(stays, each))) for name, each in fresh.items()}
        day = first.replace(hour=0, minute=0)
        self._attempt(LETTERS, lambda: changed[LETTERS])
        self._attempt(WORKERS, lambda: self._with_others(changed[WORKERS]))
        self._attempt(MINUTES, lambda: self._levelled(changed[MINUTES], (day, depths)))

    def depths_before(self, day: datetime) -> tuple[datetime | None, dict[str, int]]:
        """The last minute before this day that has figures, and the depth of each queue then. If
        there is none, nothing of both."""
        self._refresh(MINUTES)
        newest = self._newest_before(day, 1)
        last = max((levels[-1][0] for levels in newest.values()), default=None)
        return last, {queue: levels[-1][1] for queue, levels in newest.items()}

    # -- One table ----------------------------------------------------------------------------

    def _attempt(self, name: str, change: Callable[[], pa.Table]) -> None:
        """Merge what `change` makes of the table as it is; again, if another was quicker."""
        for _ in range(TRIES_MAX):
            self._refresh(name)
            rows = change()
            if not rows.num_rows:
                return
            try:
                self._merge(name, rows)
                return
            except CommitFailedError:
                self._levels_of = -1
        raise NexoError(
            f"{self._tables[name].table_uri} keeps being changed by other writers",
            "run only one insights job at a time",
        )

    def _merge(self, name: str, rows: pa.Table) -> None:
        """What is there of the same keys gives way to these rows. Delta's own merge puts all that
        it touches into one file, which grows with every tick; here a file keeps to its minutes."""
        table, kind = self._tables[name], KINDS[name]
        keys = [key for key in _KEYS if key in SCHEMAS[name].names]
        slots = pc.unique(_slots(rows))
        with store_errors(table.table_uri):
            touched = _touched(table, slots)
            removed = [
                RemoveAction(each["path"], True, _now_ms(), each["size_bytes"], {})
                for each in touched
            ]
            kept = self._content(kind, touched)
            kept = kept.join(rows.select(keys), keys, join_type="left anti").cast(rows.schema)
            together = pa.concat_tables([kept, rows])
            of_slots = _slots(together)
            parts = [together.filter(pc.equal(of_slots, slot)) for slot in slots]
            parts.append(together.filter(pc.invert(pc.is_in(of_slots, slots))))
            added = [self._written(kind, _sorted(part)) for part in parts if part.num_rows]
            table.create_write_transaction(
                [*removed, *added],
                mode="append",
                schema=kind.schema,
                # Two that change the same table are told apart by it: one of them begins again.
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(f"nexo.insights/{name}", table.version() + 1)]
                ),
            )
            table.update_incremental()
        if self._lake.folder is not None:
            sync_log(Path(table.table_uri.removeprefix("file://")), [table.version()])

    def _content(self, kind: Kind, files: list[dict[str, Any]]) -> pa.Table:
        """All rows of these files."""
        store = self._lake.files() if self._lake.folder is None else None
        root = kind.name if store is not None else self._lake.table(*kind.path)
        paths = [f"{root}/{unquote(each['path'])}" for each in files]
        if not paths:
            return kind.schema.empty_table()
        found = ds.dataset(paths, schema=kind.schema, format="parquet", filesystem=store)
        return found.to_table()

    def _written(self, kind: Kind, rows: pa.Table) -> AddAction:
        file = TableFile(self._lake, kind, {})
        for batch in rows.to_batches():
            file.write(batch)
        added = file.close()
        return AddAction(added.path, added.size, {}, _now_ms(), True, added.stats)

    def _refresh(self, name: str) -> None:
        with store_errors(self._tables[name].table_uri):
            self._tables[name].update_incremental()

    def _since(self, name: str, first: datetime) -> pa.Table:
        """The rows of this minute and those after it."""
        return _rows(self._tables[name], SCHEMAS[name], ds.field("minute") >= _scalar(first))

    def _with_others(self, consumers: pa.Table) -> pa.Table:
        """With their shares, and the consumers of the same queue and minute whose shares change
        by these."""
        if not consumers.num_rows:
            return consumers
        kept = self._since(WORKERS, pc.min(consumers["minute"]).as_py())
        places = set(_places(consumers))
        mine = set(zip(_places(consumers), consumers["consumer"].to_pylist(), strict=True))
        others = [
            place in places and (place, consumer) not in mine
            for place, consumer in zip(_places(kept), kept["consumer"].to_pylist(), strict=True)
        ]
        kept = kept.filter(pa.array(others, pa.bool_()))
        return _with_shares(pa.concat_tables([consumers, kept]))

    # -- Depths -------------------------------------------------------------------------------

    def _levelled(self, fresh: pa.Table, given: tuple[datetime, dict[str, int]] | None) -> pa.Table:
        """These rows with their depths, and the rows after them whose depths change by these. The
        depths before them are those of the table, or given, those at the begin of a day."""
        if not fresh.num_rows and given is None:
            return fresh
        first = given[0] if given is not None else pc.min(fresh["minute"]).as_py()
        kept = self._since(MINUTES, first)
        queues = set(fresh["queue"].to_pylist()) if given is None else None
        if queues is not None:
            kept = kept.filter(pc.is_in(kept["queue"], pa.array(queues, pa.string())))
        is_new = set(_places(fresh))
        stays = pa.array([place not in is_new for place in _places(kept)], pa.bool_())
        old = kept.filter(stays)
        rows = _sorted(pa.concat_tables([fresh, old]))
        before = given[1] if given is not None else self._before(rows)
        levelled, _ = with_depths(rows, before)
        self._remember(levelled)
        known = dict(zip(_places(old), old["depth"].to_pylist(), strict=True))
        changed = [
            place in is_new or known.get(place) != depth
            for place, depth in zip(_places(levelled), levelled["depth"].to_pylist(), strict=True)
        ]
        return levelled.filter(pa.array(changed, pa.bool_()))

    def _before(self, rows: pa.Table) -> dict[str, int]:
        """The depth of each queue before its first row among these, which are in order."""
        version = self._tables[MINUTES].version()
        if self._levels_of != version:  # others have changed it
            self._levels, self._has_looked_back = {}, False
        firsts: dict[str, datetime] = {}
        for queue, minute in _places(rows):
            firsts.setdefault(queue, minute)
        unknown = {
            queue: first
            for queue, first in firsts.items()
            if queue not in self._levels or self._levels[queue][0][0] >= first
        }
        if unknown and not self._has_looked_back:
            self._levels = self._newest_before(None, LEVELS_KEPT)
            self._has_looked_back = True
        before = {}
        for queue, first in firsts.items():
            levels = self._levels.get(queue, [])
            earlier = [depth for minute, depth in levels if minute < first]
            if not earlier and len(levels) >= LEVELS_KEPT:  # later than all that is remembered
                earlier = [self._newest_before(first, 1).get(queue, [(first, 0)])[-1][1]]
            before[queue] = earlier[-1] if earlier else 0
        return before

    def _remember(self, levelled: pa.Table) -> None:
        """The depths as they are when these rows are in the table."""
        fresh: dict[str, dict[datetime, int]] = {}
        for (queue, minute), depth in zip(
            _places(levelled), levelled["depth"].to_pylist(), strict=True
        ):
            fresh.setdefault(queue, {})[minute] = depth
        for queue, levels in fresh.items():
            merged = sorted({**dict(self._levels.get(queue, [])), **levels}.items())
            self._levels[queue] = merged[-LEVELS_KEPT:]
        self._levels_of = self._tables[MINUTES].version() + 1  # that of the merge to come

    def _newest_before(
        self, moment: datetime | None, most: int
    ) -> dict[str, list[tuple[datetime, int]]]:
        """The last depths of each queue, or those before a moment, in order."""
        adds = pa.table(self._tables[MINUTES].get_add_actions(flatten=True))
        newest = pc.max(adds["max.minute"]).as_py() if "max.minute" in adds.schema.names else None
        if newest is None:
            return {}
        end = min(moment or _NEVER, newest + timedelta(minutes=1))
        chosen = ds.field("minute") >= _scalar(end - LOOK_BACK)
        chosen &= ds.field("minute") < _scalar(end)
        found = _rows(self._tables[MINUTES], QUEUE_MINUTES, chosen, ["queue", "minute", "depth"])
        found = found.sort_by([("queue", "ascending"), ("minute", "ascending")])
        queues = found["queue"].to_numpy()
        ends = [*(np.flatnonzero(queues[1:] != queues[:-1]) + 1).tolist(), len(queues)]
        levels, low = {}, 0
        for high in ends:
            if high > low:
                some = found.slice(max(low, high - most), min(most, high - low))
                pairs = zip(some["minute"].to_pylist(), some["depth"].to_pylist(), strict=True)
                levels[queues[low]] = list(pairs)
            low = high
        return levels


def _rows(
    table: DeltaTable, schema: pa.Schema, chosen: ds.Expression, columns: list[str] | None = None
) -> pa.Table:
    """Some rows of a table, of which only the files are opened that may hold them."""
    with store_errors(table.table_uri):
        found = table.to_pyarrow_dataset().to_table(filter=chosen, columns=columns or schema.names)
    return found.cast(pa.schema([schema.field(name) for name in found.column_names]))


def _touched(table: DeltaTable, slots: pa.Array) -> list[dict[str, Any]]:
    """The files that may hold minutes of these slots."""
    adds = pa.table(table.get_add_actions(flatten=True))
    if "min.minute" not in adds.schema.names:  # none says what it holds
        return list(adds.to_pylist())
    wanted = np.sort(slots.to_numpy())
    lows, highs = (
        pc.fill_null(adds[name].cast(pa.int64()), edge).to_numpy() // _SLOT_US
        for name, edge in (("min.minute", 0), ("max.minute", 2**62))
    )
    is_touched = np.searchsorted(wanted, lows) < np.searchsorted(wanted, highs, side="right")
    return list(adds.filter(pa.array(is_touched)).to_pylist())


def _slots(rows: pa.Table) -> pa.Array:
    """The stretch of time that each row is of."""
    times = rows["minute"].cast(pa.int64()).to_numpy()
    return pa.array(times // _SLOT_US)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _scalar(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, _MINUTE)


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


def _by_table(rows: pa.Table) -> Figures:
    """What Spark hands over, by table."""
    return {
        MINUTES: _of_facet(rows, "minute", {"depth": 0}, QUEUE_MINUTES),
        LETTERS: _of_facet(rows, "reason", {}, DEAD_LETTERS, detail="reason", count="dead_letters"),
        WORKERS: _of_facet(rows, "consumer", {"share": 0.0}, CONSUMERS, detail="consumer"),
    }


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


class QueueDay(NamedTuple):
    """`columns` are those of `queue_minutes` by name, the oldest minute first."""

    queues: list[str]
    columns: dict[str, list[Any]]
    reasons: list[tuple[str, int]]


def queue_day(lake: Lake, queue: str, now: datetime | None = None) -> QueueDay:
    """The last day of one queue; with no name, or none that is there, that of the first."""
    since = ds.field("minute") >= _scalar((now or datetime.now(UTC)) - SHOWN)
    minutes = _found_rows(lake, MINUTES, since)
    queues: list[str] = sorted(pc.unique(minutes["queue"]).to_pylist())
    name = queue if queue in queues or not queues else queues[0]
    chosen = minutes.filter(pc.equal(minutes["queue"], name)).sort_by("minute")
    columns = {each: chosen[each].to_pylist() for each in chosen.column_names if each != "queue"}
    letters = _found_rows(lake, LETTERS, since)
    letters = letters.filter(pc.equal(letters["queue"], name))
    counted = letters.group_by("reason").aggregate([("count", "sum")])
    reasons = zip(counted["reason"].to_pylist(), counted["count_sum"].to_pylist(), strict=True)
    return QueueDay(queues, columns, sorted(reasons, key=lambda each: (-each[1], each[0])))


def _found_rows(lake: Lake, name: str, chosen: ds.Expression) -> pa.Table:
    table = find_table(lake, KINDS[name])
    return SCHEMAS[name].empty_table() if table is None else _rows(table, SCHEMAS[name], chosen)
