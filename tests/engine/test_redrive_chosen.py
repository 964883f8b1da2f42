"""Chosen dead letters go back to work, with other bodies if wanted; what was not chosen stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.engine.moves import Chosen
from nexo.vocabulary.errors import MessageTooLarge
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, bodies, nack, numbered, peeked, texts

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.vocabulary.batch import Batch


async def bury(engine: Engine, name: str, batch: Batch, fifo: bool = False) -> None:
    """Let a batch die in a queue whose dead letters are in `graves`."""
    settings = QueueSettings(max_attempts=1, dead_letter="graves", fifo=fifo)
    queue = await engine.create_queue(name, settings)
    await queue.push(batch)
    while (delivery := await queue.pop(10_000, one_ack=True)).parts:
        await nack(queue, delivery, "broken")


async def seqs_of(engine: Engine, *wanted: str) -> list[int]:
    seen = await engine.queue("graves").peek(1_000)
    return sorted(each.seq for each in seen if each.body.decode() in wanted)


async def test_those_go_and_the_others_stay_in_order(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(6))
    await bury(engine, "b", bodies("b1", "b2"))
    ids = {m.body: m.id for m in await engine.queue("graves").peek(100)}
    task = await engine.redrive("graves", chosen=Chosen(await seqs_of(engine, "1", "2", "4", "b2")))
    assert await task.finished == 4
    engine = await rig.restart()
    assert await peeked(engine.queue("graves")) == ["0", "3", "5", "b1"]
    assert await peeked(engine.queue("a")) == ["1", "2", "4"]
    assert await peeked(engine.queue("b")) == ["b2"]
    for name in ("a", "b"):
        back = await engine.queue(name).peek(100)
        assert all(m.id == ids[m.body] and m.dead_letter is None for m in back)
    assert texts(await engine.queue("graves").pop(10)) == ["0", "3", "5", "b1"]


async def test_a_second_time_there_is_nothing_to_move(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(4))
    chosen = Chosen(await seqs_of(engine, "1", "3"))
    assert await (await engine.redrive("graves", chosen=chosen)).finished == 2
    assert await (await engine.redrive("graves", chosen=chosen)).finished == 0
    assert await peeked(engine.queue("a")) == ["1", "3"]


async def test_what_is_in_flight_is_passed_over(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(3))
    chosen = Chosen(await seqs_of(engine, "0", "2"))
    assert texts(await engine.queue("graves").pop(1)) == ["0"]
    assert await (await engine.redrive("graves", chosen=chosen)).finished == 1
    assert await peeked(engine.queue("a")) == ["2"]


async def test_with_new_bodies(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(4))
    await engine.create_queue("repair")
    chosen = Chosen(await seqs_of(engine, "1", "2"), [b"one", b""])
    task = await engine.redrive("graves", "repair", chosen=chosen)
    assert await task.finished == 2
    engine = await rig.restart()
    assert await peeked(engine.queue("repair")) == ["one", ""]
    assert await peeked(engine.queue("graves")) == ["0", "3"]


async def test_a_body_that_the_target_does_not_take_moves_nothing(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(3))
    small = QueueSettings(max_message_bytes=5)
    await engine.create_queue("small", small)
    chosen = Chosen(await seqs_of(engine, "0", "1"), [b"short", b"longer"])
    task = await engine.redrive("graves", "small", chosen=chosen)
    with pytest.raises(MessageTooLarge, match="6 bytes"):
        await task.finished
    assert await peeked(engine.queue("graves")) == ["0", "1", "2"]
    assert engine.queue("small").info().depth == 0
    assert texts(await engine.queue("graves").pop(10)) == ["0", "1", "2"]


async def test_those_without_a_queue_to_go_back_to_stay(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1"))
    await engine.queue("graves").push(bodies("by hand"))
    task = await engine.redrive("graves", chosen=Chosen(await seqs_of(engine, "a1", "by hand")))
    assert await task.finished == 1
    assert task.progress().skipped == 1
    assert await peeked(engine.queue("graves")) == ["by hand"]


@pytest.mark.parametrize("fifo", [False, True])
async def test_groups_and_priorities(rig: Rig, fifo: bool) -> None:
    engine = await rig.start()
    names = [str(number) for number in range(8)]
    batch = msgspec.structs.replace(bodies(*names), groups=["x", "y"] * 4)
    if not fifo:
        batch = msgspec.structs.replace(batch, priority=bytes([0, 0, 9, 9] * 2))
    await bury(engine, "a", batch, fifo)
    task = await engine.redrive("graves", chosen=Chosen(await seqs_of(engine, *names[2:6])))
    assert await task.finished == 4
    engine = await rig.restart()
    assert sorted(await peeked(engine.queue("graves"))) == ["0", "1", "6", "7"]
    assert sorted(await peeked(engine.queue("a"))) == ["2", "3", "4", "5"]
    assert sorted(texts(await engine.queue("graves").pop(10))) == ["0", "1", "6", "7"]


async def test_contents_that_are_on_disk_alone_are_read_back(rig: Rig) -> None:
    engine = await rig.start(memory_limit_bytes=1)
    await bury(engine, "a", numbered(300))
    engine = await rig.restart()
    chosen = Chosen(await seqs_of(engine, "7", "299"))
    assert await (await engine.redrive("graves", chosen=chosen)).finished == 2
    assert await peeked(engine.queue("a")) == ["7", "299"]
    assert engine.queue("graves").info().depth == 298
