"""compact: fewer files, the same rows, and nobody who reads meanwhile sees one missing or twice."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from nexo.pipeline.commits import Commits
from nexo.pipeline.compact import Compact, Housekeeping, crowded, run
from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, create_table
from nexo.pipeline.job import JobRun
from nexo.pipeline.lake import Lake
from nexo.pipeline.status import Teller
from nexo.vocabulary.errors import InvalidArgument
from tests.pipeline.rows import messages, write

FILES, ROWS_EACH = 12, 25


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    create_table(lake, EVENTS_TABLE)
    return lake


def running(lake: Lake) -> JobRun:
    return JobRun(None, {}, Teller("compact", lake))  # type: ignore[arg-type]  # it needs no Spark


def fill(lake: Lake, source: str = "a", files: int = FILES, first: int = 0) -> Commits:
    commits = Commits(lake, MESSAGES_TABLE)
    for number in range(files):
        start = first + number * ROWS_EACH
        commits.commit(write(lake, messages(source, range(start, start + ROWS_EACH))), "q", number)
    return commits


def offsets(lake: Lake, source: str = "a") -> list[int]:
    rows = DeltaTable(lake.table("messages")).to_pyarrow_table().to_pylist()
    return sorted(row["offset"] for row in rows if row["source"] == source)


def test_readers_see_each_row_once_and_the_archive_goes_on(lake: Lake) -> None:
    fill(lake)
    fill(lake, "b", 1)
    ended, wrong, reads = threading.Event(), [], 0

    def read() -> None:
        nonlocal reads
        while not ended.is_set():
            seen = offsets(lake)
            reads += 1
            if seen != list(range(len(seen))) or len(seen) < FILES * ROWS_EACH:
                wrong.append(seen)

    def archive() -> None:
        fill(lake, files=10, first=FILES * ROWS_EACH)

    threads = [threading.Thread(target=each) for each in (read, archive)]
    for each in threads:
        each.start()
    found = run(running(lake), lake, Compact())
    threads[1].join()
    while not reads:
        time.sleep(0.01)
    ended.set()
    threads[0].join()
    assert not wrong, f"{len(wrong)} of {reads} reads: {wrong[0]}"
    assert found["partitions"] == 1, "one file is not many"
    assert found["files_before"] >= FILES
    assert found["files_after"] == 1
    assert offsets(lake) == list(range((FILES + 10) * ROWS_EACH))
    run(running(lake), lake, Compact())
    table = DeltaTable(lake.table("messages"))
    assert len(table.file_uris()) == 2
    assert Commits(lake, MESSAGES_TABLE).next_offset("a") == (FILES + 10) * ROWS_EACH
    assert offsets(lake, "b") == list(range(ROWS_EACH))
    assert run(running(lake), lake, Compact())["partitions"] == 0, "nothing is left to do"


def test_few_files_are_left_alone(lake: Lake) -> None:
    fill(lake)
    assert run(running(lake), lake, Compact(files_min=FILES + 1))["partitions"] == 0
    largest = max(
        Path(each).stat().st_size for each in DeltaTable(lake.table("messages")).file_uris()
    )
    assert run(running(lake), lake, Compact(target_bytes=largest))["partitions"] == 0
    assert run(running(lake), lake, Compact(files_min=FILES))["partitions"] == 1


def test_vacuum_removes_what_is_old_and_nothing_that_may_be_needed(lake: Lake) -> None:
    fill(lake)
    (left,) = write(lake, messages("a", range(5)))  # of a job that was killed
    (young,) = write(lake, messages("a", range(5)))  # of one that is about to commit it
    root = Path(lake.table("messages"))
    before = set(root.rglob("*.parquet"))
    long_ago = time.time() - 8 * 86_400
    os.utime(root / left.path, (long_ago, long_ago))
    found = run(running(lake), lake, Compact(vacuum_s=7 * 86_400))
    assert found["vacuumed"] == 1
    assert not (root / left.path).exists()
    assert all(file.exists() for file in before if file != root / left.path), (
        "old versions are kept"
    )
    assert (root / young.path).exists()
    assert offsets(lake) == list(range(FILES * ROWS_EACH))
    assert len(DeltaTable(str(root), version=FILES).to_pyarrow_table()) == FILES * ROWS_EACH
    with pytest.raises(InvalidArgument, match="too short"):
        run(running(lake), lake, Compact(vacuum_s=600))


def test_an_archive_that_runs_on_compacts_by_itself(lake: Lake) -> None:
    fill(lake)
    fill(lake, "b", 3)
    kept = Housekeeping(lake, ("messages", "events"), every_s=0.0, files_max=FILES)
    kept.look()
    kept.close()
    assert kept.compacted.partitions == 1, "the other has few files"
    assert offsets(lake) == list(range(FILES * ROWS_EACH))
    table = DeltaTable(lake.table("messages"))
    assert len(table.file_uris()) == 4
    assert list(crowded(table, MESSAGES_TABLE, 1 << 30, 2).values()) == [3]
    later = Housekeeping(lake, ("messages",), every_s=3_600.0, files_max=2)
    later.look()
    later.close()
    assert later.compacted.partitions == 0, "it is not due"


def test_there_must_be_tables(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "nothing")
    with pytest.raises(InvalidArgument, match="no tables"):
        run(running(lake), lake, Compact())
