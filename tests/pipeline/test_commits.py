"""Commits and files: a batch is in the table whole and once, with what readers need to pass files
over. No Spark here."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from nexo.pipeline import files as room
from nexo.pipeline.commits import Commits
from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, create_table
from nexo.pipeline.files import event_columns
from nexo.pipeline.lake import Lake
from nexo.query.rows import TOPIC_SCHEMA
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.events import Event, batch_of_events
from nexo.vocabulary.states import EventKind
from tests.pipeline.rows import NOON, messages, write

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """With its tables, which an archive makes before it writes."""
    lake = Lake(tmp_path / "lake")
    for kind in (MESSAGES_TABLE, EVENTS_TABLE):
        create_table(lake, kind)
    return lake


def commits_of(lake: Lake) -> Commits:
    """As a process that has just started has them."""
    return Commits(lake, MESSAGES_TABLE)


def offsets(lake: Lake, source: str = "news") -> list[int]:
    rows = DeltaTable(lake.table("messages")).to_pyarrow_table().to_pylist()
    return sorted(row["offset"] for row in rows if row["source"] == source)


def test_a_batch_is_taken_once(lake: Lake) -> None:
    for batch in (0, 1):
        added = write(lake, messages("news", range(batch * 10, batch * 10 + 10)))
        assert commits_of(lake).commit(added, "query", batch) == set()
        again = write(lake, messages("news", range(batch * 10, batch * 10 + 10)))
        assert commits_of(lake).commit(again, "another", 7) == {"news"}, "nothing is committed"
    assert offsets(lake) == list(range(20))
    assert commits_of(lake).next_offset("news") == 20
    assert commits_of(lake).next_offset("nobody") is None
    last = DeltaTable(lake.table("messages")).history(1)[0]
    assert json.loads(last["nexo.next_offsets"]) == {"news": 20}
    assert (last["nexo.query"], last["nexo.batch"]) == ("query", "1")
    newest = max(Path(lake.table("messages"), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    named = [action["add"]["path"] for action in actions if "add" in action]
    assert len(named) == 1, "readers need not forgive a file that is named twice"


def test_a_batch_that_overlaps_is_not_taken_and_its_rest_is(lake: Lake) -> None:
    """An older checkpoint, under any number of the batch, with messages old and new."""
    commits = commits_of(lake)
    both = write(lake, messages("news", range(10)), messages("nexo.archive.orders", range(5)))
    commits.commit(both, "query", 0)
    batch = messages("news", range(5, 15)), messages("nexo.archive.orders", range(5, 8))
    assert commits.commit(write(lake, *batch), "query", 0) == {"news"}
    assert offsets(lake, "orders") == list(range(5)), "a batch is taken whole or not at all"
    rest = messages("news", range(commits.next_offset("news") or 0, 15)), batch[1]
    assert commits.commit(write(lake, *rest), "query", 0) == set()
    assert offsets(lake) == list(range(15))
    assert offsets(lake, "orders") == list(range(8))


def test_offsets_outlive_the_log(lake: Lake) -> None:
    commits = commits_of(lake)
    for batch in range(5):
        commits.commit(write(lake, messages("news", range(batch * 3, batch * 3 + 3))), "q", batch)
    table = DeltaTable(lake.table("messages"))
    table.create_checkpoint()
    log = Path(lake.table("messages"), "_delta_log")
    for file in sorted(log.glob("*.json"))[:-1]:
        file.unlink()
    assert commits_of(lake).next_offset("news") == 15


def test_a_source_that_was_made_anew(lake: Lake) -> None:
    commits = commits_of(lake)
    commits.commit(write(lake, messages("news", range(10))), "q", 0)
    commits.set_next_offset("news", 0)
    assert commits_of(lake).next_offset("news") == 0
    assert commits.commit(write(lake, messages("news", range(3))), "q", 1) == set()
    assert commits.commit(write(lake, messages("news", range(2))), "q", 2, {"news"}) == set()
    assert offsets(lake) == sorted([*range(10), *range(3), *range(2)])
    assert commits_of(lake).next_offset("news") == 2


def test_writers_at_once(lake: Lake) -> None:
    """Each has a source of its own, and all of them one together, of which one wins each time."""
    commits_of(lake)
    taken: list[int] = []

    def archive(name: str) -> None:
        commits = commits_of(lake)
        for batch in range(10):
            first = batch * 5
            own = write(lake, messages(name, range(first, first + 5)))
            assert commits.commit(own, name, batch) == set()
            shared = write(lake, messages("shared", range(first, first + 5)))
            if not commits.commit(shared, name, batch):
                taken.append(batch)

    threads = [threading.Thread(target=archive, args=(name,)) for name in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for name in "abcd":
        assert offsets(lake, name) == list(range(50))
    shared = offsets(lake, "shared")
    assert len(shared) == len(set(shared)) == 5 * len(taken), "nothing twice"


def test_what_a_reader_passes_over(lake: Lake) -> None:
    """A file for each source and day, and the lowest and highest of offsets and times."""
    day = 86_400.0
    added = write(lake, messages("a", range(3), day), messages("123456789012/eu/q", range(4)))
    commits_of(lake).commit(added, "q", 0)
    adds = pa.table(DeltaTable(lake.table("messages")).get_add_actions(flatten=True)).to_pylist()
    told = {(row["partition.source"], row["partition.date"]): row for row in adds}
    assert len(told) == len(adds) == 4
    third = told["a", date(2026, 6, 2)]
    moment = NOON + timedelta(days=2)
    assert (third["min.offset"], third["max.offset"], third["num_records"]) == (2, 2, 1)
    assert third["min.created_at"] == third["max.created_at"] == moment
    scoped = told["123456789012/eu/q", date(2026, 5, 31)]
    assert (scoped["min.offset"], scoped["max.offset"]) == (0, 3)
    assert offsets(lake, "123456789012/eu/q") == list(range(4))


def test_the_highest_time_is_never_told_too_low(lake: Lake) -> None:
    batch = messages("a", range(1))
    odd = pa.array([NOON + timedelta(microseconds=1)], pa.timestamp("us", tz="UTC"))
    batch = batch.set_column(4, TOPIC_SCHEMA.field(4), odd)
    (added,) = write(lake, batch)
    stats = json.loads(added.stats)
    assert stats["minValues"]["created_at"] == "2026-05-31T12:00:00.000Z"
    assert stats["maxValues"]["created_at"] == "2026-05-31T12:00:00.001Z"
    assert stats["numRecords"] == 1


def test_a_large_task_writes_several_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FILE_BYTES", 1)
    monkeypatch.setattr(room, "GROUP_ROWS", 10)
    added = write(lake, *(messages("a", range(n, n + 10)) for n in (0, 10, 20)))
    assert [(each.first, each.last, each.rows) for each in added] == [
        (0, 9, 10),
        (10, 19, 10),
        (20, 29, 10),
    ]
    monkeypatch.setattr(room, "OPEN_FILES_MAX", 2)
    added = write(lake, messages("a", range(5), 86_400.0))
    assert len(added) == 5
    for each in added:
        file = Path(lake.table("messages"), each.path)
        assert (file.stat().st_size, pq.read_metadata(file).num_rows) == (each.size, each.rows)


def test_a_file_of_several_groups_tells_of_all(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next offset of the table comes from it, and readers pass it over by it."""
    monkeypatch.setattr(room, "GROUP_ROWS", 10)
    (added,) = write(lake, *(messages("a", range(n, n + 10)) for n in (0, 10, 20)))
    assert (added.first, added.last, added.rows) == (0, 29, 30)
    told = json.loads(added.stats)
    assert (told["minValues"]["offset"], told["maxValues"]["offset"]) == (0, 29)
    assert told["minValues"]["created_at"] == "2026-05-31T12:00:00.000Z"
    assert told["maxValues"]["created_at"] == "2026-05-31T12:00:29.000Z"


