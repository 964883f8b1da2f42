"""Messages that are found by id, reason and text, counted by reason, discarded, redriven and sent
again; what was not chosen stays as it was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.engine import chosen
from nexo.engine.chosen import Choice
from nexo.engine.hands import ORIGINAL_ID, Changes
from nexo.simulation.meter import Meter
from nexo.vocabulary import limits
from nexo.vocabulary.attributes import decode_attributes, encode_attributes, encode_typed
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import (
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    QueueNotFound,
    StaleReceipt,
    WrongState,
)
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.states import State
from tests.engine.rig import Rig, ack, bodies, nack, numbered, peeked, ranges, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor


async def fail_all(engine: Engine, name: str, reasons: dict[str, str], consumer: str = "") -> None:
    """Messages that die in a queue, each of its reason; their dead letters are in `graves`."""
    queue = await engine.create_queue(name, QueueSettings(max_attempts=1, dead_letter="graves"))
    for body, reason in reasons.items():
        await queue.push(bodies(body))
        await nack(queue, await queue.pop(1, one_ack=True, consumer=consumer), reason)


async def ids_of(queue: QueueActor) -> dict[str, str]:
    return {each.body.decode(): each.id for each in await queue.peek(1_000)}


async def found(queue: QueueActor, choice: Choice, limit: int = 100) -> list[str]:
    told = await chosen.search(queue, choice, limit)
    return [each.body.decode() for each in told.messages]


async def test_search_by_text_looks_into_bodies_attributes_and_reasons(rig: Rig) -> None:
    engine = await rig.start()
    await fail_all(engine, "a", {"needle in body": "x", "second": "a needle", "third": "y"})
    graves = engine.queue("graves")
    tagged = [None, encode_attributes({"tag": "needle"})]
    await graves.push(msgspec.structs.replace(bodies("plain", "tagged"), attributes=tagged))
    assert await found(graves, Choice(text="needle")) == ["needle in body", "second", "tagged"]
    assert await found(graves, Choice(text="needle"), limit=1) == ["needle in body"]
    assert await found(graves, Choice(text="plaintagged")) == [], "across two bodies"
    for body, each in (await ids_of(graves)).items():
        assert await found(graves, Choice(text=each)) == [body]


async def test_search_goes_on_where_it_ended(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    low, high = numbered(30), msgspec.structs.replace(numbered(30, 30), priority=9)
    await queue.push(low)
    await queue.push(high)
    seen, after = [], None
    while True:
        told = await chosen.search(queue, Choice(text=""), 7, after)
        seen += [int(each.body) for each in told.messages]
        after = told.next
        if after is None:
            break
    assert seen == [*range(30, 60), *range(30)]
    counted = await chosen.search(queue, Choice(text="5"), 0, whole=True)
    assert (counted.matched, counted.messages) == (sum("5" in str(n) for n in range(60)), [])


async def test_it_is_found_on_disk_and_in_bounded_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await rig.start(1)
    queue = await engine.create_queue("q")
    for start in range(0, 5_000, 500):
        await queue.push(numbered(500, start, size=200))
    steps: list[int] = []
    honest = chosen.Sweep._step

    def counted(self: chosen.Sweep) -> object:
        before = self.looked_at
        told = honest(self)
        steps.append(self.looked_at - before)
        return told

    monkeypatch.setattr(chosen.Sweep, "_step", counted)
    told = await chosen.search(queue, Choice(text="4321."), 10)
    assert [each.body[:5] for each in told.messages] == [b"4321."]
    assert told.looked_at == sum(steps) == 5_000
    assert max(steps) <= limits.SEARCH_STEP_MESSAGES


async def test_reasons_are_counted_without_numbers(rig: Rig) -> None:
    engine = await rig.start()
    dead = {f"m{n}": f"order {n} is missing" for n in range(5)}
    await fail_all(engine, "a", dead, "worker-1")
    await fail_all(engine, "b", {"last": "order 99 is missing", "other": "boom"}, "worker-2")
    graves = engine.queue("graves")
    told = await chosen.reasons(graves, Choice())
    assert [(each.reason, each.count) for each in told.groups] == [
        ("order # is missing", 6),
        ("boom", 1),
    ]
    first = told.groups[0]
    assert (first.consumer, first.sources, first.example.body) == ("worker-2", ("a", "b"), b"m0")
    assert first.first_ms <= first.last_ms
    assert told.next is None
    only = await chosen.reasons(graves, Choice(source="b"))
    assert [(each.reason, each.count) for each in only.groups] == [
        ("boom", 1),
        ("order # is missing", 1),
    ]
    assert await found(graves, Choice(reason="order 12345 is missing")) == [*dead, "last"]


async def test_a_redrive_by_reason_moves_only_those(rig: Rig) -> None:
    engine = await rig.start()
    await fail_all(engine, "a", {"1": "boom", "2": "timeout after 3 s", "3": "boom"})
    await fail_all(engine, "b", {"4": "timeout after 9 s"})
    choice = Choice(reason="timeout after # s")
    task = await engine.hands.redrive("graves", None, None, choice)
    assert await task.finished == 2
    assert (task.progress().total, task.status) == (2, "COMPLETED")
    engine = await rig.restart()
    assert await peeked(engine.queue("graves")) == ["1", "3"]
    assert (await peeked(engine.queue("a")), await peeked(engine.queue("b"))) == (["2"], ["4"])


async def test_a_redrive_of_many_runs_is_several_commits(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("graves")
    await engine.create_queue("to")
    await queue.push(numbered(2_000))
    seqs = [each.seq for each in await queue.peek(1_000)][::2]
    commits = len(rig.journal.commits)
    task = await engine.hands.redrive("graves", "to", None, seqs)
    assert await task.finished == 500
    assert len(rig.journal.commits) - commits >= 500 // limits.MOVE_RUNS
    assert engine.queue("to").info().depth == 500
    with pytest.raises(InvalidArgument, match="into itself"):
        await engine.hands.redrive("graves", "graves", None, seqs)
    with pytest.raises(QueueNotFound):
        await engine.hands.redrive("graves", "nowhere", None, seqs)


async def test_discard_by_id_wherever_they_are(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(msgspec.structs.replace(bodies("later"), delay_ms=60_000))
    await queue.push(bodies("held", "ready", "kept"))
    ids = await ids_of(queue)
    delivery = await queue.pop(1)
    assert texts(delivery) == ["held"]
    choice = Choice(ids=(ids["later"], ids["held"], ids["ready"], "no-such-id"))
    task = await engine.hands.discard("q", choice)
    assert await task.finished == 3
    with pytest.raises(StaleReceipt):
        await ack(queue, delivery)
    info = queue.info()
    assert (info.depth, info.in_flight, info.scheduled, info.acked) == (1, 0, 0, 0)
    engine = await rig.restart()
    assert await peeked(engine.queue("q")) == ["kept"]


async def test_discard_leaves_what_spark_holds(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("claimed", "free"))
    epoch = await queue.claims.open("query")
    await queue.claims.claim("query", epoch, 0, 1, 60_000, 1_000, 0)
    task = await engine.hands.discard("q", Choice(text="e"))
    assert await task.finished == 1
    assert task.progress().skipped == 1
    assert [each.state for each in await queue.peek(10)] == [State.CLAIMED]
    (claimed,) = await queue.peek(10)
    with pytest.raises(WrongState):
        await engine.hands.resend("q", claimed.id, Changes(b"other"))


@pytest.mark.parametrize("fifo", [False, True])
async def test_discard_in_groups_and_from_the_disk(rig: Rig, fifo: bool) -> None:
    engine = await rig.start()
    settings = QueueSettings(fifo=fifo, deduplication="id" if fifo else "off")
    queue = await engine.create_queue("q", settings)
    keys = [str(number) for number in range(6)]
    groups: list[str | None] = ["a", "b", "a", "b", "a", "c"]
    batch = msgspec.structs.replace(bodies(*keys), groups=groups, deduplication_ids=list(keys))
    await queue.push(batch)
    ids = await ids_of(queue)
    delivery = await queue.pop(1)
    assert texts(delivery) == ["0"]
    task = await engine.hands.discard("q", Choice(ids=(ids["0"], ids["3"], ids["4"])))
    assert await task.finished == 3
    engine = await rig.restart(1)
    queue = engine.queue("q")
    assert sorted(await peeked(queue)) == ["1", "2", "5"]
    assert sorted(texts(await queue.pop(10))) == ["1", "2", "5"]


async def test_discards_are_told(rig: Rig) -> None:
    from nexo.engine.topics import EVENTS_SETTINGS
    from nexo.vocabulary.events import decode_event

    rig.events = EVENTS_SETTINGS
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a", "b"))
    ids = await ids_of(queue)
    await (await engine.hands.discard("q", Choice(ids=(ids["b"],)))).finished
    await engine.drain()
    reading = await engine.topic("nexo.events").read(0, 100)
    told = [decode_event(text) for text in texts(reading)]
    last = told[-1]
    assert (last.kind, last.first_seq, last.count, last.reason) == ("purged", 1, 1, "discarded")


async def test_a_cancelled_task_stops_and_another_does_the_rest(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(3_000))
    task = await engine.hands.discard("q", Choice(text=""))
    while task.progress().moved == 0:
        await queue.push(bodies("more"))
    task.cancel()
    done = await task.finished
    assert 0 < done < 3_000
    assert task.status == "CANCELLED"
    again = await engine.hands.discard("q", Choice(text=""))
    await again.finished
    assert queue.info().depth == 0


async def test_resend_replaces_in_one_commit(rig: Rig) -> None:
    engine = await rig.start()
    await fail_all(engine, "a", {"broken": "boom", "other": "boom"})
    graves = engine.queue("graves")
    before = (await ids_of(graves))["broken"]
    commits = len(rig.journal.commits)
    queue, fresh = await engine.hands.resend("graves", before, Changes(b"mended", {"by": "me"}))
    owners = [{write.owner for write in each.writes} for each in rig.journal.commits[commits:]]
    both = {graves.owner, engine.queue("a").owner}
    assert any(both <= each for each in owners), "both queues change in the same commit"
    assert queue == "a"
    engine = await rig.crash()
    assert await peeked(engine.queue("graves")) == ["other"]
    (message,) = await engine.queue("a").peek(10)
    assert (message.body, message.id, message.attempts) == (b"mended", fresh, 0)
    assert decode_attributes(message.attributes) == {"by": "me", ORIGINAL_ID: before}
    assert message.dead_letter is None


async def test_resend_keeps_what_is_not_changed(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    typed = encode_typed({"n": ("Number", "7"), "drop": ("String", "x"), "keep": ("String", "y")})
    batch = msgspec.structs.replace(batch_of([b"body"]), attributes=[typed], groups="g", priority=5)
    await queue.push(batch)
    (seen,) = await queue.peek(1)
    await engine.hands.resend("q", seen.id, Changes(None, {"drop": None, "new": "z"}))
    (message,) = await queue.peek(10)
    assert (message.body, message.group_id, message.priority) == (b"body", "g", 5)
    wanted = {"n": "7", "keep": "y", "new": "z", ORIGINAL_ID: seen.id}
    assert decode_attributes(message.attributes) == wanted


async def test_resend_is_no_duplicate_of_what_it_replaces(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(fifo=True, deduplication="content"))
    await queue.push(msgspec.structs.replace(bodies("same"), groups="g"))
    (seen,) = await queue.peek(1)
    _, fresh = await engine.hands.resend("q", seen.id, Changes())
    assert fresh != seen.id
    assert [each.id for each in await queue.peek(10)] == [fresh]


async def test_a_resend_that_is_refused_changes_nothing(rig: Rig) -> None:
    engine = await rig.start()
    await fail_all(engine, "a", {"broken": "boom"})
    await engine.create_queue("small", QueueSettings(max_message_bytes=1_024))
    graves = engine.queue("graves")
    (seen,) = await graves.peek(1)
    with pytest.raises(MessageTooLarge):
        await engine.hands.resend("graves", seen.id, Changes(b"x" * 2_000), "small")
    with pytest.raises(QueueNotFound):
        await engine.hands.resend("graves", seen.id, Changes(b"x"), "nowhere")
    with pytest.raises(MessageNotFound):
        await engine.hands.resend("a", seen.id, Changes(b"x"))
    with pytest.raises(InvalidArgument, match="not a message id"):
        await engine.hands.resend("a", "garbage", Changes(b"x"))
    await engine.delete_queue("a")
    with pytest.raises(InvalidArgument, match="has no source queue"):
        await engine.hands.resend("graves", seen.id, Changes(b"x"))
    assert [each.id for each in await graves.peek(10)] == [seen.id]
    assert list(ranges(await graves.pop(10))) == [(0, 1)]


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_what_the_commit_under_way_brings_counts(rig: Rig, verb: str) -> None:
    engine = await rig.start()
    queue, _ = await engine.create_queue("q"), await engine.create_queue("other")
    await queue.push(bodies("wanted 1"))
    rig.runner.is_held = True
    pushed = queue.push(bodies("wanted 2"))
    await settle()
    choice = Choice(text="wanted")
    if verb == "discard":
        task = await engine.hands.discard("q", choice)
    else:
        task = await engine.hands.redrive("q", "other", None, choice)
    await settle()
    rig.runner.release()
    await pushed
    assert await task.finished == 2


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_a_step_costs_the_same_however_many_are_chosen(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Every second one, so each is a run by itself. Counted in lines, not in time."""
    engine = await rig.start()
    queue, _ = await engine.create_queue("q"), await engine.create_queue("other")
    meter, honest, most = Meter(), asyncio.Handle._run, [0]

    def counted(handle: asyncio.Handle) -> None:
        with meter.counting():
            honest(handle)
        most[0] = max(most[0], meter.taken())

    async def dearest(count: int) -> int:
        for start in range(0, count, 1_000):
            await queue.push(numbered(1_000, start))
        seqs = [each for each in range(lane.log.end - count, lane.log.end) if each % 2]
        most[0] = 0
        monkeypatch.setattr(asyncio.Handle, "_run", counted)
        if verb == "discard":
            task = await engine.hands.discard("q", seqs)
        else:
            task = await engine.hands.redrive("q", "other", None, seqs)
        assert await task.finished == len(seqs)
        monkeypatch.setattr(asyncio.Handle, "_run", honest)
        await queue.purge()
        return most[0]

    lane = queue.queue.lane(0)
    less, more = await dearest(2_000), await dearest(10_000)
    assert more <= 1.2 * less, f"{less} lines of 2,000, {more} of 10,000"
