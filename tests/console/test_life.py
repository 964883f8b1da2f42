"""What the pages tell of single messages, on a broker that has more than they can look at."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from nexo.doors.console import batches, dead_letters, history
from nexo.doors.console.batches import Batches
from nexo.doors.console.history import Sampler
from nexo.engine import life
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX
from nexo.vocabulary.settings import queue_settings_of
from nexo.vocabulary.user_settings import GivenQueueSettings
from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor

NOISE = 40  # events of others between two of ours
LITTLE = 30  # events that are looked at around a time


@pytest.fixture(scope="module")
def open_broker() -> Iterator[GuardedBroker]:
    running = GuardedBroker(access="development")
    yield running
    running.stop()


def page(broker: GuardedBroker, address: str) -> str:
    with urllib.request.urlopen(f"{broker.http}/console{address}", timeout=10) as answer:
        return str(answer.read().decode())


def told(text: str) -> list[str]:
    """What happened to a message, as its page tells it."""
    return re.findall(r"<strong>([a-z-]+)</strong>", text[text.index("History</h2>") :])


async def failing(engine: Engine, name: str, attempts: int) -> QueueActor:
    given = GivenQueueSettings(max_attempts=attempts)
    return await engine.create_queue(name, queue_settings_of(given))


async def noise(engine: Engine) -> None:
    """Each push of others is an event. What was told must be there before, and what comes later
    must come at a later time."""
    await engine.drain()
    await asyncio.sleep(0.003)
    for _ in range(NOISE):
        await engine.queue("noise").push(batch_of([b"x"]))
    await engine.drain()
    await asyncio.sleep(0.003)


async def fail(actor: QueueActor, reason: str) -> str:
    (message,) = actor.messages(await actor.pop(1, wait_ms=5_000, consumer="worker"))
    await actor.nack(message.lease, message.seq, message.seq + 1, 0, reason)
    return message.id


async def done(actor: QueueActor) -> str:
    (message,) = actor.messages(await actor.pop(1, wait_ms=5_000))
    actor.received(message.lease, message.seq, message.seq + 1)
    await actor.ack(message.lease, message.seq, message.seq + 1)
    return message.id


def test_failures_are_found_among_the_events_of_others(
    open_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "LIFE_EVENTS", LITTLE)
    engine = open_broker.engine

    async def lives() -> str:
        actor = await failing(engine, "slow", 3)
        await engine.create_queue("noise")
        await actor.push(batch_of([b"x"]))
        await noise(engine)
        for attempt in ("first", "second"):
            await fail(actor, f"{attempt} reason")
            await noise(engine)
        id_text = await fail(actor, "third reason")
        await noise(engine)
        return id_text

    id_text = open_broker.wait_for(lives())
    text = page(open_broker, f"/queues/slow_dlq/messages/{id_text}")
    happened = told(text)
    assert happened[0] == "pushed"
    assert "first reason" in text[text.index("History</h2>") :]
    assert "third reason" in text[text.index("History</h2>") :]
    assert "dead-lettered" in happened
    assert "second reason" not in text, "the test has too little noise"
    assert re.search(r"[0-9,]+ of the [0-9,]+ events since it was pushed were searched", text)


def test_a_message_that_is_gone_is_found_among_the_newest_events(
    open_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "LIFE_GONE_EVENTS", LITTLE)
    engine = open_broker.engine

    async def lives() -> str:
        actor = await engine.create_queue("brief")
        if "noise" not in engine.queues:
            await engine.create_queue("noise")
        await noise(engine)
        await actor.push(batch_of([b"x"]))
        id_text = await done(actor)
        await engine.drain()
        return id_text

    text = page(open_broker, f"/queues/brief/messages/{open_broker.wait_for(lives())}")
    assert told(text) == ["pushed", "delivered", "received", "acked"]
    assert f"Only the newest {LITTLE} events" in text


def test_after_a_redrive_the_old_link_still_tells(open_broker: GuardedBroker) -> None:
    engine = open_broker.engine

    async def lives() -> str:
        actor = await failing(engine, "again", 1)
        await actor.push(batch_of([b"x"]))
        id_text = await fail(actor, "broken")
        task = await engine.redrive("again_dlq")
        await task.finished
        await engine.drain()
        return id_text

    text = page(open_broker, f"/queues/again_dlq/messages/{open_broker.wait_for(lives())}")
    assert told(text) == ["pushed", "delivered", "nacked", "dead-lettered"]
    assert "is deleted, and its history with it" not in text


def test_messages_further_back_are_found_and_redriven(open_broker: GuardedBroker) -> None:
    engine, count = open_broker.engine, PEEK_MESSAGES_MAX + 20

    async def lives() -> tuple[str, str]:
        actor = await failing(engine, "deep", 1)
        await actor.push(batch_of([b"%d" % number for number in range(count)]))
        delivery = await actor.pop(count)
        messages = actor.messages(delivery)
        first, end = messages[0].seq, messages[-1].seq + 1
        await actor.nack(delivery.lease, first, end, 0, "")
        await engine.drain()
        await actor.push(batch_of([b"still here"] * count))
        return messages[-1].id, message_id(actor.incarnation, messages[-1].seq + count)

    letter, waiting = open_broker.wait_for(lives())
    assert "still here" in page(open_broker, f"/queues/deep/messages/{waiting}")
    address = "/dead-letters/deep_dlq?peek=1000"
    text = page(open_broker, address)
    found = re.search(r'href="(\?peek=1000&amp;after=[0-9]+)" rel="next"', text)
    assert found is not None
    text = page(open_broker, f"/dead-letters/deep_dlq{found[1].replace('&amp;', '&')}")
    links = re.findall(r'class="id" href="/console(/queues/deep_dlq/messages/[^"]+)"', text)
    assert len(links) == 20
    assert letter in links[-1]
    assert "Why it failed" in page(open_broker, links[-1])
    assert "None of the 1,020 dead letters matches" in page(
        open_broker, "/dead-letters/deep_dlq?reason=x"
    )

    marked = selectable(text)[-1]
    assert "Redrove 1 of 1 message." in redrive(open_broker, "deep_dlq", text, [marked])


def test_what_was_selected_before_a_queue_was_created_anew_is_left_alone(
    open_broker: GuardedBroker,
) -> None:
    """Its messages have the same numbers as those of before."""
    engine = open_broker.engine

    async def lives(reason: str) -> None:
        actor = engine.queues.get("renewed") or await failing(engine, "renewed", 1)
        await actor.push(batch_of([b"a", b"b"]))
        for _ in range(2):
            await fail(actor, reason)
        await engine.drain()

    open_broker.wait_for(lives("before"))
    before = page(open_broker, "/dead-letters/renewed_dlq")
    open_broker.wait_for(engine.delete_queue("renewed_dlq"))
    open_broker.wait_for(lives("after"))
    after = page(open_broker, "/dead-letters/renewed_dlq")
    old, new = selectable(before), selectable(after)
    numbers = [[parse_message_id(each)[1] for each in ids] for ids in (old, new)]
    assert numbers[0] == numbers[1], "the test is about numbers that are the same"
    text = redrive(open_broker, "renewed_dlq", before, old)
    assert "Redrove 0 of 2 messages. The others have no source queue, or no longer exist." in text
    assert open_broker.run(lambda: engine.queue("renewed_dlq").info().depth) == 2
    assert "Redrove 1 of 2 messages." in redrive(
        open_broker, "renewed_dlq", before, [old[0], new[1]]
    )
    assert selectable(page(open_broker, "/dead-letters/renewed_dlq")) == [new[0]]


def selectable(text: str) -> list[str]:
    """What the boxes of a page with dead letters stand for."""
    return re.findall(r'name="id" value="([^"]+)"', text)


def redrive(broker: GuardedBroker, queue: str, text: str, ids: list[str]) -> str:
    """Send the form of a page with these boxes marked; the page that follows."""
    proof = re.findall(r'name="csrf" value="([0-9a-f]+)"', text)[0]
    form = urlencode({"csrf": proof, "which": "selected", "id": ids}, doseq=True).encode()
    address = f"{broker.http}/console/dead-letters/{queue}/redrive"
    request = urllib.request.Request(address, form, {"Origin": broker.http})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def test_no_reason_is_a_reason_to_choose_too(open_broker: GuardedBroker) -> None:
    engine = open_broker.engine

    async def lives() -> None:
        actor = await failing(engine, "odd", 1)
        await actor.push(batch_of([b"x"]))
        await fail(actor, "broken")
        await engine.drain()
        await engine.queue("odd_dlq").push(batch_of([b"by hand"]))

    open_broker.wait_for(lives())
    text = page(open_broker, "/dead-letters/odd_dlq?reason=")
    assert text.count('class="id"') == 1
    assert "by hand" in text


def test_many_dead_letter_queues_are_shown_page_by_page(
    open_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CONSOLE_ROWS_SHOWN", 2)
    engine = open_broker.engine

    async def fill() -> None:
        for count in range(1, 4):
            actor = await engine.create_queue(f"many-{count}_dlq")
            await actor.push(batch_of([b"x"] * (10_000 + count)))

    open_broker.wait_for(fill())
    rows = r'href="/console/dead-letters/(many-[0-9])_dlq"'
    text = page(open_broker, "/dead-letters")
    assert re.findall(rows, text) == ["many-3", "many-2"]
    assert "page 1 of " in text
    assert re.findall(rows, page(open_broker, "/dead-letters?page=2"))[0] == "many-1"


def test_a_moment_is_no_time_for_a_rate(
    open_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens a page has a sample taken, also just after another."""
    monkeypatch.setattr(history, "CONSOLE_RATE_S_MIN", 3_600.0)  # however long a moment takes

    def sample() -> list[list[float]]:
        sampler = Sampler(open_broker.engine)
        sampler.sample()
        return sampler.points.columns()

    assert open_broker.run(sample) == [[]] * 8


