"""The socket itself: where it listens, and what happens when the system does not take a reply."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.json_udp.addresses import Asker
from nexo.doors.json_udp.door import Outbox, UdpDoor
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal
from nexo.vocabulary.limits import UDP_UNSENT_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.json_udp.addresses import Address

NEAR = Asker(("127.0.0.1", 9))


def with_a_door(test: Callable[[UdpDoor], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = await Engine(MemoryJournal(), new_incarnation=lambda: 1).open()
        door = UdpDoor(engine)
        try:
            await test(door)
        finally:
            await door.close()
            await door.close()  # closing twice is no error
            await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_where_it_listens(host: str) -> None:
    async def test(door: UdpDoor) -> None:
        port = await door.open(host, 0)
        loop = asyncio.get_running_loop()
        (family, kind, _, _, address), *_ = await loop.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as client:
            client.setblocking(False)
            await loop.sock_connect(client, address)
            await loop.sock_sendall(client, b'{"action": "subscribe", "topic": "t"}')
            async with asyncio.timeout(10):
                reply = json.loads(await loop.sock_recv(client, 65_536))
        assert reply == {"status": "success", "action": "subscribe", "topic": "t"}

    with_a_door(test)


def test_a_port_that_is_taken() -> None:
    async def test(door: UdpDoor) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="in use") as caught:
                await door.open("127.0.0.1", other.getsockname()[1])
            assert caught.value.errno == errno.EADDRINUSE

    with_a_door(test)


def test_many_datagrams_to_a_client_that_is_gone() -> None:
    """What the network says of it is no concern of anybody else's."""

    async def test(door: UdpDoor) -> None:
        port = await door.open("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        for _ in range(50):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
                gone.connect(("127.0.0.1", port))
                gone.send(b'{"action": "get", "topic": "t"}')
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, b'{"action": "publish", "topic": "t", "payload": 1}')
            async with asyncio.timeout(10):
                reply = await loop.sock_recv(client, 65_536)
        assert b"success" in reply

    with_a_door(test)


class BusySocket:
    """Takes as many as there is room for."""

    def __init__(self) -> None:
        self.room = 0
        self.sent: list[bytes] = []
        self.unreachable: set[Address] = set()

    def fileno(self) -> int:
        return 7

    def sendto(self, data: bytes, address: Address) -> None:
        if address in self.unreachable:
            raise OSError(errno.ENETUNREACH, "no way")
        if not self.room:
            raise BlockingIOError
        self.room -= 1
        self.sent.append(data)


class Watching:
    """The event loop, as far as an outbox knows it."""

    def __init__(self) -> None:
        self.writer: Callable[[], None] | None = None

    def add_writer(self, _: int, writer: Callable[[], None]) -> None:
        assert self.writer is None
        self.writer = writer

    def remove_writer(self, _: int) -> None:
        self.writer = None


@pytest.fixture
def busy() -> tuple[Outbox, BusySocket, Watching]:
    out: Any = BusySocket()
    loop: Any = Watching()
    return Outbox(out, loop), out, loop


def test_what_the_system_cannot_take_is_sent_later_in_order(
    busy: tuple[Outbox, BusySocket, Watching],
) -> None:
    outbox, out, loop = busy
    out.room = 2
    for number in range(5):
        outbox.send(b"%d" % number, NEAR)
    assert out.sent == [b"0", b"1"]
    out.room = 1
    assert loop.writer is not None
    loop.writer()
    assert out.sent == [b"0", b"1", b"2"]
    out.room = 9
    outbox.send(b"5", NEAR)  # it does not overtake
    loop.writer()
    assert out.sent == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert loop.writer is None
    outbox.send(b"6", NEAR)
    assert out.sent[-1] == b"6"


def test_what_waits_is_bounded(busy: tuple[Outbox, BusySocket, Watching]) -> None:
    outbox, out, loop = busy
    for number in range(UDP_UNSENT_MAX + 100):
        outbox.send(b"%d" % number, NEAR)
    out.room = 10**6
    assert loop.writer is not None
    loop.writer()
    assert len(out.sent) == UDP_UNSENT_MAX


def test_an_address_that_cannot_be_reached(busy: tuple[Outbox, BusySocket, Watching]) -> None:
    outbox, out, loop = busy
    out.room = 1
    out.unreachable.add(("10.0.0.1", 1))
    outbox.send(b"lost", Asker(("10.0.0.1", 1)))
    outbox.send(b"sent", NEAR)
    assert (out.sent, loop.writer) == ([b"sent"], None)


def test_closing_sends_what_it_can(busy: tuple[Outbox, BusySocket, Watching]) -> None:
    outbox, out, loop = busy
    for number in range(3):
        outbox.send(b"%d" % number, NEAR)
    out.room = 2
    outbox.close()
    outbox.send(b"late", NEAR)
    assert (out.sent, loop.writer) == ([b"0", b"1"], None)
