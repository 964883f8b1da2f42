"""Clients that do not keep to the protocol: they are told and cut off, and nobody else notices."""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any

import pytest

import nexo
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import FRAME_BYTES_MAX
from nexo.wire import commands
from nexo.wire.columns import encode_batch
from nexo.wire.frame import FrameReader, Kind, frame, frame_parts
from tests.client.eventually import eventually
from tests.client.running import RunningBroker

MIB = 1024 * 1024


class Raw:
    """A connection by hand."""

    def __init__(self, port: int, greet: bool = True, heartbeat_ms: int = 10_000) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = FrameReader()
        self._frames: list[Any] = []
        if greet:
            hello = commands.Hello(commands.MAGIC, (1, 1), "raw", None, heartbeat_ms)
            self.send(frame(Kind.HELLO, 1, commands.pack(hello)))
            assert self.read().kind is Kind.WELCOME

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self) -> Any:
        while not self._frames:
            data = self.sock.recv(65_536)
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def is_told_and_cut_off(self) -> bool:
        seen = None
        while (arrived := self.read()) is not None:
            seen = arrived
        if seen is None or seen.kind is not Kind.GOODBYE:
            return False
        refusal: commands.Refusal = commands.unpack(seen.head, commands.Refusal)
        return refusal.code == "invalid_argument"

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *failure: object) -> None:
        self.sock.close()


@pytest.fixture
def witness(broker: Any) -> Any:
    """Somebody else, who must not notice."""
    with nexo.connect(broker.url, timeout=20) as client:
        queue = client.queue("q", create=True)
        queue.push("x")
        yield queue
        message = queue.pop(wait=5)
        assert message is not None
        message.ack()