def test_the_rate_of_a_query_is_over_the_time_that_was_read(
    open_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_broker.engine

    async def claim(actor: QueueActor, epoch: int, after: int) -> None:
        await actor.claims.claim("q", epoch, after, 10, 60_000)
        await actor.claims.seal("q", epoch, after + 1)

    async def run() -> tuple[float | None, float, int]:
        actor = await engine.create_queue("claimed")
        await actor.push(batch_of([b"x"] * 100))
        epoch = await actor.claims.open("q")
        followed = Batches(engine)
        for after in range(6):
            await asyncio.sleep(0.002)  # batches of one moment are one
            await claim(actor, epoch, after)
        await engine.drain()
        await followed.read()
        monkeypatch.setattr(batches, "CONSOLE_RATE_OVER_MS_MIN", 10**9)
        too_soon = followed.rate("claimed", "q")
        # Only as many events are read as a busy broker tells within a moment.
        monkeypatch.setattr(batches, "CONSOLE_RATE_OVER_MS_MIN", 1)
        monkeypatch.setattr(batches, "CONSOLE_EVENTS_READ", 4)
        busy = Batches(engine)
        await busy.read()
        await asyncio.sleep(0.002)
        rate = busy.rate("claimed", "q")
        assert rate is not None
        return too_soon, rate, len(followed.last(20))

    too_soon, rate, count = open_broker.wait_for(run())
    assert too_soon is None, "a rate over next to nothing is noise"
    assert rate > 50 * 1_000 / limits.CONSOLE_RATE_OVER_MS, "it is not of a whole minute"
    assert count == 5
