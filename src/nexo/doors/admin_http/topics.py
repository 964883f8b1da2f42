"""Topics: list, create, look at, edit, delete; read and publish; bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import Named
from nexo.doors.admin_http.operation import Answer, Operation, named_by_body
from nexo.doors.admin_http.request import (
    AtTopic,
    Count,
    NewTopicName,
    Paging,
    QueueName,
)
from nexo.engine.listing import page
from nexo.vocabulary.definitions import Where
from nexo.vocabulary.settings import topic_settings_of, user_topic_settings
from nexo.vocabulary.sns import Subscription
from nexo.vocabulary.start import EARLIEST, LATEST
from nexo.vocabulary.user_settings import GivenTopicSettings, TopicSettings

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicInfo

_ALL = "/api/v1/topics"
_ONE = "/api/v1/topics/{name}"
_BINDINGS = "/api/v1/topics/{name}/bindings"


class TopicFigures(msgspec.Struct, frozen=True):
    """A topic at one moment: offsets `start` to `end` (not included) can be read."""

    name: str
    start: Count
    end: Count
    kept_bytes: Count
    settings: TopicSettings
    bound_queues: list[str]


class TopicPage(msgspec.Struct, frozen=True):
    """Pass `next` as `after` to get the following page; it is null on the last page."""

    topics: list[TopicFigures]
    next: str | None


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: NewTopicName
    settings: GivenTopicSettings = GivenTopicSettings()


class TopicEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only the settings to change."""

    settings: GivenTopicSettings


class Binding(msgspec.Struct, frozen=True):
    """`where`: only messages with these attributes; null: all. `sns`: it is a subscription that was
    made through SNS, with a filter of its own."""

    queue: str
    where: dict[str, str] | None
    sns: Subscription | None = None


class Bindings(msgspec.Struct, frozen=True):
    bindings: list[Binding]


class NewBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `kept`, what the topic has kept so far goes to the queue too; with `create`, a queue
    that is not there is created."""

    queue: QueueName
    where: Where | None = None
    kept: bool = False
    create: bool = False


class BoundQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue: QueueName


def _described(engine: Engine, name: str) -> TopicFigures:
    return _figures(engine.find_topic(name).info())


def _figures(info: TopicInfo) -> TopicFigures:
    settings = user_topic_settings(info.settings)
    return TopicFigures(
        info.name, info.start, info.end, info.kept_bytes, settings, info.bound_queues
    )


async def _list(call: Call) -> TopicPage:
    topics, query = call.engine.topics, call.query
    names, following = await page(topics, query.after, query.limit, call.caller.knows)
    found = [topics.get(name) for name in names]  # None: it was deleted in between
    return TopicPage([_figures(each.info()) for each in found if each is not None], following)


async def _create(call: Call) -> Answer:
    name = call.body.name
    is_new = name not in call.engine.topics
    await call.engine.create_topic(name, topic_settings_of(call.body.settings))
    return Answer(201 if is_new else 200, _described(call.engine, name))


async def _info(call: Call) -> TopicFigures:
    return _described(call.engine, call.path.name)


async def _edit(call: Call) -> TopicFigures:
    name = call.path.name
    now = call.engine.topic(name).info().settings
    await call.engine.edit_topic(name, topic_settings_of(call.body.settings, now))
    return _described(call.engine, name)


async def _delete(call: Call) -> None:
    await call.engine.delete_topic(call.path.name)


async def _bindings(call: Call) -> Bindings:
    bound = call.engine.topic(call.path.name).bound_queues()
    found = [Binding(queue.name, how.where, how.sns) for queue, how in bound]
    return Bindings(sorted(found, key=_queue_of))


async def _bind(call: Call) -> Bindings:
    wanted = call.body
    start = EARLIEST if wanted.kept else LATEST
    await call.engine.bind(call.path.name, wanted.queue, wanted.where or None, start, wanted.create)
    return await _bindings(call)


async def _unbind(call: Call) -> None:
    await call.engine.unbind(call.path.name, call.query.queue)


def _queue_of(bound: Binding) -> str:
    return bound.queue


def _named_bound(call: Call) -> Named:
    return Named(topic=call.path.name, queue=call.body.queue)


def _named_unbound(call: Call) -> Named:
    return Named(topic=call.path.name, queue=call.query.queue)


_CHANGE: dict[str, Any] = {"parameters": AtTopic, "refusals": (404,)}

TOPICS = (
    Operation(
        "list_topics",
        "GET",
        _ALL,
        "List topics with their counts and settings, by name",
        _list,
        TopicPage,
        query=Paging,
    ),
    Operation(
        "create_topic",
        "POST",
        _ALL,
        "Create a topic; 200 if it exists with these settings",
        _create,
        TopicFigures,
        status=201,
        also=200,
        body=NewTopic,
        refusals=(409,),
        named=named_by_body,
    ),
    Operation(
        "topic_info",
        "GET",
        _ONE,
        "A topic with its counts and settings",
        _info,
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
        TopicFigures,
        body=TopicEdit,
        **_CHANGE,
    ),
    Operation(
        "delete_topic",
        "DELETE",
        _ONE,
        "Delete a topic and its messages",
        _delete,
        status=204,
        **_CHANGE,
    ),
    Operation(
        "list_bindings",
        "GET",
        _BINDINGS,
        "Queues bound to a topic",
        _bindings,
        Bindings,
        parameters=AtTopic,
        refusals=(404,),
    ),
    Operation(
        "bind",
        "POST",
        _BINDINGS,
        "Bind a queue, so that it receives messages published from now on",
        _bind,
        Bindings,
        body=NewBinding,
        named=_named_bound,
        **_CHANGE,
    ),
    Operation(
        "unbind",
        "DELETE",
        _BINDINGS,
        "Unbind a queue; it keeps the messages it received",
        _unbind,
        status=204,
        query=BoundQueue,
        named=_named_unbound,
        **_CHANGE,
    ),
)
