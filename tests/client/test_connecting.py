"""Finding a broker, and being told clearly why there is none."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.client.address import Address, address_of
from nexo.client.operation import error_of
from nexo.vocabulary import errors
from nexo.wire import commands
from nexo.wire.commands import Refusal
from nexo.wire.frame import FrameReader, Kind, frame
from tests.client.eventually import eventually
from tests.client.stub import WELCOME, Stub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.running import RunningBroker


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nexo://127.0.0.1:9325", Address("127.0.0.1", 9325)),
        ("nexo://broker.example", Address("broker.example", 9325)),
        ("nexo://[::1]:1234/", Address("::1", 1234)),
        ("NEXO://h:1", Address("h", 1)),
        ("nexo://a:1,b,[::1]:3/", Address("a", 1, None, (("b", 9325), ("::1", 3)))),
    ],
)
def test_addresses(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324",
        "localhost:9325",
        "nexo://",
        "nexo://h:99999",
        "nexo://a b",
        "nexo://a,",
    ],
)
def test_a_wrong_url_is_an_invalid_argument(url: str) -> None:
    for connect in (nexo.connect, nexo.connect_async):
        with pytest.raises(nexo.InvalidArgument) as caught:
            connect(url)
        assert caught.value.hint


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXO_URL", "nexo://elsewhere:7")
    assert address_of(None) == Address("elsewhere", 7)
    monkeypatch.delenv("NEXO_URL")
    assert address_of(None) == Address("127.0.0.1", 9325)


def test_the_token_travels(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = []

    def answer(arrived: Any) -> bytes:
        if arrived.kind is Kind.HELLO:
            tokens.append(commands.unpack(arrived.head, commands.Hello).token)
            return WELCOME
        return b""

    with Stub(answer) as stub:
        monkeypatch.setenv("NEXO_TOKEN", "from the environment")
        twin.connect(stub.url).close()
        twin.connect(stub.url, token="mine").close()
    assert tokens == ["from the environment", "mine"]


@contextlib.contextmanager
def _nobody() -> Iterator[str]:
    """A place where nothing listens, and where nobody else can begin to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_of_several_nodes_the_next_is_tried(twin: Any, broker: RunningBroker) -> None:
    with _nobody() as nobody:
        url = f"nexo://{nobody},no-such-host.invalid,127.0.0.1:{broker.port}"
        client = twin.connect(url, timeout=25)
        client.create_queue("orders").push(b"hello")
        assert client.queue("orders").info().depth == 1


