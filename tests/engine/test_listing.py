"""Lists of queues and topics: in order, by pages, and with turns for others in between."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.doors.console import history
from nexo.doors.console import queues as table
from nexo.doors.console import topics as topics_page
from nexo.doors.metrics_http import app as metrics
from nexo.doors.metrics_http.app import queue_lines, whole_lines
from nexo.doors.rpc_tcp.calls import list_queues, list_topics
from nexo.engine.definitions import (
    JSON,
    MSGPACK,
    export_definitions,
    import_definitions,
    packed_definitions,
)
from nexo.engine.listing import Named, page, steps
from nexo.vocabulary import limits
from nexo.vocabulary.definitions import (
    BindingDefinition,
    Definitions,
    QueueDefinition,
    TopicDefinition,
)
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import DEFINITIONS_STEP, LIST_STEP_NAMES
from nexo.vocabulary.settings import QueueSettings
from nexo.wire.calls import ListQueues, ListTopics
from tests.engine.rig import Rig, numbered
from tests.work import steps_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.definitions import Form
    from nexo.engine.engine import Engine

    Knows = Callable[[str], bool]


def everybody(name: str) -> bool:
    return True


def nobody(name: str) -> bool:
    return False


async def with_turns(work: Awaitable[object]) -> int:
    """How many turns others had until it was done."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def filled(rig: Rig, count: int) -> Engine:
    engine = await rig.start()
    names = [f"q{number:04d}" for number in range(count)]
    Random(3).shuffle(names)
    await asyncio.gather(*[engine.create_queue(name) for name in names])
    return engine


def test_names_stay_in_order_whatever_comes_and_goes() -> None:
    random, named, plain = Random(4), Named[int](), dict[str, int]()
    for step in range(3_000):
        name = f"n{random.randrange(300)}"
        what = random.randrange(5)
        if what < 2:
            named[name] = plain[name] = step
        elif what == 2 and name in plain:
            del named[name], plain[name]
        elif what == 3:
            assert named.pop(name, None) == plain.pop(name, None)
        elif not step % 7:
            after = f"n{random.randrange(300)}"
            found = [each for names in named.behind(after) for each in names]
            assert found == sorted(each for each in plain if each > after)
    assert list(named.items()) == list(plain.items()), "as a dict it is like any other"


def test_a_page_costs_the_same_however_many_there_are() -> None:
    few, many = Named[int](), Named[int]()
    for named, count in ((few, 1_000), (many, 20_000)):
        for number in range(count):
            named[f"q{number:06d}"] = number
        named.sort()

    def of(named: Named[int]) -> int:
        return steps_of(lambda: asyncio.run(_coroutine(page(named, "q000500", 50, everybody))))

    assert of(many) < 1.1 * of(few)


async def _coroutine(work: Awaitable[object]) -> None:
    await work


async def test_names_may_come_and_go_between_the_steps(rig: Rig) -> None:
    engine = await filled(rig, 3 * LIST_STEP_NAMES)
    found = []
    async for actors in steps(engine.queues):
        found += [actor.name for actor in actors]
        if len(found) == LIST_STEP_NAMES:
            await engine.delete_queue("q0000")
            await engine.delete_queue(f"q{LIST_STEP_NAMES:04d}")
            await engine.create_queue(f"q{LIST_STEP_NAMES:04d}a")
    names = [f"q{number:04d}" for number in range(3 * LIST_STEP_NAMES)]
    names[LIST_STEP_NAMES] += "a"
    assert found == names


@pytest.mark.parametrize("knows", [everybody, nobody])
async def test_a_list_lets_others_have_their_turn(rig: Rig, knows: Knows) -> None:
    engine = await filled(rig, 10 * LIST_STEP_NAMES)
    assert await with_turns(list_queues(engine, ListQueues(), knows)) >= 10
    assert await with_turns(page(engine.queues, "", 10**6, knows)) >= 10


async def test_pages_over_rpc_are_the_whole_list(rig: Rig) -> None:
    engine = await filled(rig, 2 * LIST_STEP_NAMES + 7)
    await engine.create_topic("t")

    async def listed(wanted: ListQueues) -> list[str]:
        pieces = await list_queues(engine, wanted, lambda name: name != "q0005")
        return [each["name"] for each in msgspec.msgpack.decode(b"".join(pieces))]

    whole = [name for name in sorted(engine.queues) if name != "q0005"]
    assert await listed(ListQueues()) == whole
    found: list[str] = []
    while len(some := await listed(ListQueues(found[-1] if found else "", 30))) == 30:
        found += some
    assert found + some == whole
    (topic,) = msgspec.msgpack.decode(b"".join(await list_topics(engine, ListTopics(), everybody)))
    assert topic["name"] == "t"


