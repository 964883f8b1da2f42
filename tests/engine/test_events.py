"""`nexo.events`: the life of messages, told in the commit that brought it about."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.engine import events as events_actor
from nexo.vocabulary.errors import InvalidArgument, NexoError, ReadOnly
from nexo.vocabulary.limits import EVENTS_PAUSE_MS, EVENTS_RESIDENT_BYTES
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.states import EventKind
from tests.engine.rig import Rig, ack, bodies, nack, numbered
from tests.engine.told import check_totals, sums, told

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor


async def test_a_life_from_push_to_ack(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(40))
    delivery = await queue.pop(40, consumer="me")
    queue.received(delivery.lease, 0, 40)
    await queue.nack(delivery.lease, 0, 1, 0, "no luck")
    await queue.ack(delivery.lease, 1, 40)
    events = await told(engine)
    assert [(e.kind, e.first_seq, e.count, e.attempts, e.consumer, e.reason) for e in events] == [
        (EventKind.PUSHED, 0, 40, 0, "", ""),
        (EventKind.DELIVERED, 0, 40, 1, "me", ""),
        (EventKind.RECEIVED, 0, 40, 1, "me", ""),
        (EventKind.NACKED, 0, 1, 1, "me", "no luck"),
        (EventKind.ACKED, 1, 39, 1, "me", ""),
    ]
    assert {e.queue for e in events} == {"q"}
    assert all(e.created_ms <= e.at_ms for e in events)
    await check_totals(engine)


async def test_events_bring_about_no_events(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("x"))
    await queue.pop()
    await asyncio.sleep(1)
    commits = len(telling.journal.commits)
    await asyncio.sleep(5)
    assert len(telling.journal.commits) == commits, "there is no end to it"


async def test_dead_letters_redrive_and_purge(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    await queue.push(numbered(10))
    await nack(queue, await queue.pop(10, one_ack=True), "broken")
    await (await engine.redrive("q_dlq")).finished
    await queue.purge()
    events = await told(engine)
    assert sums(events, "q") == {
        "pushed": 20,
        "delivered": 10,
        "nacked": 10,
        "dead_lettered": 10,
        "purged": 10,
    }
    assert sums(events, "q_dlq") == {"pushed": 10, "redriven": 10}
    assert {e.reason for e in events if e.kind is EventKind.DEAD_LETTERED} == {"broken"}
    await check_totals(engine)


async def test_timeouts_and_retention_give_their_reasons(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue(
        "q", QueueSettings(retention_ms=20_000, visibility_timeout_ms=2_000)
    )
    await queue.push(bodies("a"))
    await queue.pop(one_ack=True)
    await asyncio.sleep(30)
    kinds = (EventKind.TIMED_OUT, EventKind.EXPIRED)
    assert [(e.kind, e.reason) for e in await told(engine) if e.kind in kinds] == [
        (EventKind.TIMED_OUT, "no processing ack within the visibility timeout"),
        (EventKind.EXPIRED, "retention"),
    ]
    assert (queue.info().timed_out, queue.info().expired) == (1, 1)
    await check_totals(engine)


async def test_what_was_given_back_did_not_fail(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    delivery = await queue.pop()
    await queue.give_back(delivery.lease, 0, 1)
    counted = sums(await told(engine), "q")
    assert (counted["returned"], counted["nacked"]) == (1, 0)
    await check_totals(engine)


async def test_bound_queues_and_claims_are_told_of(telling: Rig) -> None:
    engine = await telling.start()
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q")
    await engine.bind("t", "q")
    await topic.publish(numbered(50))
    epoch = await queue.claims.open("spark")
    claim = await queue.claims.claim("spark", epoch, 0, 100, 60_000)
    await queue.claims.seal("spark", epoch, claim.number)
    await queue.claims.ack("spark", epoch, claim.number)
    events = await told(engine)
    assert sums(events, "q") == {"pushed": 50, "delivered": 50, "acked": 50}
    assert {e.consumer for e in events if e.kind is not EventKind.PUSHED} == {"spark"}
    await check_totals(engine)


async def test_a_queue_can_be_left_out(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q", QueueSettings(events=False))
    await queue.push(bodies("a"))
    assert await told(engine) == []
    await engine.edit_queue("q", QueueSettings())
    await queue.push(bodies("b"))
    assert [e.first_seq for e in await told(engine)] == [1]
    pushed = queue.push(bodies("c"))
    delivery = await queue.pop(one_ack=True)
    await engine.edit_queue("q", QueueSettings(events=False))
    await pushed
    await ack(queue, delivery)
    kinds = [e.kind for e in await told(engine)]
    assert kinds == [EventKind.PUSHED, EventKind.DELIVERED], "what came before is still told"


async def test_a_deduplicated_push_names_the_message_it_repeats(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q", QueueSettings(deduplication="content"))
    await queue.push(bodies("a", "b"))
    await queue.push(bodies("b", "c", "b"))
    repeated = [e for e in await told(engine) if e.kind is EventKind.DEDUPLICATED]
    assert [(e.first_seq, e.count) for e in repeated] == [(1, 1), (1, 1)]
    await check_totals(engine)


async def test_the_topic_is_the_brokers_own(telling: Rig) -> None:
    engine = await telling.start()
    await engine.create_queue("q")
    with pytest.raises(InvalidArgument, match="cannot be bound"):
        await engine.bind(EVENTS_TOPIC, "q")
    with pytest.raises(InvalidArgument, match="is a system topic"):
        await engine.topic(EVENTS_TOPIC).publish(bodies("x"))
    with pytest.raises(InvalidArgument, match="is a system topic"):
        await engine.delete_topic(EVENTS_TOPIC)


async def test_its_retention_is_a_setting_of_the_broker(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    for number in range(10):
        await queue.push(bodies(str(number)))
    assert engine.topic(EVENTS_TOPIC).topic.settings == telling.events
    telling.events = TopicSettings(retention_ms=5_000)
    engine = await telling.restart()
    assert engine.topic(EVENTS_TOPIC).topic.settings == telling.events
    await asyncio.sleep(6)
    assert await told(engine) == []
    engine = await telling.restart()
    assert engine.topic(EVENTS_TOPIC).info().start == 10


async def test_a_journal_from_before_there_were_events(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    rig.events = TopicSettings()
    engine = await rig.restart()
    await engine.queue("q").push(bodies("b"))
    assert [e.first_seq for e in await told(engine)] == [1]
    rig.events = None
    engine = await rig.restart()
    await engine.queue("q").push(bodies("c"))
    assert [e.first_seq for e in await told(engine)] == [1]


async def test_little_of_it_stays_in_memory(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(10_000))
    reason = "x" * 1_000
    for _ in range(10):
        delivery = await queue.pop(5_000, one_ack=True)
        for part in delivery.parts:
            for seq in range(part.first, part.first + part.count, 2):
                queue.nack(delivery.lease, seq, seq + 1, 0, reason)
        await engine.drain()
    log = engine.topic(EVENTS_TOPIC).topic.log
    assert engine.topic(EVENTS_TOPIC).info().kept_bytes > EVENTS_RESIDENT_BYTES
    assert log.resident_bytes <= EVENTS_RESIDENT_BYTES
    await check_totals(engine)


@pytest.mark.parametrize("pause_ms", [0, EVENTS_PAUSE_MS])
@pytest.mark.parametrize("seed", range(8))
async def test_events_add_up_to_the_totals(
    telling: Rig, seed: int, pause_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random lives with restarts in between; with crashes if no event waits for others."""
    monkeypatch.setattr("nexo.vocabulary.limits.EVENTS_PAUSE_MS", pause_ms)
    random = Random(seed)
    engine = await telling.start()
    settings = QueueSettings(
        max_attempts=2, visibility_timeout_ms=400, retransmit_timeout_ms=300, retention_ms=60_000
    )
    for name in ("a", "b"):
        await engine.create_queue(name, settings)
    await engine.create_topic("t")
    await engine.bind("t", "b")
    for _ in range(120):
        with contextlib.suppress(NexoError):
            await _something(engine, random)
        if random.random() < 0.03:
            crashes = pause_ms == 0 and random.random() < 0.5
            engine = await (telling.crash() if crashes else telling.restart())
    await check_totals(engine)
    await asyncio.sleep(70)
    await check_totals(engine)
    engine = await telling.crash()
    await check_totals(engine)


