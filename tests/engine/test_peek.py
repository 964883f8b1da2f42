"""Looking into a queue without copying it: a message by its number, many by their beginnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.engine.peek import Glimpse, find, glimpses
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.identity import first_seq, parse_message_id
from nexo.vocabulary.limits import PEEK_HEAD_BYTES
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from tests.engine.rig import Rig

PLENTY = 2**30


def numbers(found: list[Glimpse]) -> list[int]:
    return [each.message.seq for each in found]


async def mixed(rig: Rig) -> QueueActor:
    """Three priorities; some are in flight, some scheduled, and all are on disk alone."""
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_attempts=1))
    for priority in (0, 9, 4):
        bodies = batch_of([f"{priority} {number} ".encode() + b"x" * 999 for number in range(20)])
        await queue.push(msgspec.structs.replace(bodies, priority=priority))
    await queue.push(msgspec.structs.replace(batch_of([b"later"]), delay_ms=60_000))
    await queue.pop(5)
    return (await rig.restart()).queue("q")


async def test_page_by_page_everything_is_seen_once_and_in_order(rig: Rig) -> None:
    queue = await mixed(rig)
    whole = numbers(await glimpses(queue, 100, PLENTY))
    assert whole == [each.seq for each in await queue.peek(100)]
    assert len(whole) == 61
    for limit in (1, 7, 20, 61):
        paged: list[int] = []
        while found := await glimpses(queue, limit, PLENTY, paged[-1] if paged else None):
            assert len(found) <= limit
            paged += numbers(found)
        assert paged == whole


async def test_a_glimpse_tells_all_but_the_whole_body(rig: Rig) -> None:
    queue = await mixed(rig)
    for seen, message in zip(
        await glimpses(queue, 100, PLENTY), await queue.peek(100), strict=True
    ):
        head = message.body[:PEEK_HEAD_BYTES]
        assert seen.message == msgspec.structs.replace(message, body=head)
        assert seen.size == len(message.body)
        assert parse_message_id(seen.own_id) == (queue.queue.incarnation, message.seq)


async def test_large_bodies_end_a_look_early(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    for _ in range(40):
        await queue.push(batch_of([b"x" * 10_000] * 4))
    queue = (await rig.restart()).queue("q")
    rig.journal.fetched.clear()
    assert len(await glimpses(queue, 1_000, 60_000)) == 6
    assert len(rig.journal.fetched) < 40, "all was read, to look at some"
    assert len(await glimpses(queue, 1_000, 1)) == 1, "one is always seen"


async def test_a_message_is_found_by_its_number_however_far_back(rig: Rig) -> None:
    queue = await mixed(rig)
    for message in await queue.peek(100):
        assert await find(queue, message.seq) == message
    for seq in (first_seq(9) + 20, first_seq(1), 2**60):
        assert await find(queue, seq) is None
    delivery = await queue.pop(1)
    (message,) = queue.messages(delivery)
    found = await find(queue, message.seq)
    assert found is not None
    assert found.state is State.SENT
    queue.received(message.lease, message.seq, message.seq + 1)
    await queue.ack(message.lease, message.seq, message.seq + 1)
    assert await find(queue, message.seq) is None


async def test_a_dead_letter_keeps_its_id_and_has_one_of_its_own(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    await queue.push(batch_of([b"x"]))
    (message,) = queue.messages(await queue.pop(1))
    await queue.nack(message.lease, message.seq, message.seq + 1, reason="no")
    await engine.drain()
    letters = engine.queue("q_dlq")
    (seen,) = await glimpses(letters, 10, PLENTY)
    assert seen.message.id == message.id != seen.own_id
    assert seen.message.dead_letter is not None
    assert seen.message.dead_letter.reason == "no"