async def test_metrics_of_many_queues_come_in_small_slices(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The busiest have series of their own, the sums are those of all."""
    monkeypatch.setattr(metrics, "METRICS_QUEUES_MAX", 50)
    monkeypatch.setattr(metrics, "METRICS_RANKED_STEP", 20)
    monkeypatch.setattr(metrics, "METRICS_STEP_QUEUES", 10)
    engine = await filled(rig, 500)
    busy = [f"q{number:04d}" for number in range(3, 500, 10)]
    await asyncio.gather(*[engine.queue(name).push(numbered(7)) for name in busy])
    await asyncio.gather(*[engine.queue(f"q{at:04d}").push(numbered(1)) for at in (0, 499)])
    lines = "".join(queue_lines(engine)).splitlines()
    depths = {
        line.split('"')[1]: float(line.split()[-1])
        for line in lines
        if line.startswith("nexo_queue_depth{")
    }
    assert depths == {**dict.fromkeys(busy, 7.0), "": 2.0}
    assert "nexo_unshown_queues 450" in lines
    usage = await engine.backups.usage()
    told = f"nexo_bookkeeping_memory_bytes {engine.memory.bookkeeping_bytes}"
    assert told in whole_lines(engine, Alone(), usage).splitlines()
    of_all = steps_of(lambda: whole_lines(engine, Alone(), usage))
    few = most_of_a_slice(engine)
    await asyncio.gather(*[engine.create_queue(f"r{number:04d}") for number in range(1_500)])
    assert most_of_a_slice(engine) < 1.5 * few, "a slice of 2,000 queues is longer than of 500"
    usage = await engine.backups.usage()
    assert steps_of(lambda: whole_lines(engine, Alone(), usage)) < 1.5 * of_all


class Alone:
    """The surroundings of an engine that has none."""

    version = "0"

    def connections(self) -> dict[str, int]:
        return {}

    def disk_free_bytes(self) -> int | None:
        return None


def most_of_a_slice(engine: Engine) -> int:
    slices, most, told = queue_lines(engine), 0, list[str | None]()
    while None not in told:
        most = max(most, steps_of(lambda: told.append(next(slices, None))))
    return most


async def letters_and_depths(rig: Rig) -> Engine:
    engine = await filled(rig, 3 * LIST_STEP_NAMES)
    for number in (7, 8):
        dead = await engine.create_queue(f"q{number:04d}_dlq")
        await dead.push(numbered(number))
    names = [f"q{number:04d}" for number in range(0, 3 * LIST_STEP_NAMES, 9)]
    await asyncio.gather(
        *[engine.queue(name).push(numbered(1 + at % 20)) for at, name in enumerate(names)]
    )
    return engine


async def test_the_console_walks_through_many_queues_in_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await letters_and_depths(rig)
    at_once = history.Sampler(engine)
    taken = at_once.take()
    assert taken.dead_letters == 15
    monkeypatch.setattr(history, "CONSOLE_STEP_QUEUES", 10)
    in_steps = history.Sampler(engine)
    assert in_steps.fresh().depth == 0, "so many are not looked at in one step"
    assert await with_turns(in_steps.walk()) >= 3
    assert in_steps.fresh() == taken
    assert in_steps.deepest == at_once.deepest
    assert len(in_steps.deepest) == limits.CONSOLE_DEEPEST_SHOWN
    letters = in_steps.dead_letter_queues
    assert letters.sources() == {"q0007_dlq": ["q0007"], "q0008_dlq": ["q0008"]}
    assert set(letters.names()) == {"q0007_dlq", "q0008_dlq"}
    in_steps.sample(await in_steps.walk())
    assert in_steps.points.last == [], "no rate is known before the second look"


@pytest.mark.parametrize("sort", ["name", "-name", "depth", "-depth"])
@pytest.mark.parametrize("text", ["", "1"])
async def test_the_table_of_the_console_is_chosen_in_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, sort: str, text: str
) -> None:
    engine = await letters_and_depths(rig)
    monkeypatch.setattr(table, "CONSOLE_ROWS_SHOWN", 10)
    monkeypatch.setattr(table, "CONSOLE_SORTED_MAX", 40)
    asked = {"sort": sort, "filter": text, "page": "3"}
    visit: Any = SimpleNamespace(
        engine=engine,
        caller=SimpleNamespace(knows=lambda name: name != "q0001"),
        query=lambda field, default="": asked.get(field, default),
        shared=SimpleNamespace(sampler=SimpleNamespace(rates={})),
    )
    chosen = await table.choose(visit)
    known = [engine.queues[name] for name in sorted(engine.queues) if name != "q0001"]
    found = [actor for actor in known if text in actor.name]
    rates: Any = {}
    figure = table.SORTS[sort.removeprefix("-")][1]
    found.sort(key=lambda actor: figure(actor, rates), reverse=sort.startswith("-"))
    assert chosen.actors == found[20:30]
    assert (chosen.known, chosen.matching) == (len(known), len(found))
    assert chosen.pages == (-(-len(found) // 10) if sort == "name" else 4)
    assert await with_turns(table.choose(visit)) >= 3


@pytest.mark.parametrize("text", ["", "t00", "nexo.", "nothing"])
async def test_the_topics_of_the_console_are_chosen_in_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(topics_page, "CONSOLE_TOPICS_SHOWN", 250)
    engine = await rig.start()
    names = [f"t{number:04d}" for number in range(3 * LIST_STEP_NAMES)]
    await asyncio.gather(*[engine.create_topic(name) for name in names])
    archived = QueueSettings(archive=True)
    await asyncio.gather(*[engine.create_queue(f"q{number}", archived) for number in range(20)])
    visit: Any = SimpleNamespace(
        engine=engine,
        caller=SimpleNamespace(knows=lambda name: name != "t0001"),
        query=lambda field, default="": text,
    )
    chosen = await topics_page.choose(visit)
    own = sorted(f"nexo.archive.q{number}" for number in range(20))
    expected = [name for name in names + own if text in name and name != "t0001"]
    assert chosen.matching == len(expected)
    assert [info.name for info in chosen.infos(visit)] == expected[:250]
    before = chosen.made_of(chosen.infos(visit))
    assert await with_turns(topics_page.choose(visit)) >= 3
    if "t0002" in expected:
        await engine.delete_topic("t0002")
        assert chosen.made_of(chosen.infos(visit)) != before


@pytest.mark.parametrize("form", [JSON, MSGPACK])
@pytest.mark.parametrize("count", [0, 1, 3 * DEFINITIONS_STEP])
async def test_definitions_are_packed_in_steps(rig: Rig, form: Form, count: int) -> None:
    engine = await filled(rig, count)
    await engine.create_topic("t")
    if count:
        await engine.bind("t", "q0000", {"kind": "wanted"})
    found, given, again = [await export_definitions(engine) for _ in range(3)]
    encoded = b"".join((await packed_definitions(given, form)).pieces)
    decode = msgspec.json.decode if form is JSON else msgspec.msgpack.decode
    assert decode(encoded, type=Definitions) == found
    assert await with_turns(packed_definitions(again, form)) >= count // DEFINITIONS_STEP


@pytest.mark.parametrize("dry_run", [False, True])
async def test_definitions_are_looked_at_in_steps(rig: Rig, dry_run: bool) -> None:
    """Also those of which nothing has to be done."""
    engine = await rig.start()
    names = [f"n{number:04d}" for number in range(3 * DEFINITIONS_STEP)]
    wanted = Definitions(
        queues=[QueueDefinition(name) for name in names],
        topics=[TopicDefinition(name) for name in names],
        bindings=[BindingDefinition(name, name) for name in names],
    )
    await import_definitions(engine, wanted)
    told = await import_definitions(engine, wanted, dry_run)
    assert [each.outcome for each in told] == ["unchanged"] * 3 * len(names)
    assert await with_turns(import_definitions(engine, wanted, dry_run)) >= 9


async def test_an_import_counts_the_bindings_of_all_topics(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await filled(rig, 1)
    names = [f"t{number:04d}" for number in range(LIST_STEP_NAMES + 20)]
    await asyncio.gather(*[engine.create_topic(name) for name in [*names, "one-more"]])
    await asyncio.gather(*[engine.bind(name, "q0000") for name in names])
    monkeypatch.setattr(limits, "BINDINGS_MAX", len(names))
    wanted = Definitions(bindings=[BindingDefinition("one-more", "q0000")])
    with pytest.raises(InvalidArgument, match="bindings"):
        await import_definitions(engine, wanted, dry_run=True)  # before anything is bound
    monkeypatch.setattr(limits, "BINDINGS_MAX", len(names) + 1)
    assert [each.outcome for each in await import_definitions(engine, wanted)] == ["created"]
