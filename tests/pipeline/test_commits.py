"""Commits: a batch is in the table whole and once, wherever the process died. No Spark here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nexo.pipeline import commits as room
from nexo.pipeline.commits import Commits, finish_all
from nexo.pipeline.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

DATES = ("date=2026-05-30", "date=2026-05-31")


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def commits_of(lake: Lake) -> Commits:
    """As a process that has just started has them."""
    return Commits(lake, "archive-news", lake.messages / "source=news")


def write(commits: Commits, batch: int) -> None:
    """What Spark does: a file in each of two folders, offsets from ten times the batch on."""
    place = commits.stage(batch)
    for index, date in enumerate(DATES):
        (place / date).mkdir(parents=True)
        first = batch * 10 + index * 5
        offsets = pa.table({"offset": pa.array(range(first, first + 5), pa.int64())})
        pq.write_table(offsets, place / date / f"part-{index}.parquet")


def offsets(lake: Lake) -> list[int]:
    files = lake.messages.rglob("*.parquet")
    return sorted(n for each in files for n in pq.read_table(each)["offset"].to_pylist())


def test_a_batch_is_taken_once(lake: Lake) -> None:
    for batch in (0, 1):
        commits = commits_of(lake)
        commits.recover()
        assert not commits.holds("query", batch)
        write(commits, batch)
        commits.commit("query", batch)
        assert commits_of(lake).holds("query", batch)
    assert offsets(lake) == list(range(20))
    last = commits_of(lake).last()
    assert last is not None
    assert last.next_offset == 20
    assert not list(lake.internal("staging").rglob("*.parquet"))


def test_killed_before_the_manifest_nothing_is_there(lake: Lake) -> None:
    commits = commits_of(lake)
    write(commits, 0)
    commits = commits_of(lake)
    commits.recover()
    assert not commits.holds("query", 0)
    assert offsets(lake) == []
    assert not list(lake.internal("staging").rglob("*.parquet"))


@pytest.mark.parametrize("moved", [0, 1, 2])
@pytest.mark.parametrize("by_another_job", [False, True])
def test_killed_while_files_move_the_next_one_finishes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, moved: int, by_another_job: bool
) -> None:
    commits = commits_of(lake)
    write(commits, 0)

    def die_after(lake: Lake, manifest: room.Manifest) -> None:
        for staged, target in list(manifest.files.items())[:moved]:
            (lake.root / target).parent.mkdir(parents=True, exist_ok=True)
            (lake.root / staged).rename(lake.root / target)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(room, "_move", die_after)
        with pytest.raises(Died):
            commits.commit("query", 0)
    if by_another_job:
        with lake.locked():
            finish_all(lake)
    commits = commits_of(lake)
    commits.recover()
    assert commits.holds("query", 0)
    assert offsets(lake) == list(range(10))


def test_an_older_checkpoint_brings_what_is_there_already(lake: Lake) -> None:
    """Until it has caught up, whatever the numbers of its batches."""
    commits = commits_of(lake)
    for batch in range(4):
        assert commits.floor("query", batch) == 0
        write(commits, batch)
        commits.commit("query", batch)
    for batch in (1, 2):  # restored: all that these bring is there
        assert commits.floor("query", batch) == 40
        commits.stage(batch).mkdir()
        commits.commit("query", batch)
    assert commits.floor("query", 3) == 40
    place = commits.stage(3) / DATES[0]  # the first that has more, cut otherwise than before
    place.mkdir(parents=True)
    pq.write_table(
        pa.table({"offset": pa.array(range(40, 45), pa.int64())}), place / "part-0.parquet"
    )
    commits.commit("query", 3)
    assert commits.floor("query", 4) == 0
    assert offsets(lake) == list(range(45))
    assert commits.floor("another", 0) == 45


def test_a_source_that_was_made_anew(lake: Lake) -> None:
    commits = commits_of(lake)
    commits.begin_anew()
    write(commits, 3)
    commits.commit("query", 3)
    commits.begin_anew()
    assert commits.floor("another", 0) == 0
    write(commits, 0)
    commits.commit("another", 0)
    assert offsets(lake) == [*range(10), *range(30, 40)]


def test_an_empty_batch_is_a_batch(lake: Lake) -> None:
    commits = commits_of(lake)
    write(commits, 0)
    commits.commit("query", 0)
    commits.stage(1).mkdir()
    commits.commit("query", 1)
    last = commits_of(lake).last()
    assert last is not None
    assert (last.batch, last.next_offset) == (1, 10)
