"""Topics: list, create, look at, edit, delete; read and publish; bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from nexo.doors.admin_http import needs
from nexo.doors.admin_http.operation import Answer, Operation
from nexo.doors.admin_http.values import (
    AtTopic,
    Count,
    NewTopicName,
    Paging,
    QueueName,
    page,
)
from nexo.vocabulary import spoken
from nexo.vocabulary.given import GivenTopicSettings, topic_settings_of
from nexo.vocabulary.start import EARLIEST, LATEST

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call
    from nexo.engine.engine import Engine

_ALL = "/api/v1/topics"
_ONE = "/api/v1/topics/{name}"
_BINDINGS = "/api/v1/topics/{name}/bindings"


class TopicFigures(msgspec.Struct, frozen=True):
    """A topic at one moment: offsets `start` to `end` (not included) can be read."""

    name: str
    start: Count
    end: Count
    kept_bytes: Count
    settings: spoken.TopicSettings
    bound_queues: list[str]


class TopicPage(msgspec.Struct, frozen=True):
    """`next` is what `after` takes for the following page; null: there is none."""

    topics: list[TopicFigures]
    next: str | None


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: NewTopicName
    settings: GivenTopicSettings = GivenTopicSettings()


class TopicEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only what is to change."""

    settings: GivenTopicSettings


class Binding(msgspec.Struct, frozen=True):
    """`where`: only messages with these attributes; null: all."""

    queue: str
    where: dict[str, str] | None


class Bindings(msgspec.Struct, frozen=True):
    bindings: list[Binding]


class NewBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `kept`, what the topic has kept so far goes to the queue too; with `create`, a queue
    that is not there is created."""

    queue: QueueName
    where: dict[str, str] | None = None
    kept: bool = False
    create: bool = False


class BoundQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue: Annotated[str, Meta(description="The queue that is bound.")]


def _described(engine: Engine, name: str) -> TopicFigures:
    info = engine.find_topic(name).info()
    settings = spoken.topic_settings(msgspec.to_builtins(info.settings))
    return TopicFigures(
        info.name, info.start, info.end, info.kept_bytes, settings, info.bound_queues
    )


async def _list(call: Call) -> TopicPage:
    names, following = page(call.engine.topics, call.query, call.caller.knows)
    return TopicPage([_described(call.engine, name) for name in names], following)


async def _create(call: Call) -> Answer:
    name = call.body.name
    is_new = name not in call.engine.topics
    await call.engine.create_topic(name, topic_settings_of(call.body.settings))
    return Answer(201 if is_new else 200, _described(call.engine, name))


async def _info(call: Call) -> TopicFigures:
    return _described(call.engine, call.path.name)


async def _edit(call: Call) -> TopicFigures:
    name = call.path.name
    now = call.engine.topic(name).topic.settings
    await call.engine.edit_topic(name, topic_settings_of(call.body.settings, now))
    return _described(call.engine, name)


async def _delete(call: Call) -> None:
    await call.engine.delete_topic(call.path.name)


async def _bindings(call: Call) -> Bindings:
    bound = call.engine.topic(call.path.name).bindings()
    return Bindings([Binding(queue, where) for queue, where in sorted(bound, key=_queue_of)])


async def _bind(call: Call) -> Bindings:
    wanted = call.body
    start = EARLIEST if wanted.kept else LATEST
    await call.engine.bind(call.path.name, wanted.queue, wanted.where or None, start, wanted.create)
    return await _bindings(call)


async def _unbind(call: Call) -> None:
    await call.engine.unbind(call.path.name, call.query.queue)


def _queue_of(bound: tuple[str, dict[str, str] | None]) -> str:
    return bound[0]


_CHANGE: dict[str, Any] = {"parameters": AtTopic, "refusals": (404,), "told": True}

TOPICS = (
    Operation(
        "list_topics",
        "GET",
        _ALL,
        "Topics with their figures and settings, by name",
        _list,
        needs.nothing,
        TopicPage,
        query=Paging,
    ),
    Operation(
        "create_topic",
        "POST",
        _ALL,
        "Create a topic; 200 if it is there with these settings",
        _create,
        needs.create_topic,
        TopicFigures,
        status=201,
        also=200,
        body=NewTopic,
        refusals=(409,),
        told=True,
    ),
    Operation(
        "topic_info",
        "GET",
        _ONE,
        "A topic with its figures and settings",
        _info,
        needs.KNOW,
        TopicFigures,
        parameters=AtTopic,
        refusals=(404,),
    ),
    Operation(
        "edit_topic",
        "PATCH",
        _ONE,
        "Change settings of a topic",
        _edit,
        needs.on(needs.MANAGE),
        TopicFigures,
        body=TopicEdit,
        **_CHANGE,
    ),
    Operation(
        "delete_topic",
        "DELETE",
        _ONE,
        "Delete a topic with all that it keeps",
        _delete,
        needs.on(needs.MANAGE),
        status=204,
        **_CHANGE,
    ),
    Operation(
        "list_bindings",
        "GET",
        _BINDINGS,
        "The queues that are bound to a topic",
        _bindings,
        needs.KNOW,
        Bindings,
        parameters=AtTopic,
        refusals=(404,),
    ),
    Operation(
        "bind",
        "POST",
        _BINDINGS,
        "Bind a queue: what is published from now on arrives there too",
        _bind,
        needs.bind,
        Bindings,
        body=NewBinding,
        **_CHANGE,
    ),
    Operation(
        "unbind",
        "DELETE",
        _BINDINGS,
        "Unbind a queue; what arrived stays",
        _unbind,
        needs.unbind,
        status=204,
        query=BoundQueue,
        **_CHANGE,
    ),
)
