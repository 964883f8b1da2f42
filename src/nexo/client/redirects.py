"""A change of the node, without sockets: whether to go where a node of a cluster sends the client,
and what has to be answered before it goes.

The connection to the new node is made beside the old one. Then nothing more is written to the old
one but a goodbye; what was asked there is answered, calls wait meanwhile, and the session goes on
with the other connection in one step. What was not answered in time is sent again, as after any
lost connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nexo.client.address import place_of
from nexo.client.operation import Operation, Request
from nexo.vocabulary.errors import NexoError, Unreachable
from nexo.vocabulary.limits import CLIENT_MOVES_S, CLIENT_UNREACHED_S
from nexo.wire import commands
from nexo.wire.frame import FrameReader, Kind, frame

if TYPE_CHECKING:
    from nexo.client.address import Address
    from nexo.client.operation import Exchange
    from nexo.wire.frame import Frame

_log = logging.getLogger("nexo.client")


class Redirects:
    """Of one client: `given` is the address that the user gave, which is never forgotten."""

    def __init__(self, given: Address, follows: bool = True) -> None:
        self._given = given
        self.follows: bool = follows
        self._moved_at = float("-inf")
        self._unreached: dict[tuple[str, int], float] = {}  # until when they are not tried

    def target(self, told: str, current: Address, now: float) -> Address | None:
        """Where to connect; None: stay. The addresses of the user come behind the node's, so that
        a node that dies leads back to the others."""
        place = place_of(told)
        if not self.follows or place is None or place == (current.host, current.port):
            return None
        if now < self._moved_at + CLIENT_MOVES_S or now < self._unreached.get(place, now):
            return None
        return self._given.led_by(place)

    def moved(self, to: Address, now: float) -> None:
        self._moved_at = now
        _log.info("connected to %s: the node of the cluster that has what this client uses", to)

    def failed(self, to: Address, error: Exception, now: float) -> None:
        """The client stays where it is. Others may reach that node, so the broker goes on saying
        it: this is logged once, and not heard for a while."""
        self._unreached[to.host, to.port] = now + CLIENT_UNREACHED_S
        reason = error.message if isinstance(error, NexoError) else str(error)
        _log.info(
            "the node of the cluster that has what this client uses cannot be reached at %s (%s); "
            "the client stays where it is, and tries again after %.0f s at the earliest",
            to,
            reason,
            CLIENT_UNREACHED_S,
        )


class Greeting:
    """What the broker answers to the greeting on a new connection."""

    def __init__(self) -> None:
        self.reader: FrameReader = FrameReader()
        self.frames: list[Frame] = []  # the welcome, or why there is none, and what came with it

    def feed(self, data: bytes) -> bool:
        """Whether it has answered."""
        self.frames += self.reader.feed(data)
        return bool(self.frames)

    def check_cluster(self, cluster: str) -> None:
        """Whoever answers at the address of a node may be another broker: addresses may mean
        something else where the client is."""
        welcome = self.frames[0]
        if welcome.kind is not Kind.WELCOME:
            raise Unreachable("it refused the connection")
        found: commands.Welcome = commands.unpack(welcome.head, commands.Welcome)
        if not cluster or found.cluster != cluster:
            raise Unreachable("it is not a node of the same cluster")


class Leaving(Operation):
    """Done when the node that is left has answered everything that needs an answer."""

    __slots__ = ("_awaited", "sent", "subscriptions")

    def __init__(self, pending: dict[int, Exchange], subscriptions: set[int]) -> None:
        super().__init__()
        self.sent: set[int] = set(pending)  # correlations
        self.subscriptions: set[int] = subscriptions
        self._awaited = {number for number, each in pending.items() if _is_awaited(each)}

    def answered(self, correlation: int) -> None:
        self._awaited.discard(correlation)
        if not self._awaited:
            self.finish(None)


class Goodbye(Request):
    """Pops that wait are answered with it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Kind.GOODBYE, b"", lambda _: None)
        self.abandoned = True

    def framed(self, correlation: int) -> bytes:
        return frame(Kind.GOODBYE, correlation)


def _is_awaited(exchange: Exchange) -> bool:
    """What only reads may take long and is asked again without harm. A pop may not: what it
    brings would be the client's, and unseen."""
    waits = isinstance(exchange, Request) and exchange.wait_s > 0
    return not waits or (isinstance(exchange, Request) and exchange.kind is Kind.POP)
