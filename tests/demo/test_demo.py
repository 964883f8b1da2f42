"""`nexo demo`, whole: everything runs, is killed, and is accounted for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from examples.gps.demo.happenings import Happenings
from examples.gps.demo.look import Course, Line, Look
from examples.gps.demo.panels import curve
from examples.gps.demo.process import Process
from examples.gps.demo.stage import Stage
from examples.gps.demo.strikes import LATEST, Strikes
from examples.gps.progress_file import Batch, Told
from examples.gps.tally import Total
from nexo.cli.demo import program_root
from tests.client.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
NEXO = [sys.executable, "-c", "from nexo.cli.main import main; main()"]


@pytest.mark.timeout(400)  # a start of Spark, on machines that have other things to do
def test_the_demo(tmp_path: Path) -> None:
    told, progress = _run_demo(tmp_path, "--seconds", "25")
    assert told["kills"] == 1, "a part is killed in every demo"
    positions = told["positions"]
    assert positions["confirmed"] > 1_000
    assert positions["in_lake"] >= positions["confirmed"]
    assert positions["waiting"] == 0
    first_s = min(float(each) for each in re.findall(r"([\d.]+) s  confirmed +[1-9]", progress))
    assert first_s < 20, "something to see comes soon"


@pytest.mark.soak  # the same again, with two starts of Spark more
@pytest.mark.timeout(400)
def test_the_demo_with_chaos(tmp_path: Path) -> None:
    told, progress = _run_demo(tmp_path, "--seconds", "45", "--chaos")
    assert told["kills"] == 3, progress
    positions, alerts = told["positions"], told["alerts"]
    assert positions["confirmed"] > 3_000
    assert positions["in_lake"] >= positions["confirmed"]
    assert positions["waiting"] == 0
    assert alerts["acked"] > 10, progress
    for victim in ("the broker", "Spark", "worker 1"):
        assert f"{victim} was killed with -9" in progress


def _run_demo(tmp_path: Path, *asked: str) -> tuple[dict[str, Any], str]:
    """The account that it gives at the end, and what it said meanwhile."""
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*NEXO, "demo", *asked, "--free-ports", "--json", "--folder", str(folder)],
        cwd=tmp_path,  # it must not need the folder that it was started in
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + _logs(folder)
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["holds"]
    eventually(lambda: _left_behind(folder) == [])  # what was killed takes a moment to be gone
    return told, done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    for wrong in (["--folder", str(tmp_path / "mine")], ["--vehicles", "2"], ["--seconds", "x"]):
        done = subprocess.run([*NEXO, "demo", *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr


def test_a_wheel_brings_the_program_along(tmp_path: Path) -> None:
    """Who installs with pip has no examples."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    wanted = {f"nexo/program/{file.relative_to(ROOT)}" for file in _modules()}
    assert {name for name in packed if name.startswith("nexo/program/")} == wanted
    assert program_root() == ROOT


def test_strikes_come_when_there_is_something_to_lose(tmp_path: Path) -> None:
    happenings = Happenings()
    stage = Stage(tmp_path, happenings, vehicles=3, usual_ports=False, ui=False)
    for process in stage.processes:
        process.arguments = ["-c", "import time; time.sleep(100)"]
        process.start()
    try:
        strikes = Strikes(stage, happenings, seconds=100, chaos=True)
        strikes.strike(60, Look(60, is_up=True))
        assert strikes.count == 0, "nothing has happened yet"
        batches = {"positions": Batch(number=2), "windows": Batch(number=0)}
        busy = Told("running", 1, "", batches)
        strikes.strike(60, Look(60, is_up=True, spark=busy))
        assert not stage.broker.is_running
        strikes.strike(61, Look(61, is_up=False, spark=busy))
        assert stage.spark.is_running, "one after the other"
        strikes.strike(62, Look(62, is_up=True, spark=busy))
        assert not stage.spark.is_running
        assert not strikes.is_over
        strikes.strike(100 * LATEST, Look(92))
        assert not stage.workers[0].is_running
        assert stage.workers[1].is_running
        assert strikes.is_over
        assert strikes.count == 3
        for process in (stage.broker, stage.spark):
            stage.tend_one(process)
            assert process.is_running, "who dies is started again"
    finally:
        stage.kill()


def test_settings_for_other_brokers_do_not_reach_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXO_ACCESS", "required")
    (tmp_path / "logs").mkdir()
    asked = "import os; print(sorted(name for name in os.environ if name[:5] == 'NEXO_'))"
    process = Process("asking", "it", ["-c", asked], tmp_path / "logs" / "asking.log")
    process.start()
    while process.code is None:
        time.sleep(0.01)
    assert process.code == 0
    assert process.last_words().splitlines()[-1] == "[]"


def test_rates_of_a_course() -> None:
    course = Course()
    for second in range(1, 21):
        lines = {"q": Line(pushed=second * 50)}
        totals = {"udp": Total(second * 100, second * 80)}
        course.add(Look(float(second), is_up=True, totals=totals, lines=lines))
    assert course.rate("q", "pushed") == pytest.approx(50)
    assert course.total_rate() == pytest.approx(80)
    assert curve([0, 4, 8], 10) == " ▄█"
    assert curve([], 10) == ""


def _modules() -> list[Path]:
    folders = [ROOT / "examples" / "gps", ROOT / "examples" / "failover"]
    return [each for folder in folders for each in folder.rglob("*.py")]


def _logs(folder: Path) -> str:
    files = sorted((folder / "logs").glob("*.log"))
    return "".join(f"\n== {file.name}\n{file.read_text()[-2_000:]}" for file in files)


def _left_behind(folder: Path) -> list[str]:
    """Processes that name this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if str(folder) in command and entry.name != str(os.getpid()):
            found.append(command)
    return found
