"""The examples of docs/pipeline.md that read the lake, run as they stand there."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nexo.pipeline.commits import Commits
from nexo.pipeline.compact import Compact, run
from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, create_table
from nexo.pipeline.job import JobRun
from nexo.pipeline.lake import Lake
from nexo.pipeline.parts import read_table
from nexo.pipeline.status import Teller
from nexo.pipeline.tables import Tables
from nexo.vocabulary.errors import InvalidArgument
from tests.pipeline.rows import NOON, messages, write
from tests.pipeline.test_insights import figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"
SCOPED = "123456789012/eu-west-1/q"


def examples() -> list[str]:
    chapter = DOCUMENT.read_text().partition("## Reading the lake\n")[2].partition("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
    assert len(found) == 4, "one for each reader"
    return found


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_readers_of_the_documentation(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    lake = Lake(tmp_path / "lake")
    create_table(lake, EVENTS_TABLE)
    commits = Commits(lake, MESSAGES_TABLE)
    for first in (0, 10):
        rows = [messages(name, range(first, first + 10)) for name in ("orders", SCOPED)]
        commits.commit(write(lake, *rows), "query", 0)
    Tables(lake).put(figures(("orders", NOON, 7, 2), ("b", NOON + timedelta(hours=3), 1, 0)))
    if is_compacted:
        running = JobRun(spark, {}, Teller("compact", lake))
        assert run(running, lake, Compact())["partitions"] == 3
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {"spark": spark}
    for code in examples():
        exec(code, seen)
    assert sorted(seen["orders"]["offset"]) == list(range(20))
    assert len(seen["yesterday"].to_pyarrow_table()) == 20
    assert sorted(seen["found"].fetchall()) == [
        (SCOPED, NOON.date(), 20, 30),
        ("orders", NOON.date(), 20, 30),
    ]
    assert dict(seen["busiest"].iter_rows()) == {"orders": 7, "b": 1}
    assert seen["by_day"] == {NOON.date(): 20}
    scoped = read_table(spark, lake, source=SCOPED)
    assert sorted(row["offset"] for row in scoped.collect()) == list(range(20))
    with pytest.raises(InvalidArgument):
        read_table(spark, lake, "events", source="orders")
