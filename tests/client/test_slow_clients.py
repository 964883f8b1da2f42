"""A client that asks faster than it is answered, and one that does not read: what a connection of
the broker takes in, and what it does for them, is bounded. The transport is a test's own, and time
is virtual."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.guard import Guard
from nexo.doors.rpc_tcp import connection as connections
from nexo.doors.rpc_tcp.connection import Connection
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import RPC_UNREAD_BYTES_MAX
from nexo.wire import calls
from nexo.wire import commands as c
from nexo.wire.columns import encode_batch
from nexo.wire.frame import FrameReader, Kind, frame, frame_parts
from tests.engine.rig import Rig
from tests.engine.virtual_time import run, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nexo.engine.engine import Engine
    from nexo.wire.frame import Frame

MIB = 1024 * 1024
REQUESTS_MAX = 10  # instead of thousands
WAIT_MS = 5_000
CALLS = {
    "a named call that waits": lambda: calls.encode(
        calls.Claim("empty", "query", 1, 0, 1, 60_000, wait_ms=WAIT_MS)
    ),
    "a named call that is refused": lambda: calls.encode(calls.Purge("nowhere")),
}


class Line(asyncio.Transport):
    """What a client that reads, or does not, lets a connection write."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection
        self.is_read_from = True  # by the broker
        self.reads = True  # the client does
        self.unread_bytes = 0
        self.written_bytes = 0
        self.arrived: list[Frame] = []
        self._reader = FrameReader()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == RPC_UNREAD_BYTES_MAX

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)
        self.arrived += self._reader.feed(bytes(data))
        if not self.reads:
            before, self.unread_bytes = self.unread_bytes, self.unread_bytes + len(data)
            if before <= RPC_UNREAD_BYTES_MAX < self.unread_bytes:
                self.protocol.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self.is_read_from = False

    def resume_reading(self) -> None:
        self.is_read_from = True

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def read_on(self) -> None:
        """The client reads again, and all of it."""
        self.reads = True
        if self.unread_bytes > RPC_UNREAD_BYTES_MAX:
            self.unread_bytes = 0
            self.protocol.resume_writing()


class Client:
    """One connection that has greeted."""

    def __init__(self, engine: Engine) -> None:
        self.line = Line()
        self.peers: set[Connection] = set()
        self.connection = Connection(engine, Guard(engine.wall_ms), "nexo", 1, self.peers, 10)
        self.line.protocol = self.connection
        self.connection.connection_made(self.line)
        hello = c.Hello(c.MAGIC, (1, 1), "slow", None, 300_000)
        self.connection.data_received(frame(Kind.HELLO, 1, c.pack(hello)))
        self._correlation = 1

    async def ask(self, kind: Kind, head: bytes, body: bytes = b"", times: int = 1) -> None:
        """All of them arrive at once."""
        sent = b""
        for _ in range(times):
            self._correlation += 1
            sent += b"".join(frame_parts(kind, self._correlation, head, [body]))
        self.connection.data_received(sent)
        await settle()

    @property
    def answered(self) -> int:
        return sum(each.kind in (Kind.OK, Kind.ERROR) for each in self.line.arrived)

    def leave(self) -> None:
        self.connection.connection_lost(None)


def on_a_rig(test: Callable[[Rig, Client], Coroutine[Any, Any, None]], leaves: bool = True) -> None:
    async def main() -> None:
        rig = Rig()
        engine = await rig.start()
        for name in ("orders", "empty"):
            await engine.create_queue(name)
        await engine.create_topic("news")
        await engine.queue("empty").claims.open("query")
        client = Client(engine)
        await test(rig, client)
        if leaves:  # else it has left already
            client.leave()
        await settle()
        await rig.stop()

    run(main())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RPC_REQUESTS_MAX", REQUESTS_MAX)


def push() -> tuple[Kind, bytes, bytes]:
    return Kind.PUSH, c.pack_push(c.Push("orders")), b"".join(encode_batch(batch_of([b"x"])))


def pop(queue: str, wait_ms: int = 0) -> tuple[Kind, bytes]:
    return Kind.POP, c.pack_pop(c.Pop(queue, 1, 8 * MIB, wait_ms))


# -- Requests that are not answered yet -----------------------------------------------------------


@pytest.mark.usefixtures("few")
def test_pushes_that_wait_for_the_disk_are_counted() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for _ in range(3):  # what was answered is not counted any more
            rig.runner.is_held = True
            before = client.answered
            await client.ask(*push(), times=REQUESTS_MAX - 1)
            assert client.line.is_read_from
            await client.ask(*push())
            assert not client.line.is_read_from, "more is read than the broker can answer"
            assert client.answered == before
            rig.runner.release()
            await settle()
            assert client.line.is_read_from
            assert client.answered == before + REQUESTS_MAX

    on_a_rig(test)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", ["pop", "read", "call"])
