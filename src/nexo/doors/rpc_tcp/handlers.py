"""What each kind of frame does. A handler that need not wait replies at once or through a future
of the engine; one that must wait is spawned."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from nexo.doors.rpc_tcp.calls import call
from nexo.doors.rpc_tcp.deliveries import delivery_frame, wire_parts
from nexo.engine.types import Delivery
from nexo.vocabulary.limits import REASON_CHARS_MAX, RECEIPT_RANGES_STEP
from nexo.vocabulary.start import Start
from nexo.vocabulary.states import State
from nexo.wire import commands
from nexo.wire.columns import decode_given, encode_parts
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.followers import Found
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Accepted

    Ranges = list[tuple[int, int, int]]  # lease, first, end
    Handler = Callable[[Connection, int, bytes, memoryview], None]


def _push(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    push = commands.unpack_push(head)
    actor = connection.engine.queue(push.queue)
    batch = decode_given(body)
    incarnation = actor.queue.incarnation

    def encode(accepted: Accepted) -> bytes:
        return commands.pack_accepted(incarnation, accepted.duplicates, accepted.ranges)

    future = actor.push(batch, push.producer, push.number, push.checksum)
    connection.answer(future, correlation, encode)


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
        try:
            delivery = await actor.pop(
                pop.count,
                wait_ms=pop.wait_ms,
                bytes_max=pop.bytes_max,
                consumer=connection.name,
                visibility_ms=pop.visibility_ms,
                one_ack=pop.one_ack,
            )
        except asyncio.CancelledError:
            if not connection.is_left:
                raise
            delivery = Delivery(0, 0, State.READY, [])
        if pop.ahead and delivery.parts:
            connection.aheads[pop.queue] = (actor.queue.incarnation, delivery.lease)
        connection.send(delivery_frame(actor, delivery, correlation))

    connection.spawn_waiting(work(), correlation)


def _pop_at_once(connection: Connection, actor: QueueActor, pop: commands.Pop) -> Delivery | None:
    """What is ready goes out without a task, and before the commit that may be about to run.
    None: it has to wait for something, or for its turn."""
    if not actor.queue.ready or not connection.writable:
        return None
    return actor.pop_at_once(
        pop.count, pop.bytes_max, connection.name, pop.visibility_ms, pop.one_ack
    )


def _ack(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    connection.note_acks(actor, acked.ranges)
    _settle(connection, correlation, acked.ranges, actor.ack_ranges)


def _received(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    if len(acked.ranges) <= RECEIPT_RANGES_STEP:
        connection.reply(correlation, commands.pack(actor.received_ranges(acked.ranges)))
        return

    async def received(ranges: Ranges) -> Any:
        return actor.received_ranges(ranges)

    _settle(connection, correlation, acked.ranges, received)


def _give_back(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    acked = commands.unpack_ranges(head)
    actor = connection.engine.queue(acked.queue)
    _settle(connection, correlation, acked.ranges, actor.give_back_ranges)


def _nack(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    nack: commands.Nack = commands.unpack(head, commands.Nack)
    commands.check_ranges(nack.ranges)
    actor = connection.engine.queue(nack.queue)
    delay_ms, reason = nack.delay_ms, nack.reason[:REASON_CHARS_MAX]

    def apply(ranges: Ranges) -> asyncio.Future[Any]:
        return actor.nack_ranges(ranges, delay_ms, reason)

    _settle(connection, correlation, nack.ranges, apply)


def _extend(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    extend: commands.Extend = commands.unpack(head, commands.Extend)
    commands.check_ranges(extend.ranges)
    actor = connection.engine.queue(extend.queue)
    timeout_ms = extend.timeout_ms

    def apply(ranges: Ranges) -> asyncio.Future[Any]:
        return actor.extend_ranges(ranges, timeout_ms)

    _settle(connection, correlation, extend.ranges, apply)


def _settle(
    connection: Connection,
    correlation: int,
    ranges: Ranges,
    apply: Callable[[Ranges], Awaitable[Any]],
) -> None:
    """What a consumer says of its messages. Of very many, others get their turn in between."""
    if len(ranges) <= RECEIPT_RANGES_STEP:
        connection.answer(cast("asyncio.Future[Any]", apply(ranges)), correlation, commands.pack)
        return

    async def work() -> None:
        refused: list[Any] = []
        for at in range(0, len(ranges), RECEIPT_RANGES_STEP):
            refused += await apply(ranges[at : at + RECEIPT_RANGES_STEP])
            await asyncio.sleep(0)
        connection.reply(correlation, commands.pack(refused))

    connection.spawn(work(), correlation)


def _subscribe(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    connection.subscriptions.open(connection, commands.unpack(head, commands.Subscribe))
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
    batch = decode_given(body)
    future = actor.publish(batch, publish.producer, publish.number, publish.checksum)
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
        head_of_answer, pieces = encode_followed(await following)
        connection.reply_with(correlation, head_of_answer, pieces)

    connection.spawn(work(), correlation)


def encode_followed(found: list[Found]) -> tuple[bytes, list[bytes | memoryview]]:
    """The head and the body of an answer to FOLLOW."""
    topics, pieces = [], []
    for name, reading in found:
        parts = encode_parts(wire_parts(reading.parts))
        topics.append(commands.FollowedTopic(name, reading.next, sum(map(len, parts))))
        pieces += parts
    return commands.pack(commands.Followed(topics)), pieces


def _call(connection: Connection, correlation: int, head: bytes, body: memoryview) -> None:
    wanted: commands.Called = commands.unpack(body, commands.Called)
    connection.spawn(call(connection, correlation, wanted), correlation)


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
