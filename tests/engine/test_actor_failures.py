"""An actor that raises what it never should: its round fails, loudly, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.engine import topic_actor
from nexo.engine.dispatcher import Dispatcher
from nexo.machine.bind import wanted_runs
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import ACTOR_FAILURES_MAX, OUT_OF_SERVICE_MS
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.batch import Batch


class Broken(Exception):
    """What no rule should ever raise."""


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What was reported, with an error; that is no failure of the test."""
    messages: list[str] = []
    yield messages
    assert messages, "nobody was told of a failure"


def hear(told: list[str]) -> None:
    def report(_: object, context: dict[str, Any]) -> None:
        assert isinstance(context["exception"], Broken | NexoError), context
        told.append(context["message"])

    asyncio.get_running_loop().set_exception_handler(report)


def break_step(
    monkeypatch: pytest.MonkeyPatch,
    actor: QueueActor | TopicActor | type[Dispatcher],
    step: str,
    times: int = 1,
) -> None:
    """The next calls of a method do their work, this many, and then raise."""
    whole: Callable[..., Any] = getattr(actor, step)
    left = [None] * times

    def broken(*given: Any) -> Any:
        result = whole(*given)
        if left:
            left.pop()
            raise Broken(step)
        return result

    monkeypatch.setattr(actor, step, broken)


async def outcomes(*futures: Any) -> list[Any]:
    results = await asyncio.gather(*futures, return_exceptions=True)
    return [each.code if isinstance(each, NexoError) else each for each in results]


async def test_a_collect_that_fails_fails_its_own_round(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    one, other = await engine.create_queue("one"), await engine.create_queue("other")
    await one.push(bodies("safe"))
    break_step(monkeypatch, one, "collect")
    first, second = await outcomes(one.push(bodies("lost")), other.push(bodies("a")))
    assert first == "not_ready"
    assert not isinstance(second, str), second
    assert engine.refusal is None, "the others had to stop"
    assert rig.journal.opens == 1, "everything was loaded anew"
    await one.push(bodies("b"))
    assert await peeked(one) == ["safe", "b"]
    assert await peeked(other) == ["a"]
    assert told == ["queue 'one' failed and is loaded again from the journal"]


@pytest.mark.parametrize("step", ["settle", "_tick", "_serve"])
async def test_what_was_confirmed_stays_whatever_fails_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str], step: str
) -> None:
    engine = await rig.start()
    hear(told)
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    popping = asyncio.create_task(queue.pop(wait_ms=60_000)) if step == "_serve" else None
    await settle()
    break_step(monkeypatch, Dispatcher if step == "_serve" else queue, step)
    await queue.push(bodies("a", "b"))
    if step == "_tick":
        queue.tick()
    await other.push(bodies("c"))
    if popping is not None:  # its message went out, and the reload does not know that
        assert texts(await popping) == ["a"]
    assert engine.refusal is None
    assert await peeked(queue) == ["a", "b"]
    await ack(queue, await queue.pop(2, one_ack=True))
    assert queue.info().depth == 0
    assert len(told) == 1


async def test_a_failure_while_a_commit_runs_waits_for_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    queue = await engine.create_queue("q")
    rig.runner.is_held = True
    running = queue.push(bodies("on its way"))
    await settle()
    waiting = queue.push(bodies("not collected"))
    break_step(monkeypatch, queue, "_tick")
    break_step(monkeypatch, queue, "settle")  # nobody asks a state that is given up for more
    queue.tick()
    with pytest.raises(NotReady):
        await waiting
    with pytest.raises(NotReady, match="reloaded"):
        engine.queue("q")
    with pytest.raises(NotReady):
        await queue.push(bodies("refused"))
    rig.runner.release()
    await running
    await settle()
    assert await peeked(engine.queue("q")) == ["on its way"]
    assert len(told) == 1


async def test_no_commit_begins_before_the_one_that_failed_is_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    other = await engine.create_queue("other")
    await engine.bind("t", "q")
    rig.runner.is_held = True
    running = other.push(bodies("a"))
    await settle()
    break_step(monkeypatch, queue, "_tick")
    queue.tick()
    publishing = topic.publish(bodies("b"))
    rig.runner.step()
    await settle()
    assert len(rig.runner.held) == 1, "its load is at the desk, and nothing else"
    rig.runner.release()
    await asyncio.gather(running, publishing)
    assert await peeked(engine.queue("q")) == ["b"]
    assert len(told) == 1


