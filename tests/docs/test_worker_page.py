"""docs/worker.md says what the worker does: its flags, its code, its words."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexo.cli.main import run
from nexo.client.worker.batch import Figures
from nexo.client.worker.function import Function
from nexo.client.worker.invocation import Context
from tests.cli.commands import BrokerProcess
from tests.docs.test_quickstart import FENCE, FILE_NAME

PAGE = Path(__file__).resolve().parents[2] / "docs" / "worker.md"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path).start()
    yield running
    running.kill()


def test_every_flag_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    flags = []
    for command in ("worker", "version"):  # the second has only what every command has
        assert run([command, "--help"]) == 0
        shown = capsys.readouterr().out
        flags.append(set(re.findall(r"^│ [* ]?\s*(--[a-z-]+)", shown, re.MULTILINE)))
    own, shared = flags
    section = PAGE.read_text().partition("## Options")[2]
    told = set(re.findall(r"`(--[a-z-]+)`", section))
    assert len(own - shared) > 10
    assert own - shared == told - shared


def test_the_context_has_what_the_page_says() -> None:
    page = PAGE.read_text()
    context = Context(Function("app.handler", 1.0), "r", 1.0)
    names = [name for name in dir(context) if not name.startswith("_")]
    assert len(names) == 10
    assert all(f"`{name}" in page for name in names)


def test_the_figures_have_the_words_of_the_page() -> None:
    words = [name for name in Figures.__struct_fields__ if name != "in_flight"]
    assert f"`queue function {' '.join(words)} seconds rate`" in PAGE.read_text()


def test_the_programs_run(broker: BrokerProcess, tmp_path: Path) -> None:
    blocks = [code for language, code in FENCE.findall(PAGE.read_text()) if language == "python"]
    assert len(blocks) == 2
    name = FILE_NAME.match(blocks[0])
    assert name is not None
    compile(blocks[0], name[1], "exec")
    done = subprocess.run(
        [sys.executable, "-c", blocks[1].replace("connect()", f"connect({broker.url!r})")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    messages, left_ms = map(int, first.split())
    assert messages == 1
    assert 20_000 < left_ms <= 30_000
    assert last == "1 0"
