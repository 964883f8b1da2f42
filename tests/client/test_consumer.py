"""`consume` on both twins: typed handlers, middleware, what is logged, and an end in order."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import threading
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.testing import broker as broker_in_process
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.testing import Broker

README = Path(__file__).parents[2] / "README.md"


class Order(msgspec.Struct):
    id: int


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with broker_in_process() as running:
        yield running


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> Iterator[nexo.Queue]:
    name = f"q-{zlib.crc32(request.node.name.encode()):x}"
    with broker.client() as client:
        yield client.create_queue(name, max_attempts=2)


@pytest.fixture(params=["blocking", "asyncio"])
def consume(request: pytest.FixtureRequest, broker: Broker) -> Callable[..., None]:
    """Consumes a queue with either twin until its handler raises `Enough`."""

    async def asynchronously(queue: nexo.Queue, handler: Any, **options: Any) -> None:
        async with nexo.connect_async(broker.url) as client:
            await client.queue(queue.name).consume(handler, **options)

    def either(queue: nexo.Queue, handler: Any, **options: Any) -> None:
        if request.param == "blocking":
            with pytest.raises(Enough):
                queue.consume(handler, **options)
        else:
            with pytest.raises(BaseExceptionGroup) as raised:
                asyncio.run(asynchronously(queue, handler, **options))
            assert raised.group_contains(Enough)

    return either


class Enough(BaseException):
    """Ends a loop, as Ctrl-C would."""


def test_a_body_that_does_not_decode_is_nacked_and_the_loop_goes_on(
    queue: nexo.Queue, consume: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue.edit(max_attempts=1)
    queue.push("hello")
    queue.push(Order(1))
    queue.push("hello again")
    queue.push(Order(2))
    seen: list[Order] = []

    def handler(order: Order) -> None:
        seen.append(order)
        if order.id == 2:
            raise Enough

    consume(queue, handler)
    assert [each.id for each in seen] == [1, 2]
    reasons = [each.dead_letter.reason for each in _letters(queue) if each.dead_letter]
    malformed = "the body is not Order: JSON is malformed: invalid character (byte 0)"
    assert reasons == [f"invalid_body: {malformed}"] * 2 + ["Enough"]
    assert "invalid_body: the body is not Order" in caplog.text
    assert "Traceback" not in caplog.text


def _letters(queue: nexo.Queue) -> list[nexo.PeekedMessage]:
    return nexo.Queue(queue._connection, f"{queue.name}_dlq").peek()


def test_the_traceback_of_a_handler_is_logged(
    queue: nexo.Queue, consume: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue.push("a")

    def handler(message: Any) -> None:
        if message.attempts == 2:
            raise Enough
        raise LookupError("no such order")

    consume(queue, handler)
    (record,) = [each for each in caplog.records if each.name == "nexo.client"]
    assert record.levelno == logging.ERROR
    assert "LookupError: no such order" in record.getMessage()
    assert record.exc_info
    trace = "".join(traceback.format_exception(*record.exc_info))
    assert "in handler" in trace
    assert 'raise LookupError("no such order")' in trace


class Noted(nexo.Middleware):
    """Notes what it is told; raises where it is to."""

    def __init__(self, name: str, told: list[str], raises: str = "") -> None:
        self._name = name
        self._told = told
        self._raises = raises

    def before(self, message: Any) -> Any:
        return self._note("before")

    def after(self, message: Any) -> Any:
        return self._note("after")

    def failed(self, message: Any, error: Exception) -> Any:
        return self._note("failed", f" {error}")

    def _note(self, step: str, more: str = "") -> None:
        self._told.append(f"{step} {self._name}{more}")
        if self._raises == step:
            raise ValueError(f"{step} raised")


class NotedAsync(Noted):
    """The same, to be awaited."""

    async def _note(self, step: str, more: str = "") -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super()._note(step, more)


@pytest.mark.parametrize(
    ("raises", "expected"),
    [
        ("", "before a, before b, handler, after b, after a"),
        ("before", "before a, before b, failed a before raised"),
        (
            "after",
            "before a, before b, handler, after b, failed b after raised, failed a after raised",
        ),
        ("failed", "before a, before b, handler, failed b of the handler, failed a of the handler"),
    ],
)
@pytest.mark.parametrize("kind", [Noted, NotedAsync])
def test_middleware(
    queue: nexo.Queue,
    request: pytest.FixtureRequest,
    consume: Any,
    kind: Any,
    raises: str,
    expected: str,
) -> None:
    if kind is NotedAsync and "blocking" in request.node.name:
        kind = Noted
    told: list[str] = []
    queue.push("1")
    middleware = [Noted("a", told), kind("b", told, raises)]

    def handler(message: Any) -> None:
        if message.attempts == 2 or message.body == b"2":
            raise Enough
        told.append("handler")
        if raises == "failed":
            raise ValueError("of the handler")

    if not raises:
        queue.push("2")
    if raises == "before":  # the handler is not called, so the middleware ends it
        middleware.insert(0, _Ends())
    consume(queue, handler, middleware=middleware)
    assert ", ".join(told).startswith(expected)
    if not raises:
        assert queue.info().acked == 1
    else:
        assert queue.info().nacked >= 1


class _Ends:
    """A middleware with one method only."""

    def before(self, message: Any) -> None:
        if message.attempts == 2:
            raise Enough


def test_what_is_no_middleware(queue: nexo.Queue) -> None:
    for wrong in (object(), Noted):
        with pytest.raises(nexo.InvalidArgument, match="is not a middleware"):
            queue.consume(print, middleware=[wrong])


def test_another_thread_handles_no_signals(queue: nexo.Queue) -> None:
    """And one that does not want to leaves them alone in the main thread."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    queue.push("a")

    def handler(message: Any) -> None:
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        raise Enough

    with pytest.raises(Enough):
        queue.consume(handler, signals=False)

    ended = threading.Event()

    def work() -> None:
        with pytest.raises(Enough):
            queue.consume(handler)
        ended.set()

    thread = threading.Thread(target=work)
    queue.push("b")
    thread.start()
    thread.join(20)
    assert ended.is_set()