async def test_leases_of_the_old_state_do_not_stand_for_new_deliveries(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    before = await queue.pop(one_ack=True)  # not in the journal yet
    break_step(monkeypatch, queue, "_tick")
    queue.tick()
    after = await queue.pop(one_ack=True)
    assert texts(after) == ["a"]
    assert after.lease > before.lease


async def test_a_move_with_a_failing_target_is_given_up_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    dead = await engine.create_queue("q_dlq", QueueSettings(max_attempts=None))
    other = await engine.create_queue("other")
    await queue.push(bodies("a"))
    delivery = await queue.pop(one_ack=True)
    await asyncio.sleep(1)
    break_step(monkeypatch, dead, "collect")
    assert await outcomes(nack(queue, delivery), other.push(bodies("b"))) == ["not_ready"] * 2
    await asyncio.sleep(5)
    assert engine.refusal is None
    await nack(queue, delivery)
    assert (await peeked(queue), await peeked(dead)) == ([], ["a"]), "in two places, or in none"


@pytest.mark.parametrize("failing", ["t", "q", "nexo.archive.q"])
async def test_a_fan_out_is_given_up_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str], failing: str
) -> None:
    engine = await rig.start()
    hear(told)
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    await engine.bind("t", "q")
    await topic.publish(bodies("a"))
    actor = engine.queue("q") if failing == "q" else engine.topic(failing)
    break_step(monkeypatch, actor, "collect")
    with pytest.raises(NotReady):
        await topic.publish(bodies("lost"))
    await asyncio.sleep(5)
    await topic.publish(bodies("b"))
    assert await peeked(queue) == ["a", "b"]
    for name in ("t", "nexo.archive.q"):
        assert texts(await engine.topic(name).read(0)) == ["a", "b"]


async def test_events_that_cannot_be_told_stop_nobody(
    telling: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await telling.start()
    hear(told)
    queue = await engine.create_queue("q")
    events = engine.topic("nexo.events")
    for step in ("collect", "landed"):
        await asyncio.sleep(1)
        break_step(monkeypatch, events, step)
        await queue.push(bodies(step))
    assert engine.refusal is None
    assert await peeked(queue) == ["collect", "landed"]
    assert len(told) == 2


async def test_a_consumer_that_cannot_be_served_leaves(rig: Rig, told: list[str]) -> None:
    engine = await rig.start()
    hear(told)
    queue = await engine.create_queue("q")
    got: list[str] = []
    ends: list[NexoError] = []

    def broken(_: object) -> None:
        raise Broken("deliver")

    queue.subscribe(10, broken, ends.append)
    queue.subscribe(10, lambda delivery: got.extend(texts(delivery)), ends.append)
    await queue.push(numbered(5))
    await settle()
    assert sorted(got) == ["0", "1", "2", "3", "4"], "what it did not take went to nobody"
    assert [error.code for error in ends] == ["not_ready"]
    assert queue.info().in_flight == 5
    assert len(queue.room.subscriptions) == 1


async def test_a_reader_that_cannot_be_told_stops_nobody(rig: Rig, told: list[str]) -> None:
    engine = await rig.start()
    hear(told)
    topic = await engine.create_topic("t")

    def broken() -> None:
        raise Broken("listener")

    topic.listen(broken)
    await topic.publish(bodies("a"))
    assert texts(await topic.read(0)) == ["a"]
    assert rig.journal.opens == 1


async def test_a_meter_that_fails_stops_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)

    def broken(*_: float) -> None:
        raise Broken("committed")

    monkeypatch.setattr(engine.meters, "committed", broken)
    await engine.create_queue("q")
    await engine.queue("q").push(bodies("a"))


