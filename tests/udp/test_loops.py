"""An answer never begins a conversation between two that answer everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.guard import Guard
from nexo.access.tokens import mint
from nexo.doors.json_udp.addresses import Rates
from nexo.doors.json_udp.door import UdpDoor
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal
from nexo.vocabulary import limits
from tests.udp.talking import Talking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.doors.json_udp.addresses import Address

NEAR, FAR = ("127.0.0.1", 40_000), ("203.0.113.9", 40_000)
NOT_REQUESTS = [
    b"garbage",
    b"",
    b"[]",
    b'{"action": "nonsense"}',
    b'{"action": "publish", "topic": "t"}',
    b'{"status": "error", "error": "Formato messaggio non valido", "code": "invalid_argument"}',
    b'{"status": "success", "action": "subscribe", "topic": "t"}',
    b'{"status": "success", "action": "publish", "topic": "t", "payload": 1}',
    b'{"status": "success", "action": "get", "topic": "t", "messages": [{"payl',  # cut
    b' {\n"status" \xff',
]
TURNS = 20  # of the event loop for each datagram that a loop could bring


class CountingDoor(UdpDoor):
    """Counts what it gets."""

    heard = 0

    def take(self, data: bytes, address: Address, now_s: float) -> None:
        self.heard += 1
        super().take(data, address, now_s)

    def say(self, data: bytes, to: Address) -> None:
        """What a forger would send in the name of this door."""
        assert self._socket is not None
        self._socket.sendto(data, to)

    @property
    def address(self) -> Address:
        assert self._socket is not None
        return self._socket.getsockname()  # type: ignore[no-any-return]


async def quiet(doors: list[CountingDoor]) -> None:
    """Wait until no door hears anything any more; a loop would go on for ever."""
    heard, still = -1, 0
    while still < TURNS:
        total = sum(door.heard for door in doors)
        assert total < 100, "they answer each other for ever"
        still = still + 1 if total == heard else 0
        heard = total
        await asyncio.sleep(0.001)


async def with_doors(test: Callable[[CountingDoor, CountingDoor], Any]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        doors = []
        for _ in range(2):
            engine = await Engine(MemoryJournal(), new_incarnation=lambda: 1).open()
            stack.push_async_callback(engine.close)
            doors.append(CountingDoor(engine))
            await doors[-1].open("127.0.0.1", 0)
            stack.push_async_callback(doors[-1].close)
        await test(*doors)


@pytest.mark.parametrize("data", NOT_REQUESTS)
def test_two_brokers_do_not_answer_each_other(data: bytes) -> None:
    async def test(one: CountingDoor, other: CountingDoor) -> None:
        one.say(data, other.address)
        await quiet([one, other])
        assert other.heard == 1
        assert one.heard == (0 if b'"status"' in data else 1)  # the one answer, which gets none

    asyncio.run(with_doors(test))


def test_a_request_in_the_name_of_another_broker_is_answered_once() -> None:
    async def test(one: CountingDoor, other: CountingDoor) -> None:
        one.say(b'{"action": "subscribe", "topic": "t"}', other.address)
        await quiet([one, other])
        assert (one.heard, other.heard) == (1, 1)
        assert len(one.subscriptions) == 0  # the answer looks like the request

    asyncio.run(with_doors(test))


@pytest.mark.parametrize("data", [*NOT_REQUESTS, b'{"action": "subscribe", "topic": "t"}'])
def test_a_broker_does_not_answer_itself(data: bytes) -> None:
    async def test(door: CountingDoor, _: CountingDoor) -> None:
        door.say(data, door.address)
        await quiet([door])
        assert door.heard == 1

    asyncio.run(with_doors(test))


def test_whoever_answers_everything_is_soon_left_alone() -> None:
    """Another program's answers have no `status`: after some errors in a row it hears nothing."""

    async def test(door: CountingDoor, _: CountingDoor) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as chatterbox:
            chatterbox.setblocking(False)
            chatterbox.bind(("127.0.0.1", 0))

            async def answer() -> None:
                while True:
                    _, address = await loop.sock_recvfrom(chatterbox, 65_536)
                    await loop.sock_sendto(chatterbox, b"what?", address)

            answering = loop.create_task(answer())
            await loop.sock_sendto(chatterbox, b"hello", door.address)
            await quiet([door])
            answering.cancel()
        assert door.heard == limits.UDP_ERRORS_MAX + 1

    asyncio.run(with_doors(test))


@pytest.fixture
def talking() -> Iterator[Talking]:
    with Talking() as started:
        yield started


GARBAGE = b"x" * 100
GET = {"action": "get", "topic": "t", "padding": "x" * 100}


def test_errors_in_a_row_come_back_after_a_request_and_after_silence(talking: Talking) -> None:
    most = limits.UDP_ERRORS_MAX
    assert [bool(talking.raw(GARBAGE, NEAR)) for _ in range(most + 2)] == [True] * most + [
        False
    ] * 2
    assert talking.raw(GARBAGE, ("127.0.0.1", 40_001))  # another's are its own
    assert talking.ask(GET, NEAR)["status"] == "success"  # a request is always answered …
    assert talking.raw(GARBAGE, NEAR)  # … and shows that somebody is there
    for _ in range(most):
        talking.raw(GARBAGE, NEAR)
    talking.now_s += limits.UDP_ERRORS_SILENCE_S / 2
    assert not talking.raw(GARBAGE, NEAR)  # a loop is never silent for long
    talking.now_s += limits.UDP_ERRORS_SILENCE_S - 1
    assert not talking.raw(GARBAGE, NEAR)
    talking.now_s += limits.UDP_ERRORS_SILENCE_S
    assert talking.raw(GARBAGE, NEAR)


def test_from_outside_only_those_who_made_a_request_hear_errors(talking: Talking) -> None:
    assert not talking.raw(GARBAGE, FAR)
    assert not talking.raw(b'{"action": "nonsense"}' + b" " * 100, FAR)
    assert talking.ask(GET, FAR)["status"] == "success"
    assert json.loads(talking.raw(GARBAGE, FAR))["error"] == "Formato messaggio non valido"
    talking.now_s += limits.UDP_KNOWN_S
    assert not talking.raw(GARBAGE, FAR)


def test_with_access_control_a_request_without_a_token_makes_nobody_known() -> None:
    def guard(world: Talking) -> None:
        minted = mint("t", ["*:*"], world.engine.now_ms())
        guarded = Guard(world.engine.now_ms, is_required=True)
        guarded.adopt({"t": minted.defined})
        world.door = UdpDoor(world.engine, guarded, lambda: world.now_s)
        tokens.append(minted.token)

    tokens: list[str] = []
    with Talking(guard) as talking:
        assert talking.ask(GET, FAR)["error"] == "Non autorizzato"
        assert not talking.raw(GARBAGE, FAR)
        assert talking.ask({**GET, "token": tokens[0]}, FAR)["status"] == "success"
        assert talking.raw(GARBAGE, FAR)


def test_beyond_the_rate_only_known_senders_are_told_and_replies_never(talking: Talking) -> None:
    talking.door.rates = Rates(per_s=1, burst=1)
    reply = b'{"status": "error", "error": "Troppe richieste"}' + b" " * 100
    assert not talking.raw(GARBAGE, FAR)
    assert not talking.raw(GARBAGE, FAR)  # beyond the rate, and not known
    assert talking.ask(GET, NEAR)["status"] == "success"
    assert not talking.raw(reply, NEAR)
    told = [talking.raw(GET, NEAR) for _ in range(limits.UDP_ERRORS_MAX + 5)]
    assert sum(map(bool, told)) == limits.UDP_ERRORS_MAX
