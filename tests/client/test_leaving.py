"""Clients that leave, however they do: nothing of their connection is left, without the help of the
garbage collector. And those who never come further than the door."""

from __future__ import annotations

import gc
import struct
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.doors.rpc_tcp import connection as connections
from nexo.doors.rpc_tcp import door as doors
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import FRAME_BYTES_MAX
from nexo.wire import commands as c
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Kind, frame, frame_parts
from tests.client.eventually import eventually
from tests.client.running import RunningBroker
from tests.client.test_abuse import MIB, Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINUTE_MS = 60_000
ONE = b"".join(encode_batch(batch_of([b"x"])))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Any]]]:
    """Every connection that the broker makes, while nothing collects garbage."""
    made: list[weakref.ref[Any]] = []

    def make(*arguments: Any) -> Any:
        connection = connections.Connection(*arguments)
        made.append(weakref.ref(connection))
        return connection

    monkeypatch.setattr(doors, "Connection", make)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


def call(method: str, **params: Any) -> bytes:
    return frame(Kind.CALL, 9, b"", c.pack(c.Call(method, params)))


def push(body: bytes = ONE) -> bytes:
    return frame(Kind.PUSH, 5, c.pack_push(c.Push("q", "p", 1)), body)


def subscribe(raw: Raw) -> None:
    raw.send(frame(Kind.SUBSCRIBE, 3, c.pack(c.Subscribe("q", 1, 10))))
    while raw.read().kind is not Kind.DELIVER:
        pass


def wait_for_claim(raw: Raw) -> None:
    raw.send(call("claim_open", name="empty", consumer="c"))
    raw.read()
    wanted = {"after": 0, "count": 1, "timeout_ms": 1_000, "wait_ms": 20_000}
    raw.send(call("claim", name="empty", consumer="c", epoch=1, **wanted))


AFTER_GREETING: dict[str, Callable[[Raw], None]] = {
    "nothing": lambda raw: None,
    "a push that is cut off": lambda raw: raw.send(
        struct.pack("<III", 8 * MIB, 10 << 8 | Kind.PUSH, 1) + bytes(MIB)
    ),
    "a push that is not waited for": lambda raw: raw.send(push()),
    "a subscription that holds messages": subscribe,
    "a pop that waits": lambda raw: raw.send(
        frame(Kind.POP, 5, c.pack_pop(c.Pop("empty", 1, MIB, MINUTE_MS)))
    ),
    "answers that are not read": lambda raw: raw.send(call("peek", name="q", limit=50) * 5),
    "a read that waits": lambda raw: raw.send(
        frame(Kind.READ, 4, c.pack(c.Read("t", 0, 1, 1, False, MINUTE_MS)))
    ),
    "a follower that waits": lambda raw: raw.send(
        frame(Kind.FOLLOW, 4, c.pack(c.Follow(">", {}, 1, 1, MINUTE_MS)))
    ),
    "a claim that waits": wait_for_claim,
    "a call that is refused": lambda raw: raw.send(call("purge", name="none")),
    "a frame that is none": lambda raw: raw.send(struct.pack("<III", 8, 200, 1)),
    "a batch that is none": lambda raw: raw.send(push(b"\x01")),
}


@pytest.fixture(scope="module")
def stocked() -> Iterator[RunningBroker]:
    broker = RunningBroker(":memory:").start()
    with nexo.connect(broker.url, timeout=20) as client:
        for name in ("q", "empty"):
            client.create_queue(name)
        client.create_topic("t")
        client.queue("q").push_batch([bytes(100_000)] * 50)
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", AFTER_GREETING)
def test_nothing_is_left_of_a_client_that_leaves(
    stocked: RunningBroker, seen: list[weakref.ref[Any]], name: str
) -> None:
    for _ in range(3):
        with Raw(stocked.port) as raw:
            AFTER_GREETING[name](raw)
            time.sleep(0.05)  # so that it is under way
    eventually(lambda: len(seen) == 3 and not any(each() for each in seen))


