"""docs/frameworks.md: what it imports is there, and its program runs as it says."""

from __future__ import annotations

import ast
import importlib
import signal
import subprocess
import sys
from pathlib import Path

from nexo.testing import broker
from tests.docs.test_quickstart import FENCE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
BLOCKS = [code for language, code in FENCE.findall(PAGE.read_text()) if language == "python"]


def test_what_it_imports_is_there() -> None:
    assert len(BLOCKS) == 4
    found = 0
    for node in (node for block in BLOCKS for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            found += len([getattr(module, each.name) for each in node.names])
    assert found >= 5


def test_the_program_without_a_framework() -> None:
    (program,) = [each for each in BLOCKS if "orders.consume" in each]
    with broker() as running:
        program = program.replace("nexo.connect()", f"nexo.connect({running.url!r})")
        with subprocess.Popen(
            [sys.executable, "-u", "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            try:
                assert worker.stdout.readline() == "1\n"
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(20) == 0
            finally:
                worker.kill()
