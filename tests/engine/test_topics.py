"""Topics: one row for all who are bound, which goes when the last of them lets go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from nexo.engine.committer import Committer
from nexo.engine.rows import SharedRows
from nexo.machine.topic import publish
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import Batch
from nexo.vocabulary.errors import (
    InvalidArgument,
    MessageTooLarge,
    NotReady,
    OffsetExpired,
    ReadOnly,
)
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle


async def test_offsets_count_up_and_reading_removes_nothing(rig: Rig) -> None:
    topic = await (await rig.start()).create_topic("t")
    assert await topic.publish(bodies("a", "b")) == (0, 2)
    assert await topic.publish(numbered(100)) == (2, 102)
    for _ in range(2):
        reading = await topic.read(1, 3)
        assert (texts(reading), reading.next) == (["b", "0", "1"], 4)
    assert (await topic.read(500)).parts == []


async def test_a_read_waits_for_news(rig: Rig) -> None:
    topic = await (await rig.start()).create_topic("t")
    reads = [asyncio.create_task(topic.read(0, wait_ms=60_000)) for _ in range(3)]
    nobody = asyncio.create_task(topic.read(7, wait_ms=3_000))
    await settle()
    assert not any(read.done() for read in reads)
    await topic.publish(bodies("a"))
    assert [texts(await read) for read in reads] == [["a"]] * 3
    began = asyncio.get_running_loop().time()
    assert texts(await nobody) == []
    assert asyncio.get_running_loop().time() - began == pytest.approx(3)


async def test_listeners_hear_of_every_commit_until_they_leave(rig: Rig) -> None:
    topic = await (await rig.start()).create_topic("t")
    heard: list[int] = []
    stop = topic.listen(lambda: heard.append(1))
    await topic.publish(bodies("a"))
    await topic.publish(bodies("b"))
    stop()
    await topic.publish(bodies("c"))
    assert len(heard) == 2


async def test_fan_out_does_once_what_is_the_same_for_all(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it takes for one queue more is that queue's own arrival, and nothing of the topic's."""
    engine = await rig.start()

    async def steps_for(count: int) -> dict[str, int]:
        topic = await engine.create_topic(f"t{count}")
        for number in range(count):
            name = (await engine.create_queue(f"q{count}-{number}")).name
            await engine.bind(topic.name, name, {"wanted": "no"} if number % 2 else None)
        calls = dict.fromkeys(("tie", "share", "slice"), 0)

        def watch(owner: type, name: str) -> None:
            honest = getattr(owner, name)

            def counted(*arguments: Any) -> Any:
                calls[name] += 1
                return honest(*arguments)

            patch.setattr(owner, name, counted)

        with monkeypatch.context() as patch:
            watch(Committer, "tie")
            watch(SharedRows, "share")
            watch(Batch, "slice")
            await topic.publish(bodies("a"))
        for number in range(count):
            wanted = [] if number % 2 else ["a"]
            assert await peeked(engine.queue(f"q{count}-{number}")) == wanted
        return calls

    assert await steps_for(4) == await steps_for(40)