def test_a_task_that_fails_leaves_no_file_behind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full: what is half written must not keep it so."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    folder = Path(lake.table("messages"))
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(ReadOnly, match="is full"):
            write(lake, messages("a", range(10)))
    assert not list(folder.rglob("*.parquet"))

    def cut_off() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "a", messages("a", range(10))
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "GROUP_ROWS", 5)
    with pytest.raises(KeyboardInterrupt):
        room.write_files(lake, cut_off())
    assert not list(folder.rglob("*.parquet"))


def test_events_have_columns_of_their_own(lake: Lake) -> None:
    at_ms = round(NOON.timestamp() * 1000)
    told = [
        Event(EventKind.PUSHED, "orders", 7, 3, at_ms, at_ms - 5, 0, "", ""),
        Event(EventKind.ACKED, 'o"\n', 7, 3, at_ms + 9, at_ms, 2, "c", "ü", at_ms + 1),
    ]
    batch = batch_of_events(told)
    bodies = [bytes(batch.body(index)) for index in range(2)]
    added = None
    for more in ([], [b"no event", b'{"kind": 7}', b'{"at_ms": "x"}', b"[]"]):
        rows = messages("nexo.events", range(2 + len(more)))
        rows = rows.set_column(1, TOPIC_SCHEMA.field(1), pa.array([*bodies, *more], pa.binary()))
        found = event_columns(rows).to_pylist()
        assert found[0]["delivered_at"] is None
        assert found[0]["created_at"] == NOON - timedelta(milliseconds=5)
        acked = found[1]
        assert (acked["kind"], acked["queue"], acked["reason"]) == ("acked", 'o"\n', "ü")
        assert acked["delivered_at"] == NOON + timedelta(milliseconds=1)
        assert acked["at"].astimezone(UTC) == NOON + timedelta(milliseconds=9)
        assert [each["offset"] for each in found] == list(range(2 + len(more)))
        assert all(isinstance(each["at"], datetime) for each in found), "each has its day"
        (added,) = write(lake, rows)
    assert added is not None
    assert (added.table, added.source, added.partition) == (
        "events",
        "nexo.events",
        {"date": "2026-05-31"},
    )
    assert Commits(lake, EVENTS_TABLE).commit([added], "q", 0) == set()
    assert Commits(lake, EVENTS_TABLE).next_offset("nexo.events") == 6
