"""Programs on the pages pass `mypy --strict`: whoever copies one into a typed project can."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.docs.test_quickstart import FENCE, PAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES = (PAGE, ROOT / "README.md")
# Strict by our own configuration. Any other flag would make mypy check all of nexo again, and leave
# a cache that `make lint` cannot use.
FLAGS = ("--no-error-summary",)


def complaints(folder: Path, programs: list[str]) -> str:
    files = [folder / f"program_{number}.py" for number, _ in enumerate(programs)]
    for file, program in zip(files, programs, strict=True):
        file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *FLAGS, *map(str, files)],
        cwd=ROOT,  # where the cache is, and the configuration
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout + done.stderr


def test_programs_of_the_quickstart_are_typed(tmp_path: Path) -> None:
    programs = [
        code
        for page in PAGES
        for language, code in FENCE.findall(page.read_text(encoding="utf-8"))
        if language == "python"
    ]
    assert len(programs) >= 6
    # The last one must not pass: pop() may give None.
    planted = "import nexo\n\nprint(nexo.connect().queue('q').pop().text)\n"
    told = complaints(tmp_path, [*programs, planted]).splitlines()
    expected = [line for line in told if f"program_{len(programs)}.py" in line]
    assert len(expected) == 1, told
    assert told == expected
