"""`nexo.events`: the life of messages, told in the commit that brought it about."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.vocabulary.errors import InvalidArgument, NexoError, ReadOnly
from nexo.vocabulary.events import Event, decode_event
from nexo.vocabulary.limits import EVENTS_PAUSE_MS, EVENTS_RESIDENT_BYTES
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.states import EventKind
from tests.engine.rig import Rig, ack, bodies, bodies_of, nack, numbered
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.journal.port import Commit

KEPT = TopicSettings(retention_ms=24 * 3_600_000)


@pytest.fixture
def telling(rig: Rig) -> Rig:
    rig.events = KEPT
    return rig


async def told(engine: Engine) -> list[Event]:
    await engine.drain()
    events: list[Event] = []
    offset = 0
    while True:
        reading = await engine.topic(EVENTS_TOPIC).read(offset, 1_000)
        if not reading.parts:
            return events
        events += [decode_event(body) for part in reading.parts for body in bodies_of(part)]
        offset = reading.next


def sums(events: list[Event], queue: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for event in events:
        if event.queue == queue:
            counted[event.kind.value] += event.count
    return counted


async def check_totals(engine: Engine) -> None:
    """What the events add up to is what the figures of every queue say."""
    events = await told(engine)
    for queue in engine.queues.values():
        info, counted = queue.info(), sums(events, queue.name)
        for kind in ("pushed", "delivered", "acked", "nacked", "expired", "dead_lettered"):
            figure = getattr(info, kind)
            assert counted[kind] == figure, f"{queue.name}: {counted[kind]} {kind}, not {figure}"
        left = sum(counted[kind] for kind in ("acked", "dead_lettered", "redriven", "purged"))
        left += sum(
            event.count
            for event in events
            if event.queue == queue.name and event.reason == "retention"
        )
        assert info.depth == counted["pushed"] - left, f"{queue.name}: {counted}"


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


async def test_events_are_part_of_the_commit_that_they_tell_of(telling: Rig) -> None:
    engine = await telling.start()
    queues = [await engine.create_queue(name) for name in ("a", "b")]
    await asyncio.sleep(1)
    before = len(telling.journal.commits)
    await asyncio.gather(*[queue.push(bodies("x")) for queue in queues])
    (commit,) = telling.journal.commits[before:]
    assert len(commit.rows) == 3, "a row for each queue, and one for what both of them tell"
    telling.runner.is_held = True
    queues[0].push(bodies("never confirmed"))
    await asyncio.sleep(0.1)
    engine = await telling.crash()
    assert sums(await told(engine), "a") == {"pushed": 1}


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
    expired = [e for e in await told(engine) if e.kind is EventKind.EXPIRED]
    reasons = [e.reason for e in expired]
    assert reasons == ["no processing ack within the visibility timeout", "retention"]
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
    with pytest.raises(InvalidArgument, match="belongs to the broker"):
        await engine.topic(EVENTS_TOPIC).publish(bodies("x"))
    with pytest.raises(InvalidArgument, match="belongs to the broker"):
        await engine.delete_topic(EVENTS_TOPIC)


async def test_its_retention_is_a_setting_of_the_broker(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    for number in range(10):
        await queue.push(bodies(str(number)))
    assert engine.topic(EVENTS_TOPIC).topic.settings == KEPT
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
    rig.events = KEPT
    engine = await rig.restart()
    await engine.queue("q").push(bodies("b"))
    assert [e.first_seq for e in await told(engine)] == [1]
    rig.events = None
    engine = await rig.restart()
    await engine.queue("q").push(bodies("c"))
    assert [e.first_seq for e in await told(engine)] == [1]


async def test_a_full_disk_lets_acks_go_on_and_events_wait(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(50))
    await asyncio.sleep(1)
    is_full = [True]

    def refuse(commit: Commit) -> Exception | None:
        return ReadOnly("the disk is full") if commit.rows and is_full[0] else None

    telling.journal.refuse_commit = refuse
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(0.5)
    for _ in range(3):
        await ack(queue, await queue.pop(10, one_ack=True))
    assert sums(await told(engine), "q") == {"pushed": 50}
    is_full[0] = False
    await asyncio.sleep(3)
    assert sums(await told(engine), "q") == {"pushed": 50, "delivered": 30, "acked": 30}
    await check_totals(engine)


async def test_a_commit_that_failed_is_not_told_of(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    failing = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: failing.pop() if failing else None
    with pytest.raises(ReadOnly):
        await queue.push(numbered(40))
    await asyncio.sleep(5)
    await queue.push(bodies("a"))
    assert sums(await told(engine), "q") == {"pushed": 1}
    await check_totals(engine)


async def test_the_first_commit_may_fail(telling: Rig) -> None:
    """The topic itself is created by a commit."""
    engine = await telling.start()
    failing = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: failing.pop() if failing else None
    await asyncio.sleep(5)
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    assert sums(await told(engine), "q") == {"pushed": 1}


async def test_little_of_it_stays_in_memory(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(10_000))
    reason = "x" * 1_000
    for _ in range(4):
        delivery = await queue.pop(5_000, one_ack=True)
        for part in delivery.parts:
            for seq in range(part.first, part.first + part.count, 2):
                queue.nack(delivery.lease, seq, seq + 1, 0, reason)
        await engine.committer.drain()
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
    monkeypatch.setattr("nexo.engine.events.EVENTS_PAUSE_MS", pause_ms)
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


async def test_a_busy_broker_tells_of_several_commits_at_once(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await asyncio.sleep(1)
    before = len(telling.journal.commits)
    for _ in range(100):
        await queue.push(bodies("x"))
    rows = [len(commit.rows) for commit in telling.journal.commits[before:]]
    assert rows == [2] + [1] * 99, "one row for the messages, now and then one for the events"
    await asyncio.sleep(0.2)
    assert len(telling.journal.commits) == before + 101, "the rest is told soon"
    assert sums(await told(engine), "q") == {"pushed": 100}
    await queue.push(bodies("x"))
    assert len(telling.journal.commits[-1].rows) == 2, "after a pause at once"


async def test_events_call_for_no_commit_of_their_own_while_there_are_others(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await asyncio.sleep(1)
    before = len(telling.journal.commits)
    for _ in range(100):
        await queue.push(bodies("x"))
        await asyncio.sleep(0.007)
    assert len(telling.journal.commits) == before + 100


@pytest.mark.parametrize("failing", ["the running one", "the next one"])
async def test_what_is_told_outside_of_a_commit_is_of_the_next(telling: Rig, failing: str) -> None:
    """Events are switched off while a commit runs, and it or the next one fails."""
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await asyncio.sleep(1)
    telling.runner.is_held = True
    first = queue.push(bodies("a"))
    await settle()
    lost = queue.push(bodies("b"))
    queue.flush()
    editing = asyncio.create_task(engine.edit_queue("q", QueueSettings(events=False)))
    await settle()
    if failing == "the next one":
        telling.runner.step()
        await first
    errors = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: errors.pop() if errors else None
    await settle()
    telling.runner.release()
    await asyncio.gather(first, lost, editing, return_exceptions=True)
    assert isinstance(lost.exception(), ReadOnly)
    await asyncio.sleep(5)
    assert sums(await told(engine), "q") == ({"pushed": 1} if failing == "the next one" else {})


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
