"""Whatever a handler raises is a failure of its messages, and never the end of the worker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.eventually import eventually
from tests.client.worker.letters import reasons

if TYPE_CHECKING:
    import nexo


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever formats the log as JSON asks each error what it is, and pytest lets that through."""
    monkeypatch.setattr(logging.getLogger("nexo.worker"), "propagate", False)


def bodies_of(event: dict[str, Any]) -> list[str]:
    return [record["body"] for record in event["Records"]]


class Panic(BaseException):
    """As extensions in other languages raise it."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot say what it is")


def raising(name: str) -> None:
    if name == "cancelled":
        raise asyncio.CancelledError
    if name == "interrupt":
        raise KeyboardInterrupt
    if name == "panic":
        raise Panic("index out of bounds")
    if name == "mute":
        raise Mute


WHATEVER = {
    "cancelled": "CancelledError",
    "interrupt": "KeyboardInterrupt",
    "panic": "Panic: index out of bounds",
    "mute": "Mute",
}


def test_whatever_a_handler_raises_is_a_failure(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch([*WHATEVER, "good"])
    running = work("q", lambda event, context: raising(*bodies_of(event)), batch_size=1)
    assert reasons(client, 4) == WHATEVER
    eventually(lambda: queue.info().acked == 1)
    assert running.stop().failed == 4


def test_a_log_that_cannot_be_written_stops_nothing(
    client: nexo.Client, work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Formatters of JSON ask the exception itself, as that of Spark does."""

    class Asking(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return str(record.exc_info[1]) if record.exc_info else ""

    caplog.handler.setFormatter(Asking())
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch(["mute", "good"])
    work("q", lambda event, context: raising(*bodies_of(event)), batch_size=1)
    assert reasons(client, 1) == {"mute": "Mute"}
    eventually(lambda: queue.info().acked == 1)


def test_whatever_a_coroutine_raises_is_a_failure(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch([*WHATEVER, "good"])

    async def handle(event: Any, context: Any) -> None:
        raising(*bodies_of(event))

    running = work("q", handle, batch_size=1)
    assert reasons(client, 4) == {**WHATEVER, "cancelled": "the handler was cancelled"}
    eventually(lambda: queue.info().acked == 1)
    assert running.stop().failed == 4


def test_a_task_of_a_handler_does_not_end_the_others(client: nexo.Client, work: Any) -> None:
    """asyncio lets `sys.exit()` in a task end the whole loop."""
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch(["leave", "good"])

    async def leave() -> None:
        raise SystemExit(3)

    async def handle(event: Any, context: Any) -> None:
        if bodies_of(event) == ["leave"]:
            await asyncio.create_task(leave())

    running = work("q", handle, batch_size=1, timeout=20.0)
    assert reasons(client, 1) == {"leave": "SystemExit: 3"}
    eventually(lambda: queue.info().acked == 1)
    assert running.stop().handled == 1