def test_a_program_keeps_the_signals_that_it_handles(queue: nexo.Queue) -> None:
    ours: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: ours.append(number))
    queue.push("a")

    def handler(message: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise Enough

    try:
        with pytest.raises(Enough):
            queue.consume(handler)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ours == [signal.SIGTERM]


BLOCKING = """
import os, sys, time, nexo
def handler(text: str):
    print(text, flush=True)
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
    print("done", flush=True)
with nexo.connect(sys.argv[1]) as client:
    client.queue(sys.argv[2]).consume(handler, concurrency=int(sys.argv[3]))
print("ended")
"""
ASYNCIO = """
import asyncio, os, sys, nexo
async def handler(text: str):
    print(text, flush=True)
    while not os.path.exists(sys.argv[4]):
        await asyncio.sleep(0.01)
    print("done", flush=True)
async def main():
    async with nexo.connect_async(sys.argv[1]) as client:
        await client.queue(sys.argv[2]).consume(handler, concurrency=int(sys.argv[3]))
    print("ended")
asyncio.run(main())
"""


def _heed_interrupts() -> None:
    """Should these tests run in the background of a shell, Ctrl-C is ignored, also by children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_signal_ends_it_in_order(
    broker: Broker, queue: nexo.Queue, tmp_path: Path, program: str, number: int, busy: bool
) -> None:
    queue.push("first")
    go = tmp_path / "go"  # until it is there, a handler is at work
    command = [sys.executable, "-c", program, broker.url, queue.name, "2", str(go)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            assert running.stdout.readline() == "first\n"
            if busy:
                queue.push_batch(["second", "third", "fourth"])
                assert running.stdout.readline() == "second\n"
                eventually(lambda: queue.info().in_flight == 4)
            else:
                go.touch()
                assert running.stdout.readline() == "done\n"
            running.send_signal(number)
            if busy:
                eventually(lambda: queue.info().ready == 2)  # it has heard, and takes no more
                go.touch()
            rest = running.stdout.read().split()
            assert running.wait(20) == 0
            assert running.stderr.read() == ""
        finally:
            running.kill()
    assert rest[-1] == "ended"
    assert rest.count("done") == (2 if busy else 0)
    eventually(lambda: queue.info().in_flight == 0)
    assert queue.info().acked == (2 if busy else 1)
    assert queue.info().nacked == 0


SUBSCRIBED = """
import nexo, sys
with nexo.connect(sys.argv[1]) as client:
    for message in client.queue(sys.argv[2]).subscribe():
        with message:
            pass
        print(message.text, flush=True)
"""


def test_ctrl_c_in_a_loop_shows_the_line_of_the_loop(broker: Broker, queue: nexo.Queue) -> None:
    """And not the seven functions in which it waits."""
    queue.push("first")
    with subprocess.Popen(
        [sys.executable, "-c", SUBSCRIBED, broker.url, queue.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            assert running.stdout.readline() == "first\n"
            running.send_signal(signal.SIGINT)
            told = running.stderr.read()
            assert running.wait(20) == -signal.SIGINT
        finally:
            running.kill()
    assert told.endswith("KeyboardInterrupt\n")
    assert told.count("File ") <= 2, told


def test_the_program_of_the_readme_survives_what_is_no_json(
    broker: Broker,
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    program = program.replace("nexo.connect()", f"nexo.connect({broker.url!r})")
    with (
        broker.client() as client,
        subprocess.Popen(
            [sys.executable, "-u", "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "{'id': 1}\n"
            orders = client.queue("orders")
            orders.push("hello")
            orders.push({"id": 2})
            assert running.stdout.readline() == "{'id': 2}\n"
            eventually(lambda: client.queue("orders_dlq", create=True).info().depth == 1)
        finally:
            running.kill()
        (letter,) = client.queue("orders_dlq").peek()
        assert letter.dead_letter
        assert letter.dead_letter.reason.startswith("invalid_body: the body is not JSON")


def test_a_message_that_was_popped_raises(queue: nexo.Queue) -> None:
    """Nobody who wants one order goes on without it; only a loop has others."""
    queue.push("hello")
    message = queue.pop()
    assert message
    with pytest.raises(nexo.InvalidBody), message:
        message.json(Order)
    again = queue.pop()
    assert again
    assert again.attempts == 2
