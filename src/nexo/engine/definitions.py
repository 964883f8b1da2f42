"""Export and import of definitions.

An import looks at all of the document first, and changes nothing if any of it is refused. Then
everything is defined in one step of the event loop, so that one commit has it all; only a large
document takes several. What is there and not in the document stays. Doing it twice changes nothing
the second time, so an import that the disk interrupted is simply done again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from nexo.engine.listing import steps
from nexo.engine.topics import check_bindable
from nexo.vocabulary import limits
from nexo.vocabulary.definitions import (
    BindingDefinition,
    Definitions,
    Imported,
    QueueDefinition,
    TopicDefinition,
)
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, TopicNotFound
from nexo.vocabulary.limits import DEFINITIONS_STEP
from nexo.vocabulary.names import RESERVED_PREFIX, check_name
from nexo.vocabulary.settings import (
    QueueSettings,
    TopicSettings,
    check_filter,
    check_queue_settings,
    check_room,
    check_topic_settings,
    differing_settings,
    given_queue_settings,
    given_topic_settings,
    queue_settings_of,
    topic_settings_of,
)
from nexo.vocabulary.sns import check_subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from nexo.engine.engine import Engine
    from nexo.vocabulary.changes import Bound

    Kind = Literal["queue", "topic", "binding"]


class Packed(NamedTuple):
    """A document in pieces. They are never joined: to copy tens of megabytes is a long step."""

    pieces: list[bytes | memoryview]


class Form(NamedTuple):
    """What stands around and between definitions in a document of a form."""

    encode: Callable[[object], bytes]
    head: bytes
    opening: Callable[[str, int], bytes]  # of a list, by its name and how many it has
    between: bytes
    closing: bytes
    tail: bytes


JSON = Form(
    msgspec.json.Encoder().encode,
    b'{"version":1',
    lambda name, _: b',"' + name.encode() + b'":[',
    b",",
    b"]",
    b"}",
)
_pack = msgspec.msgpack.Encoder().encode
MSGPACK = Form(
    _pack,
    b"\x84" + _pack("version") + _pack(1),  # a map of four fields
    lambda name, count: (
        _pack(name) + b"\xdd" + count.to_bytes(4, "big")
    ),  # the longest kind of list
    b"",
    b"",
    b"",
)


class _Step(NamedTuple):
    """What is to be told of a definition, and what makes it so; None: it is so already."""

    told: Imported
    work: Callable[[], Awaitable[object]] | None


async def export_definitions(engine: Engine) -> Definitions:
    """All that users have defined; the topics of the broker's own follow from it. While many are
    written down others have their turn, so what is defined meanwhile may or may not be there."""
    queues = [
        QueueDefinition(actor.name, given_queue_settings(actor.settings))
        async for actors in steps(engine.queues)
        for actor in actors
    ]
    topics: list[TopicDefinition] = []
    bindings: list[BindingDefinition] = []
    async for actors in steps(engine.topics):
        for actor in actors:
            if not actor.name.startswith(RESERVED_PREFIX):
                settings = given_topic_settings(actor.topic.settings)
                topics.append(TopicDefinition(actor.name, settings))
                bound = sorted(actor.bound_queues(), key=lambda each: each[0].name)
                bindings += [
                    BindingDefinition(actor.name, queue.name, how.where, how.sns)
                    for queue, how in bound
                ]
    if bindings:  # a queue may have come after they were listed
        known = {each.name for each in queues}
        elsewhere = engine.transfers.is_elsewhere  # in another shard of a cluster
        bindings = [each for each in bindings if each.queue in known or elsewhere(each.queue)]
    return Definitions(queues=queues, topics=topics, bindings=bindings)


async def packed_definitions(found: Definitions, form: Form) -> Packed:
    """The document as a door sends it, encoded some at a time: there may be very many, and to
    let go of them is work too. So the one that is given is used up."""
    pieces: list[bytes | memoryview] = [form.head]
    for name in ("queues", "topics", "bindings"):
        definitions: list[object] = getattr(found, name)
        definitions.reverse()
        pieces.append(form.opening(name, len(definitions)))
        between = b""
        while definitions:
            some = definitions[-DEFINITIONS_STEP:]
            del definitions[-DEFINITIONS_STEP:]
            pieces.append(between + form.between.join(map(form.encode, reversed(some))))
            between = form.between
            await asyncio.sleep(0)
        pieces.append(form.closing)
    return Packed([*pieces, form.tail])


async def import_definitions(
    engine: Engine, wanted: Definitions, dry_run: bool = False
) -> list[Imported]:
    """Create and change what the document says; with `dry_run` only say what would be done."""
    if not dry_run and engine.refusal is not None:
        raise engine.refusal
    wishes: list[_Step] = []
    async for some in _in_steps(_steps(engine, wanted)):
        wishes += some
    await _check_room(engine, Counter(told.kind for told, _ in wishes if told.outcome == "created"))
    works = [step.work for step in wishes if step.work is not None and not dry_run]
    for start in range(0, len(works), DEFINITIONS_STEP):
        # All begin in their order before the commit that the first of them asks for, so a binding
        # finds its queue, and they share that commit.
        await asyncio.gather(*[work() for work in works[start : start + DEFINITIONS_STEP]])
    return [step.told for step in wishes]


async def _check_room(engine: Engine, new: Counter[Kind]) -> None:
    """Refuse the document as a whole rather than stop in the middle of it."""
    bound = 0
    if new["binding"]:
        async for actors in steps(engine.topics):
            bound += sum(len(actor.bound_queues()) for actor in actors)
    check_room("queues", len(engine.queues) + new["queue"], limits.QUEUES_MAX)
    check_room("topics", len(engine.topics) + new["topic"], limits.TOPICS_MAX)
    check_room("bindings", bound + new["binding"], limits.BINDINGS_MAX)


async def _in_steps(steps: Iterator[_Step]) -> AsyncIterator[list[_Step]]:
    """What is to be done, some at a time: while a long document is looked at others have their
    turn, and may define something too."""
    while some := list(islice(steps, DEFINITIONS_STEP)):
        yield some
        await asyncio.sleep(0)


def _steps(engine: Engine, wanted: Definitions) -> Iterator[_Step]:
    yield from _queue_steps(engine, wanted.queues)
    yield from _topic_steps(engine, wanted.topics)
    yield from _binding_steps(engine, wanted)


def _queue_steps(engine: Engine, wanted: list[QueueDefinition]) -> Iterator[_Step]:
    seen: set[str] = set()
    for each in wanted:
        _check_once("queue", each.name, seen)
        known = engine.queues.get(each.name)
        now = known.queue.settings if known is not None else None
        try:
            check_name(each.name)
            settings = _whole(each, now)
            check_queue_settings(each.name, settings)
            if now is not None and now.fifo != settings.fifo:
                raise InvalidArgument(
                    "a queue cannot change between FIFO and standard", "give it another name"
                )
        except InvalidArgument as error:
            raise _about("queue", each.name, error) from None
        yield _queue_step(engine, each.name, settings, now)


def _whole(wanted: QueueDefinition, now: QueueSettings | None) -> QueueSettings:
    """What is not given has its default, except for what is the broker's own."""
    since_ms = now.deduplication_scope_since_ms if now is not None else 0
    return queue_settings_of(wanted.settings, QueueSettings(deduplication_scope_since_ms=since_ms))


