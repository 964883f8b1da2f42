"""Following topics by a pattern."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.start import EARLIEST, LATEST, Start
from tests.engine.rig import Rig, bodies, numbered, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine

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


async def test_wrong_patterns(rig: Rig) -> None:
    engine = await rig.start()
    for pattern, count in (("a.>.b", 1), ("a.*", 0)):
        with pytest.raises(InvalidArgument):
            await engine.follow(pattern, {}, count, PLENTY, 0)