async def test_no_queue_gets_what_one_of_them_cannot_take(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is being loaded anew: what it is given would be lost."""
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queues = [await engine.create_queue(f"q{number}") for number in range(3)]
    for queue in queues:
        await engine.bind("t", queue.name)
    honest = Committer.check

    def refuse(committer: Committer, actor: Any) -> None:
        if actor is queues[-1]:
            raise NotReady("it is being loaded")
        honest(committer, actor)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "check", refuse)
        publish(topic.topic, bodies("a"), 1_000)
        with pytest.raises(NotReady):
            topic.fan_out()
    assert [queue.info().depth for queue in queues] == [0, 0, 0]
    rig.must_audit = False  # what the topic holds is in no commit


async def test_fan_out_writes_the_payload_once(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queues = [await engine.create_queue(f"q{number}") for number in range(100)]
    for queue in queues:
        await engine.bind("t", queue.name)
    before = len(rig.journal.commits)
    batch = numbered(200, size=1_000)
    await topic.publish(batch)
    (commit,) = rig.journal.commits[before:]
    assert [(each.count, len(each.payload)) for _, each in commit.rows] == [(200, 200_000)]
    record_bytes = sum(len(write.record) for write in commit.writes)
    assert record_bytes < 20_000, f"101 owners wrote {record_bytes} bytes of records"
    for queue in queues:
        assert texts(await queue.pop(200))[-1].startswith("199")
    engine = await rig.crash()
    for queue in engine.queues.values():
        assert queue.info().depth == 200


async def test_a_publication_reaches_all_queues_or_none(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    for number in range(5):
        await engine.create_queue(f"q{number}")
        await engine.bind("t", f"q{number}")
    rig.runner.is_held = True
    topic.publish(bodies("a"))
    await settle()
    engine = await rig.crash()
    assert [queue.info().depth for queue in engine.queues.values()] == [0] * 5
    assert texts(await engine.topic("t").read(0)) == []


async def test_bindings_filter_by_attributes(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    for name, where in (
        ("all", None),
        ("red", {"colour": "red"}),
        ("red-large", {"colour": "red", "size": "l"}),
        ("none", {"colour": "no"}),
    ):
        await engine.create_queue(name)
        await engine.bind("t", name, where)
    kinds = [{"colour": "red"}, {}, {"colour": "red", "size": "l"}, {"size": "l"}] * 10
    attributes = [encode_attributes(kind) if kind else None for kind in kinds]
    await topic.publish(msgspec.structs.replace(numbered(40), attributes=attributes))
    await topic.publish(bodies("plain"))
    constant = encode_attributes({"colour": "red"})
    await topic.publish(msgspec.structs.replace(bodies("r1", "r2"), attributes=constant))
    engine = await rig.restart()
    got = {name: await peeked(queue) for name, queue in engine.queues.items()}
    assert got["all"] == [*map(str, range(40)), "plain", "r1", "r2"]
    assert got["red"] == [*[str(n) for n in range(40) if n % 2 == 0], "r1", "r2"]
    assert got["red-large"] == [str(n) for n in range(40) if n % 4 == 2]
    assert got["none"] == []


async def test_binding_counts_from_now_and_unbinding_ends_it(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await topic.publish(bodies("before"))
    await engine.bind("t", "q")
    await engine.bind("t", "q")  # twice is once
    await topic.publish(bodies("bound"))
    await engine.unbind("t", "q")
    await topic.publish(bodies("after"))
    assert await peeked(queue) == ["bound"]


async def test_a_changed_filter_replaces_the_old_one(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await engine.bind("t", "q", {"a": "1"})
    await engine.bind("t", "q", {"a": "2"})
    for value in ("1", "2"):
        attributes = encode_attributes({"a": value})
        await topic.publish(msgspec.structs.replace(bodies(value), attributes=attributes))
    assert await peeked(queue) == ["2"]


async def test_the_row_stays_for_the_topic_when_the_queues_have_drained(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t", TopicSettings(retention_ms=60_000))
    queues = [await engine.create_queue(name) for name in ("q1", "q2")]
    for queue in queues:
        await engine.bind("t", queue.name)
    await topic.publish(numbered(50))
    (row,) = rig.disk.rows
    for queue in queues:
        await ack(queue, await queue.pop(50, one_ack=True))
    await asyncio.sleep(59)
    assert list(rig.disk.rows) == [row]
    assert len(texts(await topic.read(0, 100))) == 50
    await asyncio.sleep(2)
    assert rig.disk.rows == {}
    assert topic.topic.start == 50


async def test_the_row_stays_for_a_queue_when_the_topic_has_let_go(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t", TopicSettings(retention_messages=1))
    quick, slow = await engine.create_queue("quick"), await engine.create_queue("slow")
    await engine.bind("t", "quick")
    await engine.bind("t", "slow")
    await topic.publish(numbered(50))
    await topic.publish(bodies("next"))
    await ack(quick, await quick.pop(51, one_ack=True))
    await asyncio.sleep(1)
    assert topic.topic.start == 50
    engine = await rig.restart()  # the count of holders has to survive
    slow = engine.queue("slow")
    delivery = await slow.pop(50, one_ack=True)
    assert texts(delivery) == [str(number) for number in range(50)]
    assert len(rig.disk.rows) == 2
    await ack(slow, delivery)
    assert len(rig.disk.rows) == 1, "the last holder has let go"


@pytest.mark.parametrize("reload", ["restart", "crash", "fault"])
async def test_who_holds_a_row_is_known_after_loading_anew(rig: Rig, reload: str) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    for name in ("q1", "q2"):
        await engine.create_queue(name)
        await engine.bind("t", name)
    await topic.publish(numbered(50))
    if reload == "fault":
        failing = [ReadOnly("once")]
        rig.journal.refuse_commit = lambda _: failing.pop() if failing else None
        with pytest.raises(ReadOnly):
            await topic.publish(bodies("refused"))
        await asyncio.sleep(5)
    else:
        engine = await (rig.restart() if reload == "restart" else rig.crash())
    for name in ("q1", "q2"):
        queue = engine.queue(name)
        delivery = await queue.pop(50, one_ack=True)
        assert len(texts(delivery)) == 50
        await ack(queue, delivery)
        assert len(rig.disk.rows) == 1
    assert len(texts(await engine.topic("t").read(0, 100))) == 50
    await engine.delete_topic("t")
    assert rig.disk.rows == {}


async def test_deleting_holders_releases_the_row_with_the_last(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    for name in ("q1", "q2"):
        await engine.create_queue(name)
        await engine.bind("t", name)
    await topic.publish(numbered(50))
    await engine.delete_queue("q1")
    assert rig.disk.rows
    await engine.delete_topic("t")
    assert rig.disk.rows
    assert len(await peeked(engine.queue("q2"))) == 50
    await engine.delete_queue("q2")
    assert rig.disk.rows == {}


async def test_bound_queues_retry_and_bury_like_any_other(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q", QueueSettings(max_attempts=2))
    await engine.bind("t", "q")
    await topic.publish(numbered(40))
    await nack(queue, await queue.pop(40, one_ack=True))
    await nack(queue, await queue.pop(40, one_ack=True), "bad")
    dead = await engine.queue("q_dlq").peek(100)
    assert [m.body for m in dead] == [b"%d" % number for number in range(40)]
    assert texts(await topic.read(0, 100)) == [str(number) for number in range(40)]


async def test_a_bound_fifo_queue_keeps_the_order_of_groups(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q.fifo", QueueSettings(fifo=True))
    await engine.bind("t", "q.fifo")
    await topic.publish(msgspec.structs.replace(bodies("a1", "b1", "a2"), groups=["a", "b", "a"]))
    first = await queue.pop(one_ack=True)
    assert texts(first) == ["a1"]
    assert texts(await queue.pop(10, one_ack=True)) == ["b1"]
    await ack(queue, first)
    assert texts(await queue.pop(10, one_ack=True)) == ["a2"]


async def test_retention_by_bytes_never_takes_the_newest(rig: Rig) -> None:
    """What was published last can be read, however large it is; what is at the limit stays."""
    engine = await rig.start()
    topic = await engine.create_topic("t", TopicSettings(retention_bytes=8_000))
    await topic.publish(numbered(40, size=100))
    await topic.publish(numbered(40, 40, size=100))
    assert (topic.info().start, topic.info().end) == (0, 80), "8,000 bytes are not beyond 8,000"
    await topic.publish(numbered(1, 80, size=1))
    assert (topic.info().start, topic.info().end) == (40, 81)
    for number in range(81, 85):
        await topic.publish(numbered(1, number, size=40_000))
        await settle()
        assert (topic.info().start, topic.info().end) == (number, number + 1)
        assert texts(await topic.read(0))[0].startswith(f"{number}.")
    topic = (await rig.restart()).topic("t")
    await settle()
    assert (topic.info().start, topic.info().end) == (84, 85)
    assert texts(await topic.read(0))[0].startswith("84.")


@pytest.mark.parametrize("restart", [False, True])
async def test_retention_by_count_age_and_bytes(rig: Rig, restart: bool) -> None:
    engine = await rig.start()
    settings = {
        "count": TopicSettings(retention_messages=10),
        "age": TopicSettings(retention_ms=10_000),
        "bytes": TopicSettings(retention_bytes=5_000),
    }
    for name, wanted in settings.items():
        topic = await engine.create_topic(name, wanted)
        for number in range(20):
            await topic.publish(numbered(1, number, 1_000))
    await asyncio.sleep(5)
    await engine.topic("age").publish(numbered(1, 20))
    if restart:
        engine = await rig.restart()
    await asyncio.sleep(5.1)
    assert engine.topic("count").topic.start == 10
    # What is not in memory has no times of its own: its chunk goes with its youngest message.
    assert engine.topic("age").topic.start == (0 if restart else 20)
    await asyncio.sleep(5)
    assert engine.topic("age").topic.start == 21
    kept = engine.topic("bytes").topic.kept_bytes
    assert kept <= 5_000 + 20_000, "small messages share a chunk, which goes as a whole"
    assert texts(await engine.topic("count").read(0, 1))[0].startswith("10")
    with pytest.raises(OffsetExpired, match="the oldest is 10"):
        await engine.topic("count").read(9, strict=True)


async def test_messages_too_large_are_refused(rig: Rig) -> None:
    topic = await (await rig.start()).create_topic("t", TopicSettings(max_message_bytes=10))
    with pytest.raises(MessageTooLarge):
        await topic.publish(bodies("short", "far too long"))
    assert await topic.publish(bodies("short")) == (0, 1)


async def test_a_producers_repetition_is_published_once(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await engine.bind("t", "q")
    assert await topic.publish(bodies("a"), "me", 1) == (0, 1)
    assert await topic.publish(bodies("a"), "me", 1) == (0, 1)
    engine = await rig.crash()
    assert await engine.topic("t").publish(bodies("a"), "me", 1) == (0, 1)
    assert await engine.topic("t").publish(bodies("b"), "me", 2) == (1, 2)
    assert await peeked(engine.queue("q")) == ["a", "b"]
    assert queue.name == "q"


# -- Archives -------------------------------------------------------------------------------


async def test_an_archive_shares_the_rows_of_its_queue(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(archive=True, archive_retention_ms=60_000))
    before = len(rig.journal.commits)
    await queue.push(numbered(50))
    await queue.push(bodies("one"))
    rows = [row for commit in rig.journal.commits[before:] for row, _ in commit.rows]
    assert len(rows) == 2, "the archive wrote rows of its own"
    await ack(queue, await queue.pop(100, one_ack=True))
    assert sorted(rig.disk.rows) == sorted(rows)
    engine = await rig.restart()
    archive = engine.topic("nexo.archive.q")
    assert texts(await archive.read(0, 100)) == [*map(str, range(50)), "one"]
    await asyncio.sleep(61)
    assert rig.disk.rows == {}


@pytest.mark.parametrize("count", [1, 20, 100])
async def test_the_archive_knows_the_priorities(rig: Rig, count: int) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    for priority in (0, 3, 3, 7):
        await queue.push(msgspec.structs.replace(numbered(count), priority=priority))
    for _ in range(2):
        shown: list[int] = []
        while len(shown) < 4 * count:
            for part in (await engine.topic("nexo.archive.q").read(len(shown), 1_000)).parts:
                column = part.batch().priority
                shown += [column] * part.count if isinstance(column, int) else column
        assert shown == [priority for priority in (0, 3, 3, 7) for _ in range(count)]
        engine = await rig.restart()


async def test_the_archive_lets_go_before_the_queue(rig: Rig) -> None:
    settings = QueueSettings(archive=True, archive_retention_ms=1_000)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(numbered(50))
    await asyncio.sleep(5)
    assert len(rig.disk.rows) == 1
    await ack(queue, await queue.pop(50, one_ack=True))
    assert rig.disk.rows == {}


async def test_the_archive_keeps_what_is_purged_at_once(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    pushes = [queue.push(numbered(50)), queue.push(bodies("small"))]
    purged = queue.purge()
    await asyncio.gather(*pushes)
    assert await purged == 51
    engine = await rig.restart()
    kept = texts(await engine.topic("nexo.archive.q").read(0, 100))
    assert kept == [*map(str, range(50)), "small"]


async def test_the_archive_keeps_what_expired_and_what_died(rig: Rig) -> None:
    engine = await rig.start()
    settings = QueueSettings(archive=True, max_attempts=1, retention_ms=5_000)
    queue = await engine.create_queue("q", settings)
    await queue.push(numbered(40))
    await nack(queue, await queue.pop(10, one_ack=True))
    await asyncio.sleep(6)
    info = queue.info()
    assert (info.depth, info.dead_lettered, info.expired) == (0, 10, 30)
    engine = await rig.restart()
    archive = engine.topic("nexo.archive.q")
    assert texts(await archive.read(0, 100)) == [*map(str, range(40))]
    with pytest.raises(InvalidArgument, match="is a system topic"):
        await archive.publish(bodies("x"))


async def test_switching_the_archive_on_and_deleting_the_queue(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("before"))
    await engine.edit_queue("q", QueueSettings(archive=True))
    await queue.push(bodies("kept"))
    await engine.delete_queue("q")
    assert texts(await engine.topic("nexo.archive.q").read(0)) == ["kept"]
    with pytest.raises(InvalidArgument, match="archive"):
        await engine.bind("nexo.archive.q", "q")


async def test_what_a_topic_brings_to_an_archived_queue_is_archived_too(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    await engine.bind("t", "q")
    await topic.publish(numbered(40))
    await queue.push(bodies("own"))
    archived = texts(await engine.topic("nexo.archive.q").read(0, 100))
    assert archived == [*map(str, range(40)), "own"]
    assert len(rig.disk.rows) == 2


async def test_deleting_a_topic_does_not_take_back_what_it_confirmed(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await engine.bind("t", "q")
    published = topic.publish(numbered(40))
    await engine.delete_topic("t")
    assert await published == (0, 40)
    assert len(await peeked(queue)) == 40, "it was confirmed, and the queue was bound"


async def test_a_binding_holds_for_what_was_accepted_before_it_ended(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    old, new = await engine.create_queue("old"), await engine.create_queue("new")
    await engine.bind("t", "old")
    topic.publish(bodies("a"))
    await asyncio.gather(engine.unbind("t", "old"), engine.bind("t", "new"))
    assert (await peeked(old), await peeked(new)) == (["a"], [])
