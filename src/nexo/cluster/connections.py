"""The clients that are connected to the nodes, as one list.

A client is connected to one node. Its consumers are where their queues are, so it may have some at
other nodes, which know the connection by the number that it has at its own. Numbers are drawn, so
that those of two nodes do not meet. Over SQS a client has no connection: what shards of all nodes
have seen of one is joined by what makes it one, and that is its number too.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from nexo.cluster.questions import CloseConnection, ToldConnections
from nexo.doors.rpc_tcp.connection import DOOR
from nexo.vocabulary.errors import ConnectionNotFound

if TYPE_CHECKING:
    from nexo.cluster.far import Far
    from nexo.cluster.rpc import RpcSwitch
    from nexo.engine.connections import ConnectionFigures, ConsumerFigures


class Clients:
    """Looks like `engine.connections`."""

    def __init__(self, door: RpcSwitch | None, far: Far | None) -> None:
        self._door, self._far = door, far
        self._listed: dict[int, ConnectionFigures] = {}

    def numbers(self) -> list[int]:
        """All of them, in order: as they are now, for `figures` to tell of."""
        told = [self.told(), *(self._far.connections.values() if self._far is not None else ())]
        if self._far is not None:
            self._far.looked(at_connections=True)
        found: dict[int, list[ConsumerFigures]] = {}
        figures: dict[int, ConnectionFigures] = {}
        for one in told:
            for each in one.own:
                if figures.setdefault(each.number, each) is not each:
                    found.setdefault(each.number, []).extend(each.consumers)
            for number, consumers in one.parts.items():
                found.setdefault(number, []).extend(consumers)
        self._listed = {
            number: _with(figures[number], found.get(number, [])) for number in sorted(figures)
        }
        return list(self._listed)

    def figures(self, number: int) -> ConnectionFigures | None:
        return self._listed.get(number)

    def close(self, number: int) -> None:
        """One of this node."""
        if not self.close_own(number):
            raise ConnectionNotFound(f"there is no connection {number}", "it may have ended")

    async def close_anywhere(self, number: int) -> None:
        if self.close_own(number):
            return
        if self._far is not None:
            told = await self._far.others.ask_all(CloseConnection(number))
            if any(msgspec.msgpack.decode(answer, type=bool) for answer in told.values()):
                return
        raise ConnectionNotFound(f"there is no connection {number}", "it may have ended")

    def told(self) -> ToldConnections:
        """Those of this node."""
        switches = list(self._door.connections) if self._door is not None else []
        parts: dict[int, list[ConsumerFigures]] = {}
        for each in switches:
            if each.is_passed and each.number:
                parts.setdefault(each.number, []).extend(each.consumers())
        own = [each.figures() for each in switches if each.is_client]
        return ToldConnections([*own, *self._without_connections()], parts)

    def _without_connections(self) -> list[ConnectionFigures]:
        """Clients over HTTP, as each shard has seen them."""
        found = []
        for engine in self._door.node.engines.values() if self._door is not None else ():
            for number in engine.connections.numbers():
                told = engine.connections.figures(number)
                if told is not None and told.door != DOOR:
                    found.append(msgspec.structs.replace(told, number=_number_of(told)))
        return found

    def has_own(self, number: int) -> bool:
        switches = self._door.connections if self._door is not None else ()
        return any(each.number == number and each.is_client for each in switches)

    def close_own(self, number: int) -> bool:
        for each in list(self._door.connections) if self._door is not None else ():
            if each.number == number and each.is_client:
                each.close_by_operator()
                return True
        return False


def _number_of(told: ConnectionFigures) -> int:
    who = msgspec.json.encode([told.door, told.address, told.token, told.name, told.software])
    return int.from_bytes(sha256(who).digest()[:6], "big") + 1


def _with(figures: ConnectionFigures, more: list[ConsumerFigures]) -> ConnectionFigures:
    if not more:
        return figures
    consumers = sorted([*figures.consumers, *more], key=lambda each: each.queue)
    return msgspec.structs.replace(figures, consumers=consumers)
