"""What is deleted is free at once. A search for garbage would have to look at everything there is
to find it, and with a hundred thousand queues that stops the broker for seconds."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest

from nexo.engine.engine import Engine
from nexo.engine.views import Wanted
from nexo.machine.claims import Claim
from nexo.vocabulary.settings import Backoff, QueueSettings
from nexo.vocabulary.start import EARLIEST
from tests.engine.rig import Rig, ack, bodies, nack, numbered

Way = Callable[[Engine], Awaitable[None]]


@pytest.fixture(autouse=True)
def _nothing_is_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def garbage() -> list[str]:
    """Of ours, what only a search finds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
    gc.set_debug(0)
    gc.garbage.clear()
    return sorted(name for name in found if name.startswith("nexo."))


async def _plain(engine: Engine) -> None:
    queue = await engine.create_queue("plain")
    await queue.push(numbered(100, size=100))
    await queue.push(bodies("one"))
    await ack(queue, await queue.pop(30, one_ack=True))
    delivery = await queue.pop(20)
    queue.received(delivery.lease, delivery.parts[0].first, delivery.parts[0].first + 5)
    await nack(queue, await queue.pop(3, one_ack=True))
    await queue.peek(10)
    view = queue.views.open(Wanted())
    await queue.views.read(view.snapshot, 0, 10, 1_000)


async def _empty(engine: Engine) -> None:
    await engine.create_queue("empty")


async def _settings(engine: Engine) -> None:
    settings = QueueSettings(
        fifo=True, archive=True, deduplication="content", backoff=Backoff(), max_attempts=1
    )
    queue = await engine.create_queue("ordered.fifo", settings)
    for number in range(20):
        await queue.push(numbered(1, number))
    await nack(queue, await queue.pop(5, one_ack=True), "no good")
    await queue.pop(1, one_ack=True)
    await asyncio.sleep(0.1)


async def _waiting(engine: Engine) -> None:
    queue = await engine.create_queue("waiting")
    pop = asyncio.ensure_future(queue.pop(1, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await queue.push(bodies("one"))
    await pop
    told: list[object] = []
    waiter = queue.subscribe(10, told.append, told.append)
    await queue.push(numbered(5))
    queue.unsubscribe(waiter)
    queue.subscribe(10, told.append, told.append)
    await queue.push(numbered(5))
    pop = asyncio.ensure_future(queue.pop(1, wait_ms=5))
    await pop


async def _claimed(engine: Engine) -> None:
    queue = await engine.create_queue("claimed")
    await queue.push(numbered(50))
    epoch = await queue.claims.open("query")
    await queue.claims.claim("query", epoch, 0, 20, 60_000)
    await queue.claims.seal("query", epoch, 1)
    await queue.claims.read("query", epoch, 1)
    queue.claims.keep("query", epoch, 60_000)
    await queue.claims.claim("query", epoch, 1, 20, 60_000)


async def _bound(engine: Engine) -> None:
    topic = await engine.create_topic("news")
    await topic.publish(numbered(10))
    await engine.bind("news", "reader", create=True, start=EARLIEST)
    await topic.publish(numbered(10))
    await topic.read(0)
    reading = asyncio.ensure_future(topic.read(20, wait_ms=1_000))
    await asyncio.sleep(0.01)
    await topic.publish(numbered(1))
    await reading


async def _read_back(engine: Engine) -> None:
    queue = await engine.create_queue("long")
    for number in range(40):
        await queue.push(numbered(100, number * 100, size=1_000))
    while (delivery := await queue.pop(500, one_ack=True)).parts:
        await ack(queue, delivery)


async def _purged(engine: Engine) -> None:
    queue = await engine.create_queue("purged")
    await queue.push(numbered(500))
    await queue.pop(10)
    await queue.purge()
    await queue.push(numbered(10))


@pytest.mark.parametrize(
    "use", [_empty, _plain, _settings, _waiting, _claimed, _bound, _read_back, _purged]
)
async def test_nothing_deleted_waits_for_the_collector(telling: Rig, use: Way) -> None:
    engine = await telling.start(memory_limit_bytes=1024 * 1024)
    await engine.create_queue("other")
    gc.collect()  # what other tests have left
    await use(engine)
    for name in list(engine.queues):
        await engine.delete_queue(name)
    for name in [each for each in engine.topics if not each.startswith("nexo.")]:
        await engine.delete_topic(name)
    await asyncio.sleep(2)
    assert garbage() == []


async def test_the_memory_of_deleted_queues_comes_back(rig: Rig) -> None:
    """Also of those that were deleted in the same breath as they were made: their last commit ends
    after that, and must not count them among the living again."""
    engine = await rig.start()

    async def come_and_go(count: int) -> None:
        names = [f"queue-{number}" for number in range(count)]
        actors = await asyncio.gather(*[engine.create_queue(name) for name in names])
        await asyncio.gather(*[actor.push(bodies("one")) for actor in actors])
        del actors
        await asyncio.gather(*[engine.delete_queue(name) for name in names])
        rig.journal.commits.clear()
        await asyncio.sleep(2)

    await come_and_go(500)
    before = sys.getallocatedblocks()
    await come_and_go(500)
    left = sys.getallocatedblocks() - before
    assert left < 500, f"{left} blocks for 500 queues"  # a queue takes more than 50


async def test_what_still_waits_when_its_queue_is_deleted_is_told(rig: Rig) -> None:
    """A part of an actor does not keep it alive; whoever waits in one does."""
    engine = await rig.start()
    queue = await engine.create_queue("orders")
    epoch = await queue.claims.open("query")
    claim = asyncio.ensure_future(queue.claims.claim("query", epoch, 0, 1, 60_000, wait_ms=500))
    pop = asyncio.ensure_future(queue.pop(1, wait_ms=60_000))
    await asyncio.sleep(0.01)
    del queue
    await engine.delete_queue("orders")
    results = await asyncio.gather(claim, pop, return_exceptions=True)
    assert [getattr(each, "code", each) for each in results] == [Claim(0, 0, 0), "queue_not_found"]