BEFORE_GREETING = {
    "nothing": b"",
    "half a word": b"\x10\x00",
    "a frame of 80 MiB": struct.pack("<III", FRAME_BYTES_MAX, Kind.HELLO, 1) + bytes(MIB),
    "a greeting that is cut off": struct.pack("<III", 1_000, 900 << 8 | Kind.HELLO, 1) + bytes(10),
    "a greeting of another": frame(Kind.HELLO, 1, c.pack(c.Hello("MQTT", (1, 1), "x"))),
    "another version": frame(Kind.HELLO, 1, c.pack(c.Hello(c.MAGIC, (8, 9), "x"))),
}


@pytest.mark.parametrize("name", BEFORE_GREETING)
def test_nothing_is_left_of_a_stranger(
    stocked: RunningBroker, seen: list[weakref.ref[Any]], name: str
) -> None:
    for _ in range(3):
        with Raw(stocked.port, greet=False) as raw:
            raw.sock.sendall(BEFORE_GREETING[name])
            time.sleep(0.05)
    eventually(lambda: len(seen) == 3 and not any(each() for each in seen))


def test_a_stranger_may_announce_a_greeting_and_no_more(stocked: RunningBroker) -> None:
    """It is told as soon as it has announced more, not when all of that has come."""
    most = limits.RPC_GREETING_BYTES_MAX
    for size in (most + 1, FRAME_BYTES_MAX):
        with Raw(stocked.port, greet=False) as raw:
            raw.send(struct.pack("<III", size, Kind.HELLO, 1))
            refusal = c.unpack(raw.read().head, c.Refusal)
            assert refusal.message == f"a frame of {size} bytes is not valid: 8 to {most}"
            assert raw.read() is None
    eventually(lambda: not stocked.connections())
    with Raw(stocked.port, greet=False) as raw:
        raw.send(struct.pack("<III", most, Kind.HELLO, 1) + bytes(100))
        eventually(lambda: len(stocked.connections()) == 1)
        (stranger,) = stocked.connections()
        eventually(lambda: len(stranger._first._buffer) == 112)


def test_requests_may_follow_the_greeting_at_once(stocked: RunningBroker) -> None:
    """In one piece, byte by byte, and larger than a greeting may be."""
    hello = frame(Kind.HELLO, 1, c.pack(c.Hello(c.MAGIC, (1, 1), "x")))
    large = b"".join(frame_parts(Kind.PUSH, 2, c.pack_push(c.Push("q")), encode_batch(LARGE)))
    for pieces in ([hello + large], [*(bytes((each,)) for each in hello), large]):
        with Raw(stocked.port, greet=False) as raw:
            for piece in pieces:
                raw.send(piece)
            assert [raw.read().kind, raw.read().kind] == [Kind.WELCOME, Kind.OK]


LARGE = batch_of([bytes(2 * limits.RPC_GREETING_BYTES_MAX)])


def test_only_the_first_greeting_counts(stocked: RunningBroker) -> None:
    """What follows one that was refused is not looked at."""
    wrong = frame(Kind.HELLO, 1, c.pack(c.Hello(c.MAGIC, (8, 9), "x")))
    right = frame(Kind.HELLO, 2, c.pack(c.Hello(c.MAGIC, (1, 1), "x")))
    with Raw(stocked.port, greet=False) as raw:
        raw.send(wrong + right)
        assert [each.kind for each in iter(raw.read, None)] == [Kind.GOODBYE]


def test_who_does_not_greet_in_time_is_let_go(
    stocked: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RPC_GREETING_MS", 200)
    with Raw(stocked.port, greet=False) as raw:
        raw.send(b"\x10\x00\x00\x00")
        assert raw.is_told_and_cut_off()


def test_who_does_not_read_why_it_has_to_go_is_cut_off(
    stocked: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it left unread would stay for as long as it likes."""
    monkeypatch.setattr(connections, "RPC_CLOSING_MS", 200)
    eventually(lambda: not stocked.connections())
    with Raw(stocked.port) as raw:
        raw.send(call("peek", name="q", limit=50) * 20)
        eventually(lambda: any(not each._writable for each in stocked.connections()))
        (unread,) = stocked.connections()
        stocked.call(unread.end)
        eventually(lambda: not stocked.connections())
