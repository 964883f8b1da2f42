"""Following topics by a pattern."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import pytest

from nexo.engine import followers
from nexo.vocabulary.errors import InvalidArgument, NexoError, RateLimited
from nexo.vocabulary.patterns import matches_pattern
from nexo.vocabulary.start import EARLIEST, LATEST, Start
from tests.engine.rig import Rig, bodies, numbered, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor
    from nexo.journal.port import Commit

PLENTY = 1 << 20


async def publish(engine: Engine, name: str, *words: str) -> None:
    if name not in engine.topics:
        await engine.create_topic(name)
    await engine.topic(name).publish(bodies(*words))


async def found(
    engine: Engine,
    offsets: dict[str, int],
    count: int = 1_000,
    bytes_max: int = PLENTY,
    wait_ms: int = 0,
) -> dict[str, list[str]]:
    """What is new, and go on from there."""
    got = await engine.follow("a.*", offsets, count, bytes_max, wait_ms)
    offsets.update({name: reading.next for name, reading in got})
    return {name: texts(reading) for name, reading in got}


async def test_starts(rig: Rig) -> None:
    engine = await rig.start()
    await publish(engine, "a.one", "x", "y")
    await asyncio.sleep(1)
    now_ms = engine.topic("a.one").topic.now_ms + 500
    await publish(engine, "a.two", "z")
    await publish(engine, "b.one", "other")
    assert await engine.starts("a.*", EARLIEST) == {"a.one": 0, "a.two": 0}
    assert await engine.starts("a.*", LATEST) == {"a.one": 2, "a.two": 1}
    assert await engine.starts("a.*", Start(time_ms=now_ms)) == {"a.one": 2, "a.two": 0}
    assert await engine.starts("a.one", Start(offset=1)) == {"a.one": 1}
    assert await engine.starts("c.>", LATEST) == {}


async def test_new_messages_and_new_topics_end_the_wait(rig: Rig) -> None:
    engine = await rig.start()
    await publish(engine, "a.one", "x")
    offsets = await engine.starts("a.*", EARLIEST)
    assert await found(engine, offsets) == {"a.one": ["x"]}
    for name, word in (("a.one", "y"), ("a.new", "z"), ("a.new", "more")):
        waiting = asyncio.create_task(found(engine, offsets, wait_ms=60_000))
        await settle()
        assert not waiting.done()
        await publish(engine, "b.one", "unheard")
        await publish(engine, name, word)
        assert await waiting == {name: [word]}
    began = asyncio.get_running_loop().time()
    assert await found(engine, offsets, wait_ms=3_000) == {}
    assert asyncio.get_running_loop().time() - began == pytest.approx(3)


async def test_everyone_gets_a_share(rig: Rig) -> None:
    engine = await rig.start()
    await engine.create_topic("a.busy")
    await engine.topic("a.busy").publish(numbered(500))
    await publish(engine, "a.calm", "x")
    await publish(engine, "a.quiet", "y")
    offsets: dict[str, int] = {}
    first = await found(engine, offsets, count=30)
    assert {name: len(words) for name, words in first.items()} == {
        "a.busy": 10,
        "a.calm": 1,
        "a.quiet": 1,
    }
    count = 10
    while got := await found(engine, offsets, count=30, bytes_max=60):
        count += len(got["a.busy"])
    assert count == 500


async def test_what_is_not_in_memory_is_read_back(rig: Rig) -> None:
    engine = await rig.start()
    for number in range(3):
        await engine.create_topic(f"a.{number}")
        await engine.topic(f"a.{number}").publish(numbered(40))
    engine = await rig.restart(memory_limit_bytes=200)
    offsets: dict[str, int] = {}
    got = await found(engine, offsets)
    assert {name: len(words) for name, words in got.items()} == dict.fromkeys(got, 40)
    assert len(got) == 3


async def test_deleted_topics_drop_out_and_may_come_again(rig: Rig) -> None:
    engine = await rig.start()
    await publish(engine, "a.one", "x", "y")
    await publish(engine, "a.two", "z")
    offsets: dict[str, int] = {}
    assert len(await found(engine, offsets)) == 2
    await engine.delete_topic("a.one")
    assert await found(engine, offsets) == {}
    await publish(engine, "a.one", "anew")
    assert await found(engine, offsets) == {"a.one": ["anew"]}


async def test_only_what_one_may_read(rig: Rig) -> None:
    engine = await rig.start()
    await publish(engine, "a.one", "x")
    await publish(engine, "a.secret", "y")
    got = await engine.follow("a.*", {}, 10, PLENTY, 0, lambda name: name != "a.secret")
    assert [name for name, _ in got] == ["a.one"]


async def test_what_one_may_read_also_holds_for_topics_that_come_later(rig: Rig) -> None:
    engine = await rig.start()

    def may_read(name: str) -> bool:
        return name.endswith("mine")

    for name in ("a.mine", "b.mine"):
        asked = engine.follow(">", {"a.mine": 1}, 10, PLENTY, 60_000, may_read)
        waiting = asyncio.create_task(asked)
        await settle()
        await publish(engine, f"{name}.not", "hidden")
        await settle()
        assert not waiting.done()
        await publish(engine, name, "x")
        assert [name for name, _ in await waiting] == [name]


async def test_waiting_costs_the_same_with_any_number_of_topics(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for each topic, and a wake-up looks at those with news alone."""

    class Offsets(dict[str, int]):
        """A dict that can be watched."""

    engine = await rig.start()
    topics = [f"a.{number}" for number in range(200)]
    for name in topics:
        await publish(engine, name, "x")
    looked: list[int] = []
    steps = followers._steps

    def counting(matching: dict[str, TopicActor]) -> Iterator[list[tuple[str, TopicActor]]]:
        looked.append(len(matching))
        return steps(matching)

    monkeypatch.setattr(followers, "_steps", counting)
    waiting, held = [], []
    for _ in range(30):
        offsets = Offsets(dict.fromkeys(topics, 1))
        held.append(weakref.ref(offsets))
        waiting.append(asyncio.create_task(engine.follow("a.*", offsets, 10, PLENTY, 60_000)))
        del offsets
    await settle()
    assert looked == [200] * 30
    assert not any(reference() for reference in held)
    assert not any(engine.topic(name)._listeners for name in topics)
    await publish(engine, "b.other", "unheard")
    await publish(engine, "a.7", "y")
    for each in waiting:
        assert [(found.topic, texts(found.reading)) for found in await each] == [("a.7", ["y"])]
    assert looked == [200] * 30 + [1] * 30


