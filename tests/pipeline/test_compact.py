"""compact: fewer files, the same rows, and nobody who reads meanwhile sees one missing or twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nexo.pipeline import compact as room
from nexo.pipeline.compact import Compact, exchange, run
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place

FILES, ROWS_EACH = 12, 25


class Died(BaseException):
    """The process is gone."""


def write_small_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(FILES):
        first = number * ROWS_EACH
        _write(folder / f"part-{number:08}.parquet", first)


def _write(file: Path, first: int) -> None:
    offsets = pa.array(range(first, first + ROWS_EACH), pa.int64())
    bodies = pa.array([b"x" * 10] * ROWS_EACH, pa.binary())
    pq.write_table(pa.table({"body": bodies, "offset": offsets}), file)


def offsets_in(folder: Path) -> list[int]:
    """As a reader does: list, then open. A file that is gone by then is met by reading anew."""
    while True:
        try:
            files = sorted(folder.glob("*.parquet"))
            return sorted(n for f in files for n in pq.read_table(f)["offset"].to_pylist())
        except FileNotFoundError:
            continue


def test_readers_see_each_row_once(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place.lake.messages / "source=a" / "date=2026-05-31"
    write_small_files(folder)
    other = place.lake.messages / "source=b" / "date=2026-05-31"
    other.mkdir(parents=True)
    _write(other / "part-1.parquet", 0)
    late = folder / "part-late.parquet"
    switch = room._switch

    def switch_with_a_late_file(*arguments: object) -> None:
        _write(late, FILES * ROWS_EACH)  # the archive goes on while the files are written anew
        switch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "_switch", switch_with_a_late_file)
    ended, wrong, reads = threading.Event(), [], 0

    def read() -> None:
        nonlocal reads
        while not ended.is_set():
            seen = offsets_in(folder)
            reads += 1
            if seen != list(range(len(seen))) or len(seen) < FILES * ROWS_EACH:
                wrong.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    found = run(place.running(spark, "compact"), place.lake, Compact())
    ended.set()
    reader.join()
    assert not wrong, f"{len(wrong)} of {reads} reads: {wrong[0]}"
    assert reads > 1
    assert (found["folders"], found["files_before"], found["files_after"]) == (1, FILES, 2)
    assert offsets_in(folder) == list(range((FILES + 1) * ROWS_EACH))
    assert not list(place.lake.internal("staging").iterdir())


@pytest.mark.parametrize("point", ["before the switch", "after the switch"])
def test_killed_the_next_run_goes_on(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    folder = place.lake.messages / "source=a" / "date=2026-05-31"
    write_small_files(folder)

    def die(one: Path, other: Path) -> None:
        if point == "after the switch":
            exchange(one, other)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(room, "exchange", die)
        with pytest.raises(Died):
            run(place.running(spark, "compact"), place.lake, Compact())
    assert offsets_in(folder) == list(range(FILES * ROWS_EACH))
    found = run(place.running(spark, "compact"), place.lake, Compact())
    assert found["folders"] == (point == "before the switch")
    assert offsets_in(folder) == list(range(FILES * ROWS_EACH))
    assert len(list(folder.glob("*.parquet"))) == 1
    assert not list(place.lake.internal("staging").iterdir())


def test_files_of_about_the_size_that_is_wanted(spark: SparkSession, place: Place) -> None:
    folder = place.lake.events / "date=2026-05-31"
    write_small_files(folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    run(place.running(spark, "compact"), place.lake, Compact(target_bytes=size // 3 + 1))
    assert len(list(folder.glob("*.parquet"))) == 3
    assert offsets_in(folder) == list(range(FILES * ROWS_EACH))


def test_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()
    exchange(one, other)
    assert [each.name for each in one.iterdir()] == ["other"]
    assert [each.name for each in other.iterdir()] == ["one"]
    with pytest.raises(NexoError, match="cannot exchange") as refused:
        exchange(one, tmp_path / "nothing")
    assert "nothing was changed" in refused.value.hint
