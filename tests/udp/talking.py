"""A door without a network: datagrams are handed to it as if from any address, at any time."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from nexo.doors.json_udp.door import UdpDoor
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.doors.json_udp.addresses import Address


class Wire:
    """The socket of the door; what is sent stays here."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Address]] = []

    def fileno(self) -> int:
        raise AssertionError("there is nothing to wait for")

    def sendto(self, data: bytes, address: Address) -> None:
        self.sent.append((data, address))

    def close(self) -> None:
        pass


class Talking:
    """Everything happens inside the calls; in between time stands still."""

    def __init__(self, make: Callable[[Talking], None] | None = None) -> None:
        self._make = make
        self._runner = asyncio.Runner()
        self.now_s = 1_000.0
        self.wire = Wire()
        self.engine: Engine
        self.door: UdpDoor

    def raw(self, request: dict[str, Any] | bytes, address: Address) -> bytes:
        """The reply; an empty one if there is none."""
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        self.send([(data, address)])
        replies = self.taken()
        assert len(replies) <= 1
        assert all(to == address for _, to in replies)
        return replies[0][0] if replies else b""

    def ask(self, request: dict[str, Any], address: Address) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.raw(request, address))
        return reply

    def bytes_for(self, data: bytes, address: Address) -> int:
        return len(self.raw(data, address))

    def send(self, datagrams: list[tuple[bytes, Address]]) -> None:
        """All that one turn reads; returns when everything that follows from it has happened."""

        async def turn() -> None:
            for data, address in datagrams:
                self.door.take(data, address, self.now_s)
            self.door.flush()
            await self.door.settled()

        self._runner.run(turn())

    def taken(self) -> list[tuple[bytes, Address]]:
        """What was sent since the last time."""
        sent, self.wire.sent = self.wire.sent, []
        return sent

    def __enter__(self) -> Self:
        self._runner.run(self._open())
        return self

    def __exit__(self, *failure: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _open(self) -> None:
        incarnations = count(1)
        self.engine = Engine(MemoryJournal(), new_incarnation=lambda: next(incarnations))
        await self.engine.open()
        if self._make is None:
            self.door = UdpDoor(self.engine, clock=lambda: self.now_s)
        else:
            self._make(self)
        self.door.listen(self.wire)  # type: ignore[arg-type]

    async def _close(self) -> None:
        await self.door.settled()
        await self.engine.close()
