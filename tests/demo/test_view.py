"""The live view fits a terminal of 100 columns and 30 lines, and lines tell the same elsewhere."""

from __future__ import annotations

import io
import os
import time
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from examples.gps import names
from examples.gps.demo.happenings import Happenings
from examples.gps.demo.lines import Lines
from examples.gps.demo.look import Course, Letter, Line, Look
from examples.gps.demo.stage import Ports, Stage
from examples.gps.demo.view import View
from examples.gps.demo.watch import Watch
from examples.gps.dispatch import Handled
from examples.gps.progress_file import Batch, Told
from examples.gps.tally import PATHS, Total

if TYPE_CHECKING:
    from pathlib import Path

ALERT = {"id": "a", "kind": "reckless", "vehicle": "v017", "speed_kmh": 131.6, "stopped_s": 0.0}


def busy_look(at_s: float, count: int) -> Look:
    """After a long run: large figures everywhere."""
    line = Line(count, 99_999, 999, int(240 * at_s), int(160 * at_s), 777)
    return Look(
        at_s=at_s,
        is_up=True,
        totals={path: Total(count + int(80 * at_s), count + int(80 * at_s)) for path in PATHS},
        lines=dict.fromkeys((names.POSITIONS, names.ALERTS, names.DEAD_ALERTS, names.BY_UDP), line),
        spark=Told(
            "running",
            1,
            "http://localhost:4040",
            {
                "positions": Batch(1_234, 20_000, 12_345, 3 * count // 2, 99),
                "windows": Batch(123, 20_000, 40_000, count, 12),
            },
        ),
        handled_total=4_321,
        handled=[Handled("a", 1_763_251_200.0, ALERT, 2)] * 12,
        dead_letters=[Letter(ALERT, "the driver has no telephone")] * 12,
    )


@pytest.fixture
def course() -> Course:
    found = Course()
    for half in range(1, 100):
        found.add(busy_look(half / 2, 1_234_567))
    return found


def test_the_page_fits(tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    happenings = Happenings()
    for _ in range(9):
        happenings.tell("the broker was killed with -9", is_bad=True)
    stage = Stage(tmp_path, happenings, vehicles=240, usual_ports=False, ui=True)
    stage.ports = Ports(9324, 9325, 9326)
    watch = Watch(stage.url, "http://127.0.0.1:1", tmp_path, time.monotonic)
    watch.course, watch.has_console = course, True
    monkeypatch.setattr(stage.broker, "starts", 12)
    page = View(stage, watch, happenings, 3_600.0, 240).page()
    written = io.StringIO()
    Console(file=written, width=100, height=30, force_terminal=True, color_system=None).print(page)
    lines = written.getvalue().rstrip("\n").split("\n")
    assert len(lines) == 30
    assert max(map(len, lines)) == 100
    text = written.getvalue()
    assert "…" not in text.replace(str(tmp_path), ""), text
    for wanted in ("1,238,527", "gps.alerts_dlq", "40.0 s", "reckless", "v017", "132 km/h"):
        assert wanted in text, text
    for link in ("9324/console", "9324/metrics", "9324/health", ":9325", "http://localhost:4040"):
        assert link in text
    assert "████████" in text.split("native")[1].split("\n")[0], "the curve of a steady flow"
    assert "attempt 2" in text
    assert "the driver has no telephone" in text
    assert "start 12" in text


def test_the_page_of_the_first_second(tmp_path: Path) -> None:
    happenings = Happenings()
    stage = Stage(tmp_path, happenings, vehicles=240, usual_ports=False, ui=False)
    watch = Watch(stage.url, "http://127.0.0.1:1", tmp_path, time.monotonic)
    assert not watch.has_console, "nobody answers there, so there is no link"
    written = io.StringIO()
    console = Console(file=written, width=100, height=30, force_terminal=True, color_system=None)
    console.print(View(stage, watch, happenings, 0.0, 240).page())
    assert "/console" not in written.getvalue()
    assert "the first windows are not over yet" in written.getvalue()


def test_lines_where_there_is_no_terminal(course: Course) -> None:
    written, happenings = io.StringIO(), Happenings()
    lines = Lines(Console(file=written, width=20), happenings)
    happenings.tell("the broker is ready")
    lines.tell(course)
    lines.tell(course)
    told = written.getvalue().strip().split(os.linesep)
    assert len(told) == 2, "a line is told once, and not broken"
    assert told[0].endswith("the broker is ready")
    assert "confirmed" in told[1]
    assert "4,321 handled" in told[1]
