"""Every block of docs/quickstart.md is run, in order, and prints what stands below it.

`sh` and `python` blocks run against a broker on free ports; a `python` block that opens with
`# name.py` is a file for the next one. In a `text` block `…` stands for anything.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import BrokerProcess
from tests.spark.fast import FAST_JAVA

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = "python3 -m venv .venv\n.venv/bin/pip install .\n.venv/bin/nexo serve\n"
FILE_NAME = re.compile(r"# (\w+\.py)\n")
TIME_LIMIT_S = 150


class Step(NamedTuple):
    language: str
    code: str
    printed: str | None


def steps(page: str) -> list[Step]:
    """The blocks that are run, each with the text block that follows it."""
    blocks = FENCE.findall(page)
    found = []
    for number, (language, code) in enumerate(blocks):
        if language == "text":
            continue
        after = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        found.append(Step(language, code, after[1] if after[0] == "text" else None))
    return found


def matches(pattern: str, printed: str) -> bool:
    parts = [re.escape(part) for part in pattern.strip().split("…")]
    return re.fullmatch(".*".join(parts), printed.strip(), re.DOTALL) is not None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path).start()
    yield running
    running.kill()


def run(step: Step, folder: Path, broker: BrokerProcess) -> str:
    code = step.code.replace("9324", str(broker.http_port)).replace("9325", str(broker.port))
    command = [sys.executable, "-c", code] if step.language == "python" else ["sh", "-ec", code]
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name[:5] != "NEXO_"},
            **FAST_JAVA,
            "NEXO_URL": broker.url,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{step.code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(4 * TIME_LIMIT_S)
def test_every_block(tmp_path: Path, broker: BrokerProcess) -> None:
    first, *rest = steps(PAGE.read_text())
    assert first.code == START, "the page begins with what this test does by its fixture"
    assert len(rest) >= 9
    for step in rest:
        assert step.language in ("sh", "python"), f"what is a {step.language!r} block?"
        if name := FILE_NAME.match(step.code):
            (tmp_path / name[1]).write_text(step.code)
            continue
        printed = run(step, tmp_path, broker)
        assert step.printed is not None, f"the page does not say what this prints:\n{step.code}"
        expected = step.printed.replace("9324", str(broker.http_port))
        assert matches(expected, printed), (
            f"{step.code}\nprinted\n{printed}\nand not\n{step.printed}"
        )


def test_how_a_page_is_read() -> None:
    page = "# A\n```sh\nls\n```\n```text\na … c\n```\ntext\n```python\nx = 1\n```\n"
    assert steps(page) == [Step("sh", "ls\n", "a … c\n"), Step("python", "x = 1\n", None)]
    assert matches("a … c\n", "a b c\n")
    assert matches("…\nb\n", "anything\nb\n")
    assert not matches("a … c\n", "a b\n")
