"""Who is connected, and who consumes what: doors add their connections, and others ask here."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol

import msgspec

from nexo.vocabulary.errors import ConnectionNotFound
from nexo.vocabulary.limits import (
    ACK_RATE_WINDOW_MS,
    CONSUMER_STUCK_MS,
    LIST_PAGE_MAX,
    LIST_STEP_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConsumerFigures(msgspec.Struct, frozen=True):
    """A consumer of one queue on one connection. `state`: `working`, `idle` (it has nothing to do),
    `stuck` (it holds messages and has acked none for long), `not reading` (it takes nothing more
    from the network). Of one that pops instead of subscribing `prefetch` is 0, and what it holds
    is not known."""

    queue: str
    prefetch: int
    unacked: int
    acked: int  # since it connected
    rate: float  # acks a second, lately
    last_ack_ms: int  # 0: none yet
    state: str


class ConnectionFigures(msgspec.Struct, frozen=True):
    number: int
    door: str
    name: str  # what the client calls itself
    address: str
    software: str  # of the client, with its version; empty if it does not say
    token: str  # the name of its token; empty if it showed none
    since_ms: int
    consumers: list[ConsumerFigures]


class Connected(Protocol):
    """A connection of a door."""

    def figures(self, number: int) -> ConnectionFigures: ...

    def close_by_operator(self) -> None: ...


class Connections:
    def __init__(self) -> None:
        self._open: dict[int, Connected] = {}
        self._numbers = count(1)

    def add(self, connection: Connected) -> int:
        number = next(self._numbers)
        self._open[number] = connection
        return number

    def remove(self, number: int) -> None:
        self._open.pop(number, None)

    def numbers(self) -> Iterable[int]:
        return list(self._open)

    def figures(self, number: int) -> ConnectionFigures | None:
        """None if it has gone meanwhile."""
        connection = self._open.get(number)
        return connection.figures(number) if connection is not None else None

    def close(self, number: int) -> None:
        """End a connection; what its consumers hold goes back at once."""
        connection = self._open.get(number)
        if connection is None:
            raise ConnectionNotFound(f"there is no connection {number}", "it may have ended")
        connection.close_by_operator()


async def connections_behind(connections: Connections, after: int = 0) -> list[ConnectionFigures]:
    """A page of the connections with a higher number; others have their turn in between."""
    found: list[ConnectionFigures] = []
    for number in connections.numbers():
        if number <= after:
            continue
        told = connections.figures(number)
        if told is not None:
            found.append(told)
            if len(found) == LIST_PAGE_MAX:
                break
            if len(found) % LIST_STEP_NAMES == 0:
                await asyncio.sleep(0)
    return found


class AckTally:
    """The acks of one consumer: how many, when the last one was, and how many a second lately."""

    __slots__ = ("_before", "_since_ms", "_window", "count", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.last_ms = 0
        self._since_ms = now_ms  # when the window began
        self._window = 0  # acks within it
        self._before = 0.0  # a second, in the window before

    def add(self, acked: int, now_ms: int) -> None:
        if now_ms - self._since_ms >= ACK_RATE_WINDOW_MS:
            self._before = self.rate(now_ms)
            self._since_ms, self._window = now_ms, 0
        self.count += acked
        self._window += acked
        self.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        elapsed_ms = max(1, now_ms - self._since_ms)
        share = max(0.0, 1 - elapsed_ms / ACK_RATE_WINDOW_MS)  # of the window before
        return self._before * share + 1000 * self._window / max(elapsed_ms, ACK_RATE_WINDOW_MS)


def state_of(unacked: int, is_reading: bool, held_ms: int, silent_ms: int) -> str:
    """What a consumer is doing, as far as the broker can see: `held_ms` is how long it has held the
    oldest of its messages, `silent_ms` how long ago it acked one."""
    if not is_reading:
        return "not reading"
    if not unacked:  # nothing that is known: what a consumer pops is not counted
        return "working" if silent_ms < ACK_RATE_WINDOW_MS else "idle"
    return "stuck" if min(held_ms, silent_ms) > CONSUMER_STUCK_MS else "working"
