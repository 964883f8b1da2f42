"""The UDP port of a node: any node takes datagrams for any topic.

Whoever is spoken to answers: it knows the address, how much that may send and be sent, and what it
has subscribed to. What has to do with a topic is done where the topic is. So the datagrams of a
turn go to their shards together: here, or over the RPC port of the node that has it, with the
cluster's secret. They are never passed on twice, and from outside no datagram can look like one
that was. Each shows its token there again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.questions import Datagrams
from nexo.doors.json_udp.access import Access
from nexo.doors.json_udp.addresses import Asker
from nexo.doors.json_udp.datagram import Action, Command, decode
from nexo.doors.json_udp.door import UdpDoor, nothing
from nexo.doors.json_udp.groups import topic_name
from nexo.doors.json_udp.publishes import Publishes
from nexo.doors.json_udp.replies import encode_refusal, refusal_of, success
from nexo.engine.engine import Engine
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import CLUSTER_ROUTE_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.access.operations import Named
    from nexo.cluster.node import Node
    from nexo.cluster.others import Others
    from nexo.cluster.whole import Whole
    from nexo.doors.json_udp.addresses import Address

_SUCCESS = b'{"status": "success"'


class UdpSwitch(UdpDoor):
    """The listener."""

    def __init__(self, node: Node, here: Whole, guard: Guard, others: Others) -> None:
        engine: Any = here
        super().__init__(engine, guard)
        self._access = _FrontAccess(guard, engine)
        self._node, self._guard, self._others = node, guard, others
        self._data = b""  # the datagram that is being looked at
        self._waiting: dict[int, list[tuple[bytes, Command, Asker]]] = {}  # by shard, of this turn
        self._doors: dict[int, tuple[Engine, ShardDoor]] = {}
        node.when_closed.append(self._shard_closed)

    def take(self, data: bytes, address: Address, now_s: float) -> None:
        self._data = data
        super().take(data, address, now_s)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for shard, items in waiting.items():
            try:
                self._spawn(self._pass_on, shard, items)
            except NexoError as error:
                self._refuse_all(items, error)

    def _carry_out(self, command: Command, asker: Asker, now_s: float) -> None:
        action, topic = command.action, topic_name(command.topic)
        is_for_group = command.group is not None
        if action is Action.UNSUBSCRIBE or (action is Action.SUBSCRIBE and not is_for_group):
            super()._carry_out(command, asker, now_s)
            return
        if action is Action.SUBSCRIBE:
            self.subscriptions.add(asker.address, topic, now_s)
        elif action is Action.GET and not self.subscriptions.has(asker.address, topic):
            self._outbox.send(nothing(command, asker), asker)
            return
        shard = self._node.shard_of(topic)
        self._waiting.setdefault(shard, []).append((self._data, command, asker))

    async def _pass_on(self, shard: int, items: list[tuple[bytes, Command, Asker]]) -> None:
        sent = Datagrams(
            shard,
            [
                (data, str(asker.address[0]), int(asker.address[1]), asker.reply_bytes_max)
                for data, _, asker in items
            ],
        )
        try:
            found = await self._node.route(shard)
            if isinstance(found, Engine):
                answers = await self.serve(sent)
            else:
                packed = await self._others.ask(found, sent)
                answers = msgspec.msgpack.decode(packed, type=dict[int, bytes])
        except NexoError as error:
            self._refuse_all(items, error)
            return
        for place, reply in answers.items():
            _, command, asker = items[place]
            if command.action is Action.SUBSCRIBE and reply.startswith(_SUCCESS):
                reply = self._subscribed(command, asker)  # with a cookie of this node
            self._outbox.send(reply, asker)

    def _shard_closed(self, shard: int) -> None:
        self._doors.pop(shard, None)

    def _refuse_all(self, items: list[tuple[bytes, Command, Asker]], error: NexoError) -> None:
        for _, command, asker in items:
            self._refuse(command, asker, error)

    async def serve(self, sent: Datagrams) -> dict[int, bytes]:
        """What a node was sent for topics of a shard that is here."""
        engine = await self._node.local(sent.shard)
        known = self._doors.get(sent.shard)
        if known is None or known[0] is not engine:
            known = self._doors[sent.shard] = engine, ShardDoor(engine, self._guard)
        return await known[1].serve(sent.items)


class _FrontAccess(Access):
    """Whether there is a group already is known where it is, and so is what its first one needs."""

    def _check_first(self, caller: Caller, named: Named, address: Address) -> None:
        pass


class _Placed(Asker, frozen=True, gc=False):
    """An asker behind another socket, perhaps of another node: the answer goes there."""

    answer: Any = None


class _Answers:
    """An outbox without a socket."""

    def send(self, reply: bytes, asker: Asker) -> None:
        assert isinstance(asker, _Placed)
        if not asker.answer.done():
            asker.answer.set_result(reply if len(reply) <= asker.reply_bytes_max else None)

    def send_all(self, reply: bytes, askers: Iterable[Asker]) -> None:
        for asker in askers:
            self.send(reply, asker)


class ShardDoor(UdpDoor):
    """What is done with the topics of one shard."""

    def __init__(self, engine: Engine, guard: Guard) -> None:
        super().__init__(engine, guard)
        outbox: Any = _Answers()
        self._outbox = outbox
        self._publishes = Publishes(engine, outbox, self._spawn, self._groups.topic)

    async def serve(self, items: list[tuple[bytes, str, int, int]]) -> dict[int, bytes]:
        """The answers that come in time, by place."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[bytes | None]] = []
        for data, host, port, reply_bytes_max in items:
            answer: asyncio.Future[bytes | None] = loop.create_future()
            answers.append(answer)
            command = decode(data)
            if isinstance(command, Command):
                self._begin(command, (host, port), reply_bytes_max, answer)
            else:  # who sent it has looked at it: this cannot be
                answer.set_result(None)
        self._publishes.flush()
        await asyncio.wait(answers, timeout=CLUSTER_ROUTE_S)
        found = {at: each.result() for at, each in enumerate(answers) if each.done()}
        return {at: reply for at, reply in found.items() if reply is not None}

    def _begin(self, command: Command, address: Address, reply_bytes_max: int, answer: Any) -> None:
        asker = _Placed(address, reply_bytes_max, answer=answer)
        try:
            caller = self._access.admit(command, address)
            asker = _Placed(address, reply_bytes_max, caller, answer)
            if command.action is Action.PUBLISH:
                self._publishes.add(command, asker)
            elif command.action is Action.SUBSCRIBE:
                self._spawn_for(self._join, command, asker)
            elif command.action is Action.ACK:
                self._spawn_for(self._ack, command, asker)
            elif command.group is None:
                self._spawn_for(self._get, command, asker)
            else:
                self._spawn_for(self._take_for_group, command, asker)
        except NexoError as error:
            self._refuse(command, asker, error)

    def _subscribed(self, command: Command, asker: Asker) -> bytes:
        return success(Action.SUBSCRIBE, command.topic, command.ref)

    def _refuse(self, command: Command, asker: Asker, error: NexoError) -> None:
        self._outbox.send(encode_refusal(refusal_of(error, command.ref)), asker)