def _queue_step(
    engine: Engine, name: str, settings: QueueSettings, now: QueueSettings | None
) -> _Step:
    if now is None:
        return _Step(_told("queue", name, "created"), lambda: engine.create_queue(name, settings))
    if now == settings:
        return _Step(_told("queue", name, "unchanged"), None)
    told = Imported("queue", name, "changed", differing_settings(settings, now))
    return _Step(told, lambda: engine.edit_queue(name, settings))


def _topic_steps(engine: Engine, wanted: list[TopicDefinition]) -> Iterator[_Step]:
    seen: set[str] = set()
    for each in wanted:
        _check_once("topic", each.name, seen)
        try:
            check_name(each.name, "topic")
            settings = topic_settings_of(each.settings)
            check_topic_settings(settings)
        except InvalidArgument as error:
            raise _about("topic", each.name, error) from None
        yield _topic_step(engine, each.name, settings)


def _topic_step(engine: Engine, name: str, settings: TopicSettings) -> _Step:
    known = engine.topics.get(name)
    if known is None:
        return _Step(_told("topic", name, "created"), lambda: engine.create_topic(name, settings))
    now = known.topic.settings
    if now == settings:
        return _Step(_told("topic", name, "unchanged"), None)
    told = Imported("topic", name, "changed", differing_settings(settings, now))
    return _Step(told, lambda: engine.edit_topic(name, settings))


def _binding_steps(engine: Engine, wanted: Definitions) -> Iterator[_Step]:
    if not wanted.bindings:
        return
    topics = {each.name for each in wanted.topics}
    queues = {each.name for each in wanted.queues}
    seen: set[str] = set()
    bound: dict[str, dict[str, Bound]] = {}  # by topic
    for each in wanted.bindings:
        _check_once("binding", f"{each.topic} {each.queue}", seen)
        check_bindable(each.topic)
        check_filter(each.where)
        check_subscription(each.sns)
        hint = "define it in the document, or create it first"
        if each.topic not in topics and each.topic not in engine.topics:
            raise TopicNotFound(f"a binding names topic {each.topic!r:.100}", hint)
        is_here = each.queue in queues or each.queue in engine.queues
        if not is_here and not engine.transfers.is_elsewhere(each.queue):
            raise QueueNotFound(f"a binding names queue {each.queue!r:.100}", hint)
        if each.topic not in bound:
            actor = engine.topics.get(each.topic)
            found = actor.bound_queues() if actor is not None else []
            bound[each.topic] = {queue.name: how for queue, how in found}
        yield _binding_step(engine, each, bound[each.topic].get(each.queue))


def _binding_step(engine: Engine, wanted: BindingDefinition, known: Bound | None) -> _Step:
    name, where, sns = f"{wanted.topic} {wanted.queue}", wanted.where or None, wanted.sns
    if known is None:
        told = _told("binding", name, "created")
    else:
        pairs = {"where": ((known.where or None), where), "sns": (known.sns, sns)}
        other = [field for field, (now, then) in pairs.items() if now != then]
        if not other:
            return _Step(_told("binding", name, "unchanged"), None)
        told = Imported("binding", name, "changed", other)
    return _Step(told, lambda: engine.bind(wanted.topic, wanted.queue, where, sns=sns))


def _told(kind: Kind, name: str, outcome: Literal["created", "unchanged"]) -> Imported:
    return Imported(kind, name, outcome)


def _check_once(kind: Kind, name: str, seen: set[str]) -> None:
    if name in seen:
        raise InvalidArgument(f"{kind} {name!r:.100} is defined twice", "leave one out")
    seen.add(name)


def _about(kind: Kind, name: str, error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument(f"{kind} {name!r:.100}: {error.message}", error.hint)
