"""A run is drawn from the seed that its header prints, on every worker."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
DRAWS = """
from hypothesis import given, settings, strategies
import pytest

@pytest.mark.parametrize("part", range(8))
def test_draw(part, worker_id):
    drawn = []

    @settings(max_examples=20)
    @given(strategies.integers())
    def draw(number):
        drawn.append(number)

    draw()
    with open("drawn.txt", "a") as file:
        file.write(f"{worker_id} {drawn}\\n")
"""


def run(root: Path, *options: str) -> tuple[int, set[str], set[str]]:
    """Draw on two workers: the seed printed, the workers that drew, and what they drew."""
    (root / "drawn.txt").unlink(missing_ok=True)
    # Without the plugin that takes longest to load: six processes would load it.
    without = ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "-n", "2", *without, *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.search(r"hypothesis seed: (\d+)", done.stdout)
    assert printed, done.stdout
    lines = [line.split(" ", 1) for line in (root / "drawn.txt").read_text().splitlines()]
    return int(printed[1]), {worker for worker, _ in lines}, {drawn for _, drawn in lines}


@pytest.mark.timeout(240)  # six processes, each of which loads what all tests need
def test_printed_seed_repeats_the_run(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_draw.py").write_text(DRAWS)
    seed, workers, drawn = run(tmp_path)
    assert len(workers) == 2
    assert len(drawn) == 1, "the workers drew from different seeds"
    assert run(tmp_path, f"--hypothesis-seed={seed}") == (seed, workers, drawn)