async def test_one_that_fails_again_and_again_is_out_of_service(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    await queue.push(bodies("safe"))
    popping = asyncio.create_task(other.pop(wait_ms=600_000))
    ends: list[NexoError] = []
    queue.subscribe(1, lambda _: None, ends.append)
    break_step(monkeypatch, queue, "collect", ACTOR_FAILURES_MAX)
    for _ in range(ACTOR_FAILURES_MAX):
        assert await outcomes(queue.push(bodies("bad"))) == ["not_ready"]
    with pytest.raises(NotReady, match="'q' is out of service"):
        engine.queue("q")
    for act in (
        lambda: queue.push_one(b"x"),
        lambda: queue.pop(),
        lambda: queue.ack(1, 1, 2),
        lambda: queue.purge(),
        lambda: queue.claims.open("spark"),
    ):
        with pytest.raises(NotReady, match="out of service"):
            await act()
    assert [error.code for error in ends] == ["not_ready"]
    assert len(engine.out_of_service) == 1
    await other.push(bodies("a"))
    assert texts(await popping) == ["a"], "the others had to stop"
    await asyncio.sleep(OUT_OF_SERVICE_MS / 1000 + 1)
    assert engine.out_of_service == []
    await queue.push(bodies("b"))
    assert await peeked(engine.queue("q")) == ["safe", "b"]


async def test_what_feeds_one_that_is_out_of_service_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q")
    await engine.bind("t", "q")
    source = await engine.create_queue("s", QueueSettings(max_attempts=1, dead_letter="q"))
    await source.push(bodies("dead"))
    delivery = await source.pop(one_ack=True)
    break_step(monkeypatch, queue, "collect", ACTOR_FAILURES_MAX)
    for _ in range(ACTOR_FAILURES_MAX):
        assert await outcomes(queue.push(bodies("bad"))) == ["not_ready"]
    with pytest.raises(NotReady, match="'q' is out of service"):
        await topic.publish(bodies("a"))
    await nack(source, delivery)  # its dead letter waits
    assert source.info().depth == 1
    await asyncio.sleep(OUT_OF_SERVICE_MS / 1000 + 1)
    await topic.publish(bodies("b"))
    assert sorted(await peeked(engine.queue("q"))) == ["b", "dead"]
    assert source.info().depth == 0


async def test_one_that_is_out_of_service_can_be_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    engine = await rig.start()
    hear(told)
    queue = await engine.create_queue("q")
    break_step(monkeypatch, queue, "collect", ACTOR_FAILURES_MAX)
    for _ in range(ACTOR_FAILURES_MAX):
        assert await outcomes(queue.push(bodies("bad"))) == ["not_ready"]
    await engine.delete_queue("q")
    assert engine.out_of_service == []
    await (await engine.create_queue("q")).push(bodies("a"))


async def test_a_subscriber_whose_values_no_record_can_hold_stops_only_its_queue(
    rig: Rig, told: list[str]
) -> None:
    engine = await rig.start()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    ends: list[NexoError] = []
    await queue.push(bodies("a"))
    queue.subscribe(10, lambda _: None, ends.append).visibility_ms = 2**64
    for number in range(20):
        await other.push(bodies(str(number)))
        await asyncio.sleep(1)
    assert len(told) == ACTOR_FAILURES_MAX
    assert [error.code for error in ends] == ["not_ready"], "else it would fail for ever"
    assert engine.refusal is None
    await asyncio.sleep(OUT_OF_SERVICE_MS / 1000)
    assert texts(await engine.queue("q").pop()) == ["a"]


async def test_a_publication_that_a_filter_fails_at_stops_only_its_topic(
    rig: Rig, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(content: Batch, *rest: Any) -> Any:
        if b"bad" in content.payload:
            raise ValueError("no filter can read this")
        return wanted_runs(content, *rest)

    monkeypatch.setattr(topic_actor, "wanted_runs", failing)
    engine = await rig.start()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await engine.bind("t", "q", {"kind": "a"})
    other = await engine.create_queue("other")
    assert (await outcomes(topic.publish(bodies("bad")), other.push(bodies("b"))))[0] == "not_ready"
    good = msgspec.structs.replace(bodies("good"), attributes=encode_attributes({"kind": "a"}))
    await topic.publish(good)
    assert await peeked(queue) == ["good"]
    assert await peeked(other) == ["b"]
    assert rig.journal.opens == 1


async def test_an_unknown_error_of_the_idle_work_is_recovered(rig: Rig, told: list[str]) -> None:
    """It used to be raised where nobody caught it."""
    engine = await rig.start()
    hear(told)
    told.append("nothing: this error is the journal's")
    queue = await engine.create_queue("q")
    broken: list[Exception] = [OSError("no such disk")]
    tidy = rig.journal.tidy
    rig.journal.tidy = lambda: _raise(broken.pop()) if broken else tidy()  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert not broken
    await queue.push(bodies("a"))


def _raise(error: Exception) -> bool:
    raise error
