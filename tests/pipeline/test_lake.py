"""The lake: what is refused in one line with nothing written, and lakes from before Delta."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import create_table_with_add_actions

from nexo.cli.main import run
from nexo.pipeline.commits import Commits
from nexo.pipeline.delta import (
    EVENTS_TABLE,
    MESSAGES_TABLE,
    check_lake,
    create_table,
    is_old,
    open_table,
    store_errors,
)
from nexo.pipeline.lake import Lake
from nexo.pipeline.migrate import run as migrate
from nexo.pipeline.tables import QUEUE_MINUTES, Tables
from nexo.vocabulary.errors import InvalidArgument, NexoError, ReadOnly, Unauthorized
from tests.pipeline.rows import NOON, messages, write

if TYPE_CHECKING:
    from pathlib import Path

DAY = date(2026, 5, 31)


def files_in(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("what", ["iceberg", "parquet", "schema", "partitions", "file"])
def test_tables_of_others_are_not_touched(tmp_path: Path, what: str) -> None:
    lake, place = Lake(tmp_path / "lake"), tmp_path / "lake" / "messages"
    place.parent.mkdir()
    rows = pa.table({"offset": [1], "source": ["a"], "date": [DAY]})
    if what == "iceberg":
        (place / "metadata").mkdir(parents=True)
        (place / "metadata" / "v1.metadata.json").write_text("{}")
    elif what == "parquet":
        place.mkdir()
        pq.write_table(rows, place / "0.parquet")
    elif what == "schema":
        write_deltalake(place, rows, partition_by=["source", "date"])
    elif what == "partitions":
        DeltaTable.create(str(place), MESSAGES_TABLE.schema, partition_by=["date"])
    else:
        place.write_text("mine")
    before = files_in(tmp_path)
    with pytest.raises(InvalidArgument) as refused:
        check_lake(lake)
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidArgument):
        create_table(lake, MESSAGES_TABLE)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("what", ["files", "schema"])
def test_insights_of_others_are_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Before Spark starts: not even a status is written."""
    place = tmp_path / "lake" / "insights" / "queue_minutes"
    place.mkdir(parents=True)
    if what == "files":
        (place / "mine.csv").write_text("1")
    else:
        write_deltalake(place, pa.table({"x": [1]}))
    before = files_in(tmp_path)
    for flags in (["--once"], ["--from-lake"]):
        lake = str(tmp_path / "lake")
        assert run(["pipeline", "run", "insights", *flags, "--lake", lake]) == 2
        (told,) = capsys.readouterr().err.splitlines()
        assert "queue_minutes" in told
        assert files_in(tmp_path) == before


def test_a_table_with_more_columns_is_ours(tmp_path: Path) -> None:
    """People may add columns: the archive leaves them empty."""
    lake = Lake(tmp_path / "lake")
    commits = Commits(lake, MESSAGES_TABLE)
    commits.commit(write(lake, messages("a", range(3))), "q", 0)
    from deltalake import Field, Schema

    extra = Field("tenant", Schema.from_arrow(pa.schema([("x", pa.string())])).fields[0].type)
    DeltaTable(lake.table("messages")).alter.add_columns(extra)
    commits = Commits(lake, MESSAGES_TABLE)
    assert commits.commit(write(lake, messages("a", range(3, 5))), "q", 1) == set()
    rows = DeltaTable(lake.table("messages")).to_pyarrow_table()
    assert sorted(rows["offset"].to_pylist()) == list(range(5))
    assert rows["tenant"].null_count == 5


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("os error 28", ReadOnly),
        ("Read-only file system (os error 30)", ReadOnly),
        ("404\n<Code>NoSuchBucket</Code>", InvalidArgument),
        ("\x1b[31m↳\x1b[0m 403 Forbidden\n<Code>InvalidAccessKeyId</Code>", Unauthorized),
        ("PUT http://169.254.169.254/latest/api/token", Unauthorized),
        ("something\nelse", NexoError),
    ],
)
def test_what_a_store_refuses_is_one_line(said: str, kind: type[NexoError]) -> None:
    with pytest.raises(kind) as refused, store_errors("s3://bucket/lake"):
        raise OSError(said)
    assert "\n" not in str(refused.value)
    assert "s3://bucket/lake" in str(refused.value)


