"""Handlers in processes: they run elsewhere, and can be ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.client.eventually import eventually
from tests.client.worker import handlers
from tests.client.worker.letters import reasons

if TYPE_CHECKING:
    from pathlib import Path

    import nexo


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_handler_runs_elsewhere(client: nexo.Client, work: Any, tmp_path: Path) -> None:
    queue, file = client.create_queue("q"), tmp_path / "noted"
    queue.push_batch(["a", "b", "c"], attributes={"file": str(file)})
    running = work("q", handlers.note, processes=True, function_name="note")
    eventually(lambda: queue.info().depth == 0, 30)
    figures = running.stop()
    noted = lines_of(file)
    assert [line[1:] for line in noted] == [["a", "note"], ["b", "note"], ["c", "note"]]
    assert str(os.getpid()) not in {line[0] for line in noted}
    assert figures.handled == 3
    eventually(lambda: not _is_alive(int(noted[0][0])))


def test_coroutines_and_names(client: nexo.Client, work: Any, tmp_path: Path) -> None:
    queue, file = client.create_queue("q"), tmp_path / "noted"
    queue.push("a", attributes={"file": str(file)})
    running = work("q", "tests.client.worker.handlers:note_async", processes=True)
    eventually(lambda: queue.info().depth == 0, 30)
    assert lines_of(file)[0][2] == "tests.client.worker.handlers.note_async"
    running.stop()


def test_a_process_that_takes_too_long_is_killed(
    client: nexo.Client, work: Any, tmp_path: Path
) -> None:
    queue, file = client.create_queue("q"), tmp_path / "noted"
    queue.push("a", attributes={"file": str(file)})
    running = work("q", handlers.hang_once, processes=True, timeout=3.0)
    eventually(lambda: queue.info().depth == 0, 40)
    figures = running.stop()
    assert (figures.handled, figures.failed) == (1, 1)
    assert len(lines_of(file)) == 1


def test_a_process_that_dies_fails_its_batch(
    client: nexo.Client, work: Any, tmp_path: Path
) -> None:
    queue, file = client.create_queue("q"), tmp_path / "noted"
    queue.push("a", attributes={"file": str(file)})
    running = work("q", handlers.die_once, processes=True)
    eventually(lambda: queue.info().depth == 0, 40)
    figures = running.stop()
    assert (figures.handled, figures.failed) == (1, 1)
    assert len(lines_of(file)) == 1


def test_the_reason_comes_back(client: nexo.Client, work: Any) -> None:
    client.create_queue("q", max_attempts=1).push("a")
    work("q", handlers.fail, processes=True)
    assert reasons(client, 1) == {"a": "ValueError: from a process"}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
