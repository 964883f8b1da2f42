"""Export and import of definitions.

An import looks at all of the document first, and changes nothing if any of it is refused. Then
everything is defined in one step of the event loop, so that one commit has it all; only a large
document takes several. What is there and not in the document stays. Doing it twice changes nothing
the second time, so an import that the disk interrupted is simply done again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from nexo.engine.topics import check_bindable
from nexo.vocabulary.definitions import (
    BindingDefinition,
    Definitions,
    Imported,
    QueueDefinition,
    TopicDefinition,
)
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, TopicNotFound
from nexo.vocabulary.given import (
    given_queue_settings,
    given_topic_settings,
    queue_settings_of,
    topic_settings_of,
)
from nexo.vocabulary.names import RESERVED_PREFIX, check_name
from nexo.vocabulary.settings import (
    QueueSettings,
    TopicSettings,
    check_queue_settings,
    check_topic_settings,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from nexo.engine.engine import Engine

    Kind = Literal["queue", "topic", "binding"]

STEP_DEFINITIONS = 1_000  # that are made before others get their turn


class _Step(NamedTuple):
    """What is to be told of a definition, and what makes it so; None: it is so already."""

    told: Imported
    work: Callable[[], Awaitable[object]] | None


def export_definitions(engine: Engine) -> Definitions:
    """All that users have defined; the topics of the broker's own follow from it."""
    topics = [name for name in sorted(engine.topics) if not name.startswith(RESERVED_PREFIX)]
    return Definitions(
        queues=[
            QueueDefinition(name, given_queue_settings(engine.definition(name).settings))
            for name in sorted(engine.queues)
        ],
        topics=[
            TopicDefinition(name, given_topic_settings(engine.find_topic(name).topic.settings))
            for name in topics
        ],
        bindings=[
            BindingDefinition(name, queue, where)
            for name in topics
            for queue, where in sorted(
                engine.find_topic(name).bindings(), key=lambda bound: bound[0]
            )
        ],
    )


async def import_definitions(
    engine: Engine, wanted: Definitions, dry_run: bool = False
) -> list[Imported]:
    """Create and change what the document says; with `dry_run` only say what would be done."""
    if not dry_run and engine.refusal is not None:
        raise engine.refusal
    steps = [
        *_queue_steps(engine, wanted.queues),
        *_topic_steps(engine, wanted.topics),
        *_binding_steps(engine, wanted),
    ]
    works = [step.work for step in steps if step.work is not None and not dry_run]
    for start in range(0, len(works), STEP_DEFINITIONS):
        # All begin in their order before the commit that the first of them asks for, so a binding
        # finds its queue, and they share that commit.
        await asyncio.gather(*[work() for work in works[start : start + STEP_DEFINITIONS]])
    return [step.told for step in steps]


def _queue_steps(engine: Engine, wanted: list[QueueDefinition]) -> list[_Step]:
    _check_once("queue", [each.name for each in wanted])
    steps = []
    for each in wanted:
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
        steps.append(_queue_step(engine, each.name, settings, now))
    return steps


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
    told = Imported("queue", name, "changed", _differing(settings, now))
    return _Step(told, lambda: engine.edit_queue(name, settings))


def _topic_steps(engine: Engine, wanted: list[TopicDefinition]) -> list[_Step]:
    _check_once("topic", [each.name for each in wanted])
    steps = []
    for each in wanted:
        try:
            check_name(each.name, "topic")
            settings = topic_settings_of(each.settings)
            check_topic_settings(settings)
        except InvalidArgument as error:
            raise _about("topic", each.name, error) from None
        steps.append(_topic_step(engine, each.name, settings))
    return steps


def _topic_step(engine: Engine, name: str, settings: TopicSettings) -> _Step:
    known = engine.topics.get(name)
    if known is None:
        return _Step(_told("topic", name, "created"), lambda: engine.create_topic(name, settings))
    now = known.topic.settings
    if now == settings:
        return _Step(_told("topic", name, "unchanged"), None)
    told = Imported("topic", name, "changed", _differing(settings, now))
    return _Step(told, lambda: engine.edit_topic(name, settings))


def _binding_steps(engine: Engine, wanted: Definitions) -> list[_Step]:
    _check_once("binding", [f"{each.topic} {each.queue}" for each in wanted.bindings])
    topics = {each.name for each in wanted.topics} | engine.topics.keys()
    queues = {each.name for each in wanted.queues} | engine.queues.keys()
    bound = {
        name: dict(actor.bindings()) for name, actor in engine.topics.items() if wanted.bindings
    }
    steps = []
    for each in wanted.bindings:
        check_bindable(each.topic)
        hint = "define it in the document, or create it first"
        if each.topic not in topics:
            raise TopicNotFound(f"a binding names topic {each.topic!r:.100}", hint)
        if each.queue not in queues:
            raise QueueNotFound(f"a binding names queue {each.queue!r:.100}", hint)
        steps.append(_binding_step(engine, each, bound.get(each.topic, {})))
    return steps


def _binding_step(
    engine: Engine, wanted: BindingDefinition, bound: dict[str, dict[str, str] | None]
) -> _Step:
    name, where = f"{wanted.topic} {wanted.queue}", wanted.where or None
    if wanted.queue not in bound:
        told = _told("binding", name, "created")
    elif (bound[wanted.queue] or None) == where:
        return _Step(_told("binding", name, "unchanged"), None)
    else:
        told = Imported("binding", name, "changed", ["where"])
    return _Step(told, lambda: engine.bind(wanted.topic, wanted.queue, where))


def _told(kind: Kind, name: str, outcome: Literal["created", "unchanged"]) -> Imported:
    return Imported(kind, name, outcome)


def _differing(
    settings: QueueSettings | TopicSettings, now: QueueSettings | TopicSettings
) -> list[str]:
    """In the words of the document."""
    words = {"retention_ms": "retention_seconds"} if isinstance(now, TopicSettings) else {}
    return [
        words.get(field, field.removesuffix("_ms"))
        for field in now.__struct_fields__
        if getattr(settings, field) != getattr(now, field)
    ]


def _check_once(kind: Kind, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidArgument(f"{kind} {name!r:.100} is defined twice", "leave one out")
        seen.add(name)


def _about(kind: Kind, name: str, error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument(f"{kind} {name!r:.100}: {error.message}", error.hint)
