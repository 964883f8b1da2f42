"""What each kind of frame does. A handler that need not wait replies at once or through a future
of the engine; one that must wait is spawned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.rpc_tcp.calls import call
from nexo.doors.rpc_tcp.deliveries import delivery_frame, wire_parts
from nexo.engine import receipts
from nexo.engine.types import Waiter
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import POP_MESSAGES_MAX
from nexo.vocabulary.start import Start
from nexo.wire import commands
from nexo.wire.columns import decode_batch, encode_parts
from nexo.wire.frame import Kind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Accepted, Delivery
    from nexo.vocabulary.batch import Batch

    Handler = Callable[[Connection, int, bytes, memoryview], None]


def _push(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    push = commands.unpack_push(head)
    actor = connection.engine.queue(push.queue)
    batch = _batch(body)
    incarnation = actor.queue.incarnation

    def encode(accepted: Accepted) -> bytes:
        return commands.pack_accepted(incarnation, accepted.duplicates, accepted.ranges)

    connection.answer(actor.push(batch, push.producer, push.number), correlation, encode)


def _pop(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    pop = commands.unpack_pop(head)
    actor = connection.engine.queue(pop.queue)
    delivery = _pop_at_once(connection, actor, pop)
    if delivery is not None:
        if pop.ahead:
            connection.aheads[pop.queue] = (actor.queue.incarnation, delivery.lease)
        connection.send_along(delivery_frame(actor, delivery, correlation))
        return

    async def work() -> None:
        delivery = await actor.pop(
            pop.count,
            wait_ms=pop.wait_ms,
            bytes_max=pop.bytes_max,
            consumer=connection.name,
            visibility_ms=pop.visibility_ms,
            one_ack=pop.one_ack,
        )
        if pop.ahead and delivery.parts:
            connection.aheads[pop.queue] = (actor.queue.incarnation, delivery.lease)
        connection.send(delivery_frame(actor, delivery, correlation))

    connection.spawn(work(), correlation)


def _pop_at_once(connection: Connection, actor: QueueActor, pop: commands.Pop) -> Delivery | None:
    """What is ready goes out without a task, and before the commit that may be about to run.
    None: it has to wait for something, or for its turn."""
    if not actor.queue.ready or len(actor.room) or not connection.writable:
        return None
    if not 0 < pop.count <= POP_MESSAGES_MAX:
        return None
    taken: list[Delivery] = []
    waiter = Waiter(
        pop.count,
        taken.append,
        lambda _: None,
        standing=False,
        consumer=connection.name,
        bytes_max=pop.bytes_max,
        visibility_ms=pop.visibility_ms,
        one_ack=pop.one_ack,
    )
    actor.room.enter(waiter)
    actor.serve()
    actor.room.leave(waiter)
    return taken[0] if taken else None


def _ack(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    connection.answer(receipts.ack(actor, acked.ranges), correlation, commands.pack)


def _received(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    connection.reply(correlation, commands.pack(receipts.received(actor, acked.ranges)))


def _give_back(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    connection.answer(receipts.give_back(actor, acked.ranges), correlation, commands.pack)


def _nack(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    nack: commands.Nack = commands.unpack(head, commands.Nack)
    actor = connection.engine.queue(nack.queue)
    future = receipts.nack(actor, nack.ranges, nack.delay_ms, nack.reason)
    connection.answer(future, correlation, commands.pack)


def _extend(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    extend: commands.Extend = commands.unpack(head, commands.Extend)
    actor = connection.engine.queue(extend.queue)
    future = receipts.extend(actor, extend.ranges, extend.timeout_ms)
    connection.answer(future, correlation, commands.pack)


def _subscribe(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    connection.subscriptions.open(commands.unpack(head, commands.Subscribe))
    connection.reply(correlation)


def _unsubscribe(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    wanted = commands.unpack_unsubscribe(head)
    connection.subscriptions.close_one(wanted.subscription, wanted.keep)
    connection.reply(correlation)


def _credit(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    connection.subscriptions.grant(commands.unpack_credit(head))


def _publish(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    publish: commands.Publish = commands.unpack(head, commands.Publish)
    actor = connection.engine.topic(publish.topic)
    future = actor.publish(_batch(body), publish.producer, publish.number)
    connection.answer(future, correlation, commands.pack)


def _read(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    wanted: commands.Read = commands.unpack(head, commands.Read)
    actor = connection.engine.topic(wanted.topic)

    async def work() -> None:
        offset = wanted.offset
        if wanted.time_ms is not None:
            offset = await actor.offset_of(Start(time_ms=wanted.time_ms))
        reading = await actor.read(
            offset,
            wanted.count,
            bytes_max=wanted.bytes_max,
            strict=wanted.strict,
            wait_ms=wanted.wait_ms,
        )
        parts = encode_parts(wire_parts(reading.parts))
        connection.reply_with(correlation, commands.pack(reading.next), parts)

    connection.spawn(work(), correlation)


def _follow(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    may_read = connection.caller.may_read if connection.caller.is_bound else None

    async def work() -> None:
        # Here and not before, and no longer than needed: with the offsets of thousands of topics
        # it is large, and hundreds of these may come at once.
        nonlocal head
        wanted: commands.Follow = commands.unpack(head, commands.Follow)
        following = connection.engine.follow(
            wanted.pattern,
            wanted.offsets,
            wanted.count,
            wanted.bytes_max,
            wanted.wait_ms,
            may_read,
        )
        head = b""
        del wanted
        found = await following
        topics, pieces = [], []
        for name, reading in found:
            parts = encode_parts(wire_parts(reading.parts))
            topics.append(commands.FollowedTopic(name, reading.next, sum(map(len, parts))))
            pieces += parts
        connection.reply_with(correlation, commands.pack(commands.Followed(topics)), pieces)

    connection.spawn(work(), correlation)


def _call(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    wanted: commands.Call = commands.unpack(bytes(body), commands.Call)
    connection.spawn(call(connection, correlation, wanted), correlation)


def _batch(body: memoryview) -> Batch:
    batch, end = decode_batch(body)
    if end != len(body):
        raise ProtocolError("there are bytes behind the batch")
    if batch.origins is not None or batch.created is not None:
        raise InvalidArgument(
            "a client cannot say where a message came from or when", "push it without"
        )
    return batch


HANDLERS: dict[Kind, Handler] = {
    Kind.PUSH: _push,
    Kind.POP: _pop,
    Kind.ACK: _ack,
    Kind.RECEIVED: _received,
    Kind.GIVE_BACK: _give_back,
    Kind.NACK: _nack,
    Kind.EXTEND: _extend,
    Kind.SUBSCRIBE: _subscribe,
    Kind.UNSUBSCRIBE: _unsubscribe,
    Kind.CREDIT: _credit,
    Kind.PUBLISH: _publish,
    Kind.READ: _read,
    Kind.FOLLOW: _follow,
    Kind.CALL: _call,
}