def test_requests_that_wait_are_counted(kind: str) -> None:
    wanted: dict[str, tuple[Kind, bytes, bytes]] = {
        "pop": (*pop("empty", WAIT_MS), b""),
        "read": (Kind.READ, c.pack(c.Read("news", 0, 1, MIB, False, WAIT_MS)), b""),
        "call": (Kind.CALL, b"", CALLS["a named call that waits"]()),
    }

    async def test(rig: Rig, client: Client) -> None:
        for _ in range(3):
            before = client.answered
            await client.ask(*wanted[kind], times=REQUESTS_MAX - 1)
            assert client.line.is_read_from
            await client.ask(*wanted[kind])
            assert not client.line.is_read_from, "more is read than the broker can answer"
            assert client.answered == before
            await asyncio.sleep(2 * WAIT_MS / 1000)
            assert client.line.is_read_from
            assert client.answered == before + REQUESTS_MAX, "somebody waits for ever"

    on_a_rig(test)


@pytest.mark.usefixtures("few")
def test_a_refusal_is_an_answer_too() -> None:
    async def test(rig: Rig, client: Client) -> None:
        refused = CALLS["a named call that is refused"]()
        for number in range(1, 4):
            await client.ask(Kind.CALL, b"", refused, times=REQUESTS_MAX - 1)
            await client.ask(*pop("nowhere"), times=REQUESTS_MAX - 1)
            assert client.line.is_read_from
            assert client.answered == 2 * number * (REQUESTS_MAX - 1)

    on_a_rig(test)


def test_a_handler_that_fails_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours: the client is told, and does not wait for ever."""

    async def test(rig: Rig, client: Client) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
        assert rig.engine is not None
        monkeypatch.setattr(rig.engine.queue("empty"), "pop", None)
        await client.ask(*pop("empty", WAIT_MS))
        assert (client.answered, len(told)) == (1, 1)
        (answer,) = [each for each in client.line.arrived if each.kind is Kind.ERROR]
        assert answer.correlation == 2

    on_a_rig(test)


# -- Clients that do not read ---------------------------------------------------------------------


def test_no_answers_are_made_for_a_client_that_does_not_read() -> None:
    """All of the requests are here; what they would bring is not."""

    async def test(rig: Rig, client: Client) -> None:
        assert rig.engine is not None
        await rig.engine.topic("news").publish(batch_of([bytes(MIB)] * 2))
        client.line.reads = False
        head = c.pack(c.Read("news", 0, 2, 8 * MIB))
        await client.ask(Kind.READ, head, times=100)
        enough = RPC_UNREAD_BYTES_MAX + 2 * MIB + 100_000
        assert client.line.written_bytes < enough, "answers pile up"
        assert not client.line.is_read_from
        made = client.answered
        for _ in range(20):
            await asyncio.sleep(1.0)
        assert client.answered == made, "answers are made for one that does not read"
        client.line.read_on()
        await settle()
        assert (client.answered, client.line.is_read_from) == (100, True)

    on_a_rig(test)


def test_no_messages_are_taken_for_a_client_that_does_not_read() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert rig.engine is not None
        actor = rig.engine.queue("orders")
        await actor.push(batch_of([bytes(MIB)] * 30))
        client.line.reads = False
        await client.ask(*pop("orders"), times=20)
        taken = 30 - actor.queue.ready
        assert taken <= RPC_UNREAD_BYTES_MAX // MIB + 1, "messages go to one that does not read"
        await client.ask(*pop("orders"), times=5)  # that were on their way
        await asyncio.sleep(1.0)
        assert 30 - actor.queue.ready == taken
        client.line.read_on()
        await settle()
        assert 30 - actor.queue.ready == 25 == client.answered

    on_a_rig(test)


def test_a_subscription_rests_while_its_client_does_not_read() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert rig.engine is not None
        actor = rig.engine.queue("orders")
        client.line.reads = False
        await client.ask(Kind.SUBSCRIBE, c.pack(c.Subscribe("orders", 1, 1_000)))
        for _ in range(20):
            await actor.push(batch_of([bytes(MIB)]))
            await settle()
        sent = 20 - actor.queue.ready
        assert sent <= RPC_UNREAD_BYTES_MAX // MIB + 1
        client.line.read_on()
        await settle()
        assert actor.queue.ready == 0

    on_a_rig(test)
