"""Every block of the tutorial and the guides is run, in order, and prints what stands below it.

The rules are those of `test_quickstart.py`: `sh` and `python` blocks run, a `python` block that
opens with `# name.py` is a file for the next one, and in a `text` block `…` stands for anything.
Blocks in another language, or in none, are to be read. All pages share one broker.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import BrokerProcess
from tests.docs.test_quickstart import FILE_NAME, ROOT, Step, matches, run, steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TUTORIAL = [
    f"tutorial/{name}.md" for name in ("queue", "worker", "retries", "dead-letters", "topics")
]
# Pages that run beside the tutorial's; each uses queues of its own.
OTHERS = [
    "guides/fastapi.md",
    "guides/from-sqs.md",
    "guides/from-rabbitmq.md",
    "guides/from-redis.md",
    "guides/testing.md",
    "reference/errors.md",
    "reference/python.md",
    "limits.md",
]
RUNNABLE = ("sh", "python")
# Pages whose Python is not run here, only read by the parser: it needs Spark, AWS keys or an end
# that does not come. The tests beside them run such a page, or the calls that it shows.
ELSEWHERE = {
    "access.md": "tests/access",
    "frameworks.md": "tests/docs/test_frameworks_page.py",
    "operations.md": "tests/tracing",
    "pipeline.md": "tests/pipeline",
    "quickstart.md": "tests/docs/test_quickstart.py",
    "reference/events.md": "tests/spark",
    "reference/sns.md": "tests/sns",
    "reference/sqs.md": "tests/sqs",
    "spark.md": "tests/spark",
    "topics.md": "tests/examples/test_hello_topic.py",
    "worker.md": "tests/docs/test_worker_page.py",
}
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(folder, data=":memory:").start()
    yield running
    running.kill()


def runnable(page: str) -> list[Step]:
    return [step for step in steps((DOCS / page).read_text()) if step.language in RUNNABLE]


def shows_what_happens(page: str, folder: Path, broker: BrokerProcess) -> None:
    found = runnable(page)
    assert found, f"{page} has nothing to run: take it off the list"
    for step in found:
        if name := FILE_NAME.match(step.code):
            (folder / name[1]).write_text(step.code)
            continue
        printed = run(step, folder, broker)
        assert step.printed is not None, f"{page} does not say what this prints:\n{step.code}"
        assert matches(step.printed, printed), (
            f"{page}\n{step.code}\nprinted\n{printed}\nand not\n{step.printed}"
        )


@pytest.mark.timeout(180)
def test_the_tutorial(folder: Path, broker: BrokerProcess) -> None:
    """One lesson builds on the one before."""
    for page in TUTORIAL:
        shows_what_happens(page, folder, broker)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", OTHERS)
def test_a_page(page: str, folder: Path, broker: BrokerProcess) -> None:
    shows_what_happens(page, folder, broker)


def test_no_program_is_left_out() -> None:
    """A page with Python that no test knows is a page that will be wrong one day."""
    with_python = set()
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).as_posix()
        for step in steps(path.read_text()):
            if step.language == "python":
                ast.parse(step.code)
                with_python.add(page)
    unknown = with_python - {*TUTORIAL, *OTHERS, *ELSEWHERE}
    assert not unknown, f"run these here, or say where they are tested: {sorted(unknown)}"
    assert ELSEWHERE.keys() <= with_python, "these have no Python any more"
    for place in ELSEWHERE.values():
        assert (ROOT / place).exists(), place
