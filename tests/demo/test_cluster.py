"""`nexo demo --cluster`: three nodes, one of which is killed, and every message accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from examples.failover.traffic import Ledger
from examples.failover.verdict import told, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

NEXO = [sys.executable, "-c", "from nexo.cli.main import main; main()"]


def run_demo(tmp_path: Path, seconds: int) -> dict[str, Any]:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*NEXO, "demo", "--cluster", "--seconds", str(seconds), "--json", "--folder", str(folder)],
        cwd=tmp_path,  # it must not need the folder that it was started in
        capture_output=True,
        text=True,
        timeout=seconds + 200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert "is killed with -9" in done.stderr
    assert "is started again" in done.stderr
    return found


@pytest.mark.timeout(300)
def test_a_node_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    found = run_demo(tmp_path, 15)
    assert found["holds"]
    assert found["kills"] == 1
    assert found["confirmed"] > 1_000
    assert found["delivered"] == found["confirmed"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_for_longer(tmp_path: Path) -> None:
    assert run_demo(tmp_path, 120)["holds"]


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    for wrong in (["--seconds", "3"], ["--folder", str(tmp_path)]):
        done = subprocess.run(
            [*NEXO, "demo", "--cluster", *wrong], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done.stderr


def ledger() -> Ledger:
    """Two messages that were pushed, delivered and acked."""
    made = Ledger()
    for text in ("a", "b"):
        made.sent.add(text)
        made.confirmed.add(text)
        made.delivered[text] += 1
        made.ids[text] = {f"id of {text}"}
        made.acked.add(text)
    return made


def test_all_is_well() -> None:
    verdict = verdict_of(ledger(), 0, 1)
    assert verdict.holds
    assert "accounted for, although 1 node was killed" in told(verdict)


def test_each_broken_promise_is_found() -> None:
    lost = ledger()
    lost.confirmed.add("c")
    assert verdict_of(lost, 0, 1).lost == 1
    waiting = verdict_of(lost, 1, 1)  # it may be the one that waits
    assert (waiting.lost, waiting.holds) == (0, False)
    back = ledger()
    back.came_back.add("a")
    doubled = ledger()
    doubled.ids["a"].add("another id")
    unknown = ledger()
    unknown.delivered["never sent"] += 1
    failed = ledger()
    failed.errors.append("NotReady: no")
    for each in (lost, back, doubled, unknown, failed, Ledger()):
        verdict = verdict_of(each, 0, 1)
        assert not verdict.holds
        assert "Not everything" in told(verdict)
