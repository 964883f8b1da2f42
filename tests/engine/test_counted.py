"""What queues and topics keep besides payloads is counted: each kind of it, and no longer than it
is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor

COUNT = 200


async def leases(queue: QueueActor) -> None:
    await queue.push(numbered(COUNT))
    for _ in range(COUNT):
        await queue.pop(1)


async def scheduled(queue: QueueActor) -> None:
    for number in range(COUNT):
        later = msgspec.structs.replace(bodies("a"), delay_ms=60_000 + 1_000 * number)
        await queue.push(later)


async def spans(queue: QueueActor) -> None:
    """Every other message is given back: the line is as many pieces."""
    await queue.push(numbered(2 * COUNT))
    popped = [await queue.pop(1, one_ack=True) for _ in range(2 * COUNT)]
    for one, other in zip(popped[::2], popped[1::2], strict=True):
        await ack(queue, one)
        await nack(queue, other)


async def groups(queue: QueueActor) -> None:
    for number in range(COUNT):
        await queue.push(msgspec.structs.replace(bodies("a"), groups=str(number)))


@pytest.mark.parametrize(
    ("fill", "settings", "bytes_min"),
    [
        (leases, QueueSettings(), 450),
        (scheduled, QueueSettings(), 280),
        (spans, QueueSettings(), 280),
        (groups, QueueSettings(fifo=True), 500),
    ],
)
async def test_each_kind_is_counted_while_it_is_there(
    rig: Rig,
    fill: Callable[[QueueActor], Awaitable[None]],
    settings: QueueSettings,
    bytes_min: int,
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", settings)
    before = await counted(engine)
    await fill(queue)
    assert await counted(engine) - before > COUNT * bytes_min
    await queue.purge()
    assert await counted(engine) - before < COUNT * 10


async def test_an_archive_is_counted(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    before = await counted(engine)
    for number in range(20):
        await topic.publish(numbered(10, 10 * number, 30_000))
    assert await counted(engine) - before > 10 * 500
    await engine.delete_topic("t")
    assert await counted(engine) == before


async def test_what_is_deleted_while_it_waits_to_be_counted_does_not_count(rig: Rig) -> None:
    engine = await rig.start()
    names = [f"q{number}" for number in range(50)]
    before = await counted(engine)
    for name in names:
        await engine.create_queue(name)
    for name in names:
        await engine.queue(name).push(numbered(3))
    engine.memory.give_back()  # now each waits for its turn
    for name in names:
        await engine.delete_queue(name)
    assert await counted(engine) == before


async def test_what_is_loaded_anew_is_counted_anew(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(fifo=True))
    await groups(queue)
    before = await counted(engine)
    rig.journal.refuse_commit = lambda _: OSError("Input/output error")
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    rig.journal.refuse_commit = lambda _: None
    await asyncio.sleep(10)
    assert engine.refusal is None
    assert await counted(engine) == kept(engine)
    assert abs(kept(engine) - before) < before // 10


async def counted(engine: Engine) -> int:
    await asyncio.sleep(1)  # then it is counted at the latest
    await settle()
    assert engine.memory.bookkeeping_bytes == kept(engine)
    return engine.memory.bookkeeping_bytes


def kept(engine: Engine) -> int:
    actors: list[QueueActor | TopicActor] = [*engine.queues.values(), *engine.topics.values()]
    return sum(actor.bookkeeping_bytes for actor in actors)
