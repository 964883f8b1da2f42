"""`nexo pipeline`: what it says without Spark, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nexo.cli.main import run
from nexo.pipeline.lake import Lake
from nexo.pipeline.status import Teller

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = "nexo://127.0.0.1:1"


class Nexo:
    """The command, in this process: none of these gets as far as Spark."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        status = run(["pipeline", *arguments])
        said = self._capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def nexo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Nexo:
    monkeypatch.setenv("NEXO_URL", NOBODY)
    monkeypatch.chdir(tmp_path)
    return Nexo(capsys)


def test_the_jobs_are_listed(nexo: Nexo) -> None:
    listed = json.loads(nexo("list", "--json")[1])
    assert [each["name"] for each in listed] == [
        "archive",
        "insights",
        "replay",
        "redrive",
        "compact",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["run", "archve"], 2, "did you mean archive?"),
        (["run", "nothing.py"], 2, "does not exist"),
        (["run", "archive", "--conf", "x"], 2, "KEY=VALUE"),
        (["run", "archive", "--lake", "ftp://a/b"], 2, "s3://"),
        (["run", "archive", "--lake", "s3:///b"], 2, "no bucket"),
        (["run", "archive", "--storage-option", "x"], 2, "KEY=VALUE"),
        (["run", "compact", "--vacuum", "10m"], 2, "use at least 1h"),
        (["migrate", "--lake", "nothing"], 2, "not a lake of Parquet"),
        (["run", "insights", "--day", "today"], 2, "--from-lake"),
        (["run", "insights", "--from-lake", "--day", "x"], 2, "2026-05-31"),
        (["run", "replay", "--source", "a"], 2, "--to-queue"),
        (["run", "replay"], 2, "--source"),
        (["run", "replay", "--source", "a", "--to-queue", "b", "--from", "x"], 2, "not a time"),
        (["run", "replay", "--source", "a", "--to-queue", "b", "--from", "2h"], 2, "--replay-id"),
        (["run", "replay", "--source", "a", "--to-queue", "b", "--until", "5m"], 2, "--replay-id"),
        (["run", "redrive"], 2, "--queue"),
        (["run", "archive", "--once"], 3, "no broker answers"),
    ],
)
def test_wrong_usage(nexo: Nexo, arguments: list[str], status: int, said: str) -> None:
    left_with, _, error = nexo(*arguments)
    assert (left_with, said in error) == (status, True), error
    assert len(error.splitlines()) == 1


def test_how_jobs_are_doing(nexo: Nexo, tmp_path: Path) -> None:
    assert "No job has run" in nexo("status", "--lake", "lake")[1]
    lake = Lake(tmp_path / "lake")
    teller = Teller("archive", lake)
    teller.add("orders", 500, 20)
    teller.tell("failed", "the disk is full")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    died = Teller("insights", lake)
    died.status.process = ended.pid
    died.add("nexo.events", 7, 0)
    archive, insights = json.loads(nexo("status", "--lake", "lake", "--json")[1])
    assert (archive["job"], archive["state"], archive["rows"]) == ("archive", "failed", 500)
    assert (archive["lag"], archive["error"]) == (20, "the disk is full")
    assert archive["sources"] == {"orders": {"rows": 500, "lag": 20}}
    assert (insights["state"], insights["lag"]) == ("died", 0)
    shown = nexo("status", "--lake", "lake")[1]
    assert "the disk is full" in shown
    assert "500" in shown