async def _something(engine: Engine, random: Random) -> None:
    queue: QueueActor = random.choice(list(engine.queues.values()))
    act = random.randrange(12)
    if act < 3:
        await queue.push(numbered(random.choice([1, 3, 50])))
    elif act < 5:
        await engine.topic("t").publish(numbered(random.choice([1, 40])))
    elif act == 5:
        await asyncio.sleep(random.choice([0.01, 0.2, 1.0]))
    elif act == 6 and "a_dlq" in engine.queues:
        await (await engine.redrive("a_dlq")).finished
    elif act == 7 and random.random() < 0.2:
        await queue.purge()
    else:
        delivery = await queue.pop(random.choice([1, 7, 60]), one_ack=random.random() < 0.5)
        if not delivery.parts:
            return
        first = delivery.parts[0].first
        middle = first + max(1, delivery.parts[0].count // 2)
        end = first + delivery.parts[0].count
        queue.received(delivery.lease, first, end)
        if random.random() < 0.7:
            await queue.ack(delivery.lease, first, middle)
        if middle < end and random.random() < 0.7:
            await queue.nack(delivery.lease, middle, end, random.choice([0, 50]), "bad luck")


async def test_very_many_are_told_with_several_commits(
    telling: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order: telling all of them at once would be a long step."""
    monkeypatch.setattr(events_actor, "EVENTS_PUBLISHED_MAX", 50)
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(1_000))
    delivery = await queue.pop(1_000, one_ack=True)
    await asyncio.sleep(1)
    owner, before = engine.topic(EVENTS_TOPIC).topic.log, len(telling.journal.commits)
    for seq in range(0, 1_000, 2):
        queue.nack(delivery.lease, seq, seq + 1, 0)
    await asyncio.sleep(2)
    assert owner.end > 500, "they come without anybody asking for them"
    nacked = [each.first_seq for each in await told(engine) if each.kind is EventKind.NACKED]
    assert nacked == list(range(0, 1_000, 2))
    commits = telling.journal.commits[before:]
    assert max(batch.count for commit in commits for _, batch in commit.rows) == 50


async def test_too_many_that_wait_are_dropped_and_counted(
    telling: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest: while the disk takes no payloads, acks go on."""
    monkeypatch.setattr(events_actor, "EVENTS_PENDING_MAX", 20)
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(100))
    delivery = await queue.pop(100, one_ack=True)
    await asyncio.sleep(1)
    assert engine.events_waiting == engine.meters.events_dropped == 0
    full = ReadOnly("the disk is full", "make room")
    telling.journal.refuse_commit = lambda commit: full if commit.rows else None
    with pytest.raises(ReadOnly):
        await queue.push(numbered(1))
    await asyncio.sleep(3)  # it is loaded anew, and still takes no payloads
    assert engine.refusal is not None
    for seq in range(50):
        await queue.ack(delivery.lease, seq, seq + 1)
    assert engine.events_waiting == 20
    assert engine.meters.events_dropped == 30
    telling.journal.refuse_commit = lambda commit: None
    await asyncio.sleep(3)
    acked = [each.first_seq for each in await told(engine) if each.kind is EventKind.ACKED]
    assert acked == list(range(30, 50))
    assert engine.events_waiting == 0
