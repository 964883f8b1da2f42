"""`python -m examples.peak_shaving` with small numbers: what it promises, and that it can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.peak_shaving.__main__ import Accounting, arguments
from examples.peak_shaving.course import Course, Sample
from examples.peak_shaving.database import Database, Overloaded
from examples.peak_shaving.view import curve

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def run(*given: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.peak_shaving", *map(str, given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_small_peak(tmp_path: Path) -> None:
    picture = tmp_path / "peak.png"
    small = ("--seconds", "3", "--rate", "2000", "--capacity", "200", "--plot", picture)
    done = run(*small, "--peak-seconds", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    told = [word.replace(",", "") for word in done.stdout.splitlines()[-2].split()]
    pushed, stored, waiting = (int(told[at]) for at in (1, 4, 7))
    assert pushed == stored + waiting
    assert pushed > 1_000
    assert 200 < stored < 1_000, "the database took its share, not the peak"
    assert waiting > 0
    content = picture.read_bytes()
    assert content.startswith(PNG)
    assert len(content) > 20_000


def test_wrong_usage() -> None:
    done = run("--seconds", "0")
    assert done.returncode == 2
    assert "above 0" in done.stderr


def test_the_accounting() -> None:
    assert Accounting(pushed=10, stored=7, waiting=3, refused=0).holds
    assert not Accounting(pushed=10, stored=7, waiting=2, refused=0).holds
    assert not Accounting(pushed=10, stored=7, waiting=3, refused=1).holds


def test_the_database_refuses_a_peak_and_stores_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "orders.db", orders_per_second=10)
    records = [{"body": f'{{"id": {number}, "customer": "c"}}'} for number in range(10)]
    database.handle({"Records": records}, None)
    database.handle({"Records": records[:3]}, None)
    assert database.stored == database.count() == 10
    with pytest.raises(Overloaded):
        database.handle({"Records": records}, None)
    assert database.refused == 10
    database.close()


def test_rates_come_from_counts() -> None:
    course = Course()
    for tenth in range(1, 31):
        course.add(Sample(tenth / 10, pushed=tenth * 100, stored=tenth * 10, depth=tenth * 90))
    last = course.points()[-1]
    assert round(last.arrivals) == 1_000
    assert round(last.departures) == 100
    assert last.depth == 2_700


def test_a_curve() -> None:
    assert curve([0, 4, 8], top=8) == " ▄█"
    assert len(curve(list(range(1_000)), top=1_000, width=40)) == 40
    assert curve([], top=1) == ""


def test_the_peak_is_a_share_of_the_run() -> None:
    assert arguments(["--seconds", "10"]).peak_seconds == pytest.approx(0.8)
    assert arguments(["--seconds", "10", "--peak-seconds", "3"]).peak_seconds == 3