async def test_news_of_several_commits_before_a_reader_runs() -> None:
    """Of a topic that was created anew meanwhile all is news, whatever was told before."""
    waiting = followers.Waiting()
    first = {"a.one": 5, "a.two": 7}
    waiting.hear(first)
    waiting.hear({"a.one": 6, "a.two": 0, "a.new": 0})
    assert await waiting.news() == {"a.one": 5, "a.two": 0, "a.new": 0}
    assert first == {"a.one": 5, "a.two": 7}  # others look at it too
    waiting.hear({"a.one": 8})
    assert await waiting.news() == {"a.one": 8}


async def test_a_topic_that_is_created_anew_is_read_from_its_beginning(rig: Rig) -> None:
    engine = await rig.start()
    await publish(engine, "a.one", "x", "y")
    waiting = asyncio.create_task(engine.follow("a.*", {"a.one": 2}, 10, PLENTY, 60_000))
    await settle()
    await engine.delete_topic("a.one")
    await publish(engine, "a.one", "1", "2", "3")
    ((_, reading),) = await waiting
    assert texts(reading) == ["1", "2", "3"]


async def test_a_commit_that_seemed_to_fail_is_news(rig: Rig) -> None:
    """Its messages are on disk, and nobody was told: the journal tells, when it is loaded."""
    engine = await rig.start()
    await publish(engine, "a.one", "x")
    waiting = asyncio.create_task(engine.follow("a.*", {"a.one": 1}, 10, PLENTY, 60_000))
    await settle()
    journal = rig.journal
    failed: list[Commit] = []

    def written_and_failed(commit: Commit) -> Exception | None:
        if failed:
            return None
        failed.append(commit)
        journal.inner.commit(commit)
        return OSError("the disk did not answer")

    journal.refuse_commit = written_and_failed
    with pytest.raises(NexoError):
        await engine.topic("a.one").publish(bodies("y"))
    ((_, reading),) = await waiting
    assert texts(reading) == ["y"]


async def test_a_topic_whose_creation_failed_is_not_remembered(rig: Rig) -> None:
    engine = await rig.start()
    waiting = asyncio.create_task(engine.follow("a.*", {}, 10, PLENTY, 60_000))
    await settle()
    failures = [OSError("the disk did not answer")]
    rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
    with pytest.raises(NexoError):
        await engine.create_topic("a.one")
    await asyncio.sleep(10)  # until the disk is tried again
    await publish(engine, "a.one", "x")
    for asked in (waiting, engine.follow("a.*", {}, 10, PLENTY, 0)):
        ((_, reading),) = await asked
        assert texts(reading) == ["x"]


async def test_only_so_many_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "FOLLOWERS_MAX", 2)
    engine = await rig.start()
    waiting = [asyncio.create_task(engine.follow("a.*", {}, 10, PLENTY, 60_000)) for _ in range(2)]
    await settle()
    with pytest.raises(RateLimited):
        await engine.follow("b.*", {}, 10, PLENTY, 60_000)
    waiting[0].cancel()
    await settle()
    assert await engine.follow("b.*", {}, 10, PLENTY, 0) == []
    waiting[1].cancel()
    await settle()
    assert not engine._topics.followers._waiting


async def test_remembered_matches_follow_the_topics(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "FOLLOWED_MATCHES_KEPT", 6)
    engine = await rig.start()
    known = engine._topics.followers
    for pattern in ("a.*", "b.*", "nexo.>", "*.one"):
        assert await engine.starts(pattern, LATEST) == {
            name: 0 for name in engine.topics if matches_pattern(pattern, name)
        }
    for name in ("a.one", "b.one", "a.two"):
        await engine.create_topic(name)
        for pattern in ("a.*", "b.*", "nexo.>", "*.one"):
            meant = {name for name in engine.topics if matches_pattern(pattern, name)}
            assert set(await engine.starts(pattern, LATEST)) == meant
            assert known._matching_count == sum(1 + len(m) for m in known._matching.values())
    await engine.delete_topic("a.one")
    assert set(await engine.starts("a.*", LATEST)) == {"a.two"}
    assert set(await engine.starts("*.one", LATEST)) == {"b.one"}
    assert len(known._matching) < 4  # the longest unused were forgotten
    assert known._matching_count == sum(1 + len(m) for m in known._matching.values())


async def test_wrong_patterns(rig: Rig) -> None:
    engine = await rig.start()
    for pattern, count in (("a.>.b", 1), ("a.*", 0)):
        with pytest.raises(InvalidArgument):
            await engine.follow(pattern, {}, count, PLENTY, 0)