BROKEN = {
    "noise": bytes(reversed(range(256))) * 10,
    "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "too large": struct.pack("<III", FRAME_BYTES_MAX + 1, Kind.PUSH, 1) + bytes(100),
    "too small": struct.pack("<III", 7, Kind.PUSH, 1),
    "an unknown kind": struct.pack("<III", 8, 200, 1),
    "a head beyond the frame": struct.pack("<III", 10, 1_000 << 8 | Kind.PUSH, 1) + bytes(100),
    "a broker's word": frame(Kind.DELIVER, 1, b"x"),
    "a cut push": frame(Kind.PUSH, 1, b"\x05ab"),
    "a push without a batch": frame(
        Kind.PUSH, 1, commands.pack_push(commands.Push("q", "p", 1)), b"\x01"
    ),
    "a batch with a tail": frame(
        Kind.PUSH,
        1,
        commands.pack_push(commands.Push("q", "p", 1)),
        b"".join(encode_batch(batch_of([b"x"]))) + b"more",
    ),
    "a call that is none": frame(Kind.CALL, 1, b"", b"\xc1\xc1"),
    "cut ranges": frame(Kind.ACK, 1, b"\x01q" + bytes(23)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames(broker: Any, witness: Any, name: str) -> None:
    with Raw(broker.port) as raw:
        raw.send(BROKEN[name])
        assert raw.is_told_and_cut_off()


def test_no_greeting(broker: Any, witness: Any) -> None:
    with Raw(broker.port, greet=False) as raw:
        raw.send(frame(Kind.CALL, 1, b"", commands.pack(commands.Call("list_queues"))))
        assert raw.is_told_and_cut_off()
    with Raw(broker.port, greet=False) as raw:
        raw.send(frame(Kind.HELLO, 1, commands.pack(commands.Hello("MQTT", (1, 1), "x"))))
        assert raw.is_told_and_cut_off()


def test_half_a_frame(broker: Any, witness: Any) -> None:
    with Raw(broker.port) as raw:
        raw.send(struct.pack("<III", MIB, 10 << 8 | Kind.PUSH, 1) + bytes(1_000))
    eventually(lambda: len(broker.connections()) == 1)
    with Raw(broker.port, heartbeat_ms=500) as raw:  # one that is never finished
        raw.send(struct.pack("<III", MIB, 10 << 8 | Kind.PUSH, 1) + bytes(1_000))
        started = time.monotonic()
        assert raw.is_told_and_cut_off()
        assert time.monotonic() - started < 10


def test_an_answer_waits_for_none_that_is_not_wanted(broker: Any, witness: Any) -> None:
    """An answer may go out with that of another request, but not if there will be no such."""
    pop = commands.pack_pop(commands.Pop("q", 1, MIB))
    with Raw(broker.port, heartbeat_ms=300_000) as raw:
        raw.send(frame(Kind.POP, 1, pop))
        lease = commands.unpack_delivery(raw.read().head).lease
        back = frame(Kind.GIVE_BACK, 0, commands.pack_ranges("q", [(lease, 0, 1)]))
        raw.send(back + frame(Kind.POP, 2, pop))
        again = raw.read()
        assert again.correlation == 2
        lease = commands.unpack_delivery(again.head).lease
        raw.send(frame(Kind.GIVE_BACK, 3, commands.pack_ranges("q", [(lease, 0, 1)])))
        assert raw.read().kind is Kind.OK


def test_a_silent_client_is_let_go(broker: Any, witness: Any) -> None:
    with Raw(broker.port, heartbeat_ms=500) as raw:
        assert raw.is_told_and_cut_off()
    with Raw(broker.port, heartbeat_ms=1_000) as raw:
        for _ in range(10):
            raw.send(frame(Kind.HEARTBEAT, 0))
            time.sleep(0.4)
        raw.send(frame(Kind.CALL, 5, b"", commands.pack(commands.Call("list_queues"))))
        while (arrived := raw.read()).kind is Kind.HEARTBEAT:
            pass
        assert (arrived.kind, arrived.correlation) == (Kind.OK, 5)


@pytest.mark.parametrize(
    "call",
    [
        commands.Call("no_such_call"),
        commands.Call("purge"),
        commands.Call("purge", {"name": 5}),
        commands.Call("purge", {"name": "q", "more": 1}),
        commands.Call("create_queue", {"name": "x", "settings": {"delay_ms": "soon"}}),
        commands.Call("peek", {"name": "q", "limit": -1}),
    ],
)
def test_wrong_calls_are_refused_and_nothing_more(
    broker: Any, witness: Any, call: commands.Call
) -> None:
    with Raw(broker.port) as raw:
        raw.send(frame(Kind.CALL, 9, b"", commands.pack(call)))
        arrived = raw.read()
        assert (arrived.kind, arrived.correlation) == (Kind.ERROR, 9)
        refusal = commands.unpack(arrived.head, commands.Refusal)
        assert refusal.code == "invalid_argument"
        raw.send(frame(Kind.CALL, 10, b"", commands.pack(commands.Call("list_queues"))))
        assert raw.read().kind is Kind.OK


def test_a_client_that_does_not_read() -> None:
    """Its subscription gets what fits, then takes no part; the broker holds no more for it."""
    broker = RunningBroker(":memory:").start()
    try:
        with nexo.connect(broker.url, timeout=30) as client, Raw(broker.port) as raw:
            queue = client.queue("q", create=True)
            body = os.urandom(MIB)
            for _ in range(8):
                queue.push_batch([body] * 12)
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            subscribe = commands.Subscribe("q", 1, 1_000, "slow")
            raw.send(frame(Kind.SUBSCRIBE, 1, commands.pack(subscribe)))
            for number in range(200):  # and it asks for more without end
                head = commands.pack_pop(commands.Pop("q", 1, MIB))
                raw.send(b"".join(frame_parts(Kind.POP, 2 + number, head, [])))
            time.sleep(1.0)
            held = 0
            for each in broker.connections():
                held += broker.call(each._transport.get_write_buffer_size)
                held += len(b"".join(each._out))
            assert held < 16 * MIB
            assert queue.info().in_flight < 40  # the rest did not go to one that does not read
            message = queue.pop(wait=5)
            assert message is not None  # others are served
    finally:
        broker.stop()