@pytest.mark.parametrize(
    ("lake", "named"),
    [
        ("s3://bucket/lake", "AWS_ACCESS_KEY_ID"),
        ("gs://bucket/lake", "GOOGLE_SERVICE_ACCOUNT"),
        ("abfss://c@account.dfs.core.windows.net/lake", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_the_credentials_of_each_store_are_named(lake: str, named: str) -> None:
    with pytest.raises(Unauthorized) as refused, store_errors(lake):
        raise OSError("403 Forbidden")
    assert named in refused.value.hint


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/sys is what root cannot write")
def test_a_folder_that_cannot_be_written() -> None:
    with pytest.raises(ReadOnly, match="cannot be written"):
        create_table(Lake("/sys/nexo-lake"), MESSAGES_TABLE)


def old_lake(folder: Path) -> Lake:
    """As it was written before: a batch committed and half moved, a day of insights."""
    rows = messages("x", range(4)).drop_columns(["source"])
    for first, name in ((0, "orders"), (2, "123456789012%2Feu-west-1%2Fq")):
        place = folder / "messages" / f"source={name}" / f"date={DAY}"
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_batches([rows.slice(first, 2)]), place / "part-0.parquet")
    staged = folder / "_nexo" / "staging" / "archive-orders" / "1" / "part-1.parquet"
    staged.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([rows.slice(2, 2)]), staged)
    commits = folder / "_nexo" / "commits"
    commits.mkdir()
    target = f"messages/source=orders/date={DAY}/part-1.parquet"
    moved = {str(staged.relative_to(folder)): target}
    for topic, files, end in (
        ("nexo.archive.orders", moved, 4),
        ("nexo.archive.123456789012%2Feu-west-1%2Fq", {}, 4),
        ("nexo.events", {}, 0),
    ):
        told = {"query": "q", "batch": 1, "files": files, "next_offset": end}
        (commits / f"archive-{topic}.json").write_text(json.dumps(told))
    insights = folder / "insights" / "queue_minutes"
    insights.mkdir(parents=True)
    row = dict.fromkeys(QUEUE_MINUTES.names, 1) | {"queue": "orders", "minute": NOON}
    row |= {"depth": 6}
    pq.write_table(pa.Table.from_pylist([row], schema=QUEUE_MINUTES), insights / f"{DAY}.parquet")
    (folder / "_nexo" / "checkpoints" / "archive" / "orders").mkdir(parents=True)
    return Lake(folder)


def check_migrated(lake: Lake) -> None:
    table = open_table(lake, MESSAGES_TABLE)
    found = sorted((row["source"], row["offset"]) for row in table.to_pyarrow_table().to_pylist())
    scoped = "123456789012/eu-west-1/q"
    assert found == [(scoped, 2), (scoped, 3), *(("orders", each) for each in range(4))]
    commits = Commits(lake, MESSAGES_TABLE)
    assert (commits.next_offset("orders"), commits.next_offset(scoped)) == (4, 4)
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sorted(row["max.offset"] for row in adds) == [1, 3, 3], "readers can pass them over"
    assert commits.commit(write(lake, messages("orders", range(4, 6))), "q", 0) == set()
    assert commits.commit(write(lake, messages("orders", range(5, 6))), "q", 0) == {"orders"}
    assert Commits(lake, EVENTS_TABLE).next_offset("nexo.events") == 0
    _, depths = Tables(lake).depths_before(datetime(2026, 6, 1, tzinfo=UTC))
    assert depths == {"orders": 6}
    check_lake(lake)


def test_a_lake_of_before_is_converted_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = old_lake(tmp_path / "lake")
    with pytest.raises(InvalidArgument, match="written by an older Nexo") as refused:
        check_lake(lake)
    assert "nexo pipeline migrate" in refused.value.hint
    assert run(["pipeline", "run", "compact", "--lake", lake.uri]) == 2
    assert "nexo pipeline migrate" in capsys.readouterr().err
    assert run(["pipeline", "migrate", "--lake", lake.uri, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"tables": 3, "files": 4, "sources": 3}
    assert not is_old(lake)
    check_migrated(lake)
    internal = tmp_path / "lake" / "_nexo"
    assert not (internal / "commits").exists()
    assert not (internal / "staging").exists()
    with pytest.raises(InvalidArgument, match="not a lake of Parquet"):
        migrate(lake)


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("steps", range(4))
def test_a_conversion_that_is_killed_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    from nexo.pipeline import migrate as room

    lake = old_lake(tmp_path / "lake")
    left = steps

    def step(real: object) -> object:
        def die_or(*arguments: object, **named: object) -> object:
            nonlocal left
            if not left:
                raise Died
            left -= 1
            return real(*arguments, **named)  # type: ignore[operator]

        return die_or

    with monkeypatch.context() as patched:
        create = step(create_table_with_add_actions)
        patched.setattr(room, "create_table_with_add_actions", create)
        patched.setattr(shutil, "rmtree", step(shutil.rmtree))
        with pytest.raises(Died):
            migrate(lake)
    assert is_old(lake)
    with pytest.raises(InvalidArgument):
        check_lake(lake)
    migrate(lake)
    check_migrated(lake)