def test_one_that_hangs_is_not_tried_again_before_the_others(
    twin: Any, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It would take the connection, and not answer."""
    caplog.set_level(logging.INFO, "nexo.client")
    with Stub(lambda each: WELCOME if each.kind is Kind.HELLO else b"") as hanging:
        client = twin.connect(f"{hanging.url},127.0.0.1:{broker.port}", timeout=25)
        client.create_queue("orders").push(b"hello")
        assert hanging.connections == 1
    eventually(lambda: "reconnected" in caplog.text)
    assert f"lost the connection to {hanging.url.removeprefix('nexo://')}" in caplog.text
    assert f"reconnected to 127.0.0.1:{broker.port}" in caplog.text


def test_nothing_listens(twin: Any) -> None:
    started = time.monotonic()
    with (
        _nobody() as nobody,
        pytest.raises(nexo.Unreachable, match="nothing listens") as caught,
    ):
        twin.connect(f"nexo://{nobody}", timeout=0.5)
    assert 0.3 < time.monotonic() - started < 10
    assert (caught.value.code, caught.value.retryable) == ("unreachable", True)
    assert "nexo serve" in caught.value.hint


def test_an_unknown_host_is_told_at_once(twin: Any) -> None:
    started = time.monotonic()
    with pytest.raises(nexo.Unreachable, match="unknown host"):
        twin.connect("nexo://no-such-host.invalid", timeout=25)
    assert time.monotonic() - started < 20


def test_a_broker_that_comes_later(twin: Any, broker: Any) -> None:
    broker.stop()
    coming = threading.Timer(0.5, broker.start)
    coming.start()
    client = twin.connect(broker.url, timeout=20)
    client.queue("q", create=True).push("x")
    coming.join()  # else it may be stopped before it has started


@pytest.mark.parametrize(
    ("kind", "error"),
    [(each.code, each) for each in (errors.VersionMismatch, errors.Unauthorized, errors.Forbidden)],
)
def test_a_broker_that_refuses(twin: Any, kind: str, error: type[nexo.NexoError]) -> None:
    goodbye = frame(Kind.GOODBYE, 0, commands.pack(Refusal(kind, "no", "do this", False)))
    started = time.monotonic()
    with Stub(lambda _: goodbye) as stub, pytest.raises(error, match="no") as caught:
        twin.connect(stub.url, timeout=20)
    assert caught.value.hint == "do this"
    assert time.monotonic() - started < 10


def test_a_broker_of_another_version(broker: Any) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        hello = commands.Hello(commands.MAGIC, (2, 9), "from the future")
        sock.sendall(frame(Kind.HELLO, 1, commands.pack(hello)))
        (arrived,) = FrameReader().feed(sock.recv(65_536))
        assert arrived.kind is Kind.GOODBYE
        assert isinstance(error_of(commands.unpack(arrived.head, Refusal)), nexo.VersionMismatch)


def test_something_that_is_no_broker(twin: Any) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with Stub(lambda _: answer) as stub, pytest.raises(nexo.InvalidArgument):
        twin.connect(stub.url, timeout=20)
    with Stub(lambda _: None) as stub, pytest.raises(nexo.Unreachable, match="handshake"):
        twin.connect(stub.url, timeout=0.5)


def test_a_broker_that_does_not_answer(twin: Any) -> None:
    beats = frame(Kind.HEARTBEAT, 0)

    def answer(arrived: Any) -> bytes:
        return WELCOME if arrived.kind is Kind.HELLO else beats

    with Stub(answer) as stub:
        client = twin.connect(stub.url, timeout=2.5, heartbeat=0.5)  # it connects within that, too
        started = time.monotonic()
        with pytest.raises(nexo.Timeout, match="did not answer") as caught:
            client.queue("q").push("x")
        assert time.monotonic() - started < 10
        assert caught.value.code == "timeout"


def test_a_closed_client(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push("x")
    client.close()
    client.close()
    with pytest.raises(nexo.InvalidArgument, match="closed"):
        queue.push("y")


def test_closing_wakes_those_who_wait(client: Any) -> None:
    queue = client.queue("q", create=True)
    caught = []

    def wait() -> None:
        try:
            queue.pop(wait=30)
        except nexo.NexoError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    client.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert len(caught) == 1


def test_every_code_becomes_its_exception() -> None:
    def tree(root: type[nexo.NexoError]) -> list[type[nexo.NexoError]]:
        return [root, *[each for child in root.__subclasses__() for each in tree(child)]]

    for kind in tree(nexo.NexoError):
        if kind.__module__ == "nexo.vocabulary.errors":
            made = error_of(Refusal(kind.code, "message", "hint", False))
            assert type(made) is kind
            assert (made.message, made.hint) == ("message", "hint")
    unknown = error_of(Refusal("brand_new", "message", "", True))
    assert type(unknown) is nexo.NexoError
    assert "brand_new" in str(unknown)


def test_heartbeats_go_both_ways(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, heartbeat=1.0, timeout=10)
    eventually(lambda: min(relay.requests[Kind.HEARTBEAT], relay.answers[Kind.HEARTBEAT]) >= 4)
    client.queue("q", create=True).push("x")
    assert relay.connections == 1


def test_a_half_open_connection_is_noticed(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, heartbeat=0.5, timeout=20)
    queue = client.queue("q", create=True)
    queue.push("x")
    relay.fall_silent()
    started = time.monotonic()
    queue.push("y")  # the first try vanishes; the second goes over a new connection
    assert time.monotonic() - started < 15
    assert relay.connections >= 2
    assert queue.info().depth == 2
