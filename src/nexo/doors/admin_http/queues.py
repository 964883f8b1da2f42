"""Queues: list, create, look at, edit, delete; purge, pause, resume, release."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from nexo.access.operations import Named, dead_letters_elsewhere
from nexo.doors.admin_http.operation import Answer, Operation
from nexo.doors.admin_http.request import AtQueue, Count, Moment, Paging, QueueName, moment
from nexo.engine.listing import page
from nexo.engine.peek import counts
from nexo.vocabulary.limits import ADMIN_TURN_QUEUES, CONSUMER_CHARS_MAX
from nexo.vocabulary.settings import queue_settings_of, user_queue_settings
from nexo.vocabulary.user_settings import GivenQueueSettings, QueueSettings

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.changes import QueueDefined


_ALL = "/api/v1/queues"
_ONE = "/api/v1/queues/{name}"


class QueueFigures(msgspec.Struct, frozen=True):
    """A queue at one moment. `depth` = ready + scheduled + in flight + unreadable; times in
    seconds; the totals count since the queue was created."""

    name: str
    depth: Count
    ready: Count
    scheduled: Count
    in_flight: Count
    oldest_age: float
    consumers: Count
    paused: bool
    settings: QueueSettings
    pushed: Count
    delivered: Count
    acked: Count
    nacked: Count
    timed_out: Count
    expired: Count
    dead_lettered: Count
    claimed: dict[str, int]
    unsealed: Count
    unreadable: Count
    claimed_age: dict[str, float]
    created_at: Moment
    modified_at: Moment


class QueuePage(msgspec.Struct, frozen=True):
    """Pass `next` as `after` to get the following page; it is null on the last page."""

    queues: list[QueueFigures]
    next: str | None


class NewQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: QueueName
    settings: GivenQueueSettings = GivenQueueSettings()


class QueueEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only the settings to change."""

    settings: GivenQueueSettings


class Purged(msgspec.Struct, frozen=True):
    purged: Count


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The consumer whose messages to return; with `dead_letter` they move to the dead-letter
    queue, with `forget` the consumer is removed from the list."""

    consumer: Annotated[str, Meta(min_length=1, max_length=CONSUMER_CHARS_MAX)]
    dead_letter: bool = False
    forget: bool = False


class Released(msgspec.Struct, frozen=True):
    released: Count


def described(engine: Engine, name: str) -> QueueFigures:
    return _figures(engine.find_queue(name), engine.definition(name))


def _figures(actor: QueueActor, defined: QueueDefined) -> QueueFigures:
    figures: dict[str, Any] = msgspec.structs.asdict(actor.info())
    figures["oldest_age"] = figures.pop("oldest_age_ms") / 1000
    ages_ms: dict[str, int] = figures.pop("claimed_age_ms")
    figures["claimed_age"] = {name: age_ms / 1000 for name, age_ms in ages_ms.items()}
    return QueueFigures(
        name=actor.name,
        consumers=counts(actor).consumers,
        settings=user_queue_settings(defined.settings),
        created_at=moment(defined.created_ms),
        modified_at=moment(defined.modified_ms),
        **figures,
    )


async def _list(call: Call) -> QueuePage:
    engine, query = call.engine, call.query
    names, following = await page(engine.queues, query.after, query.limit, call.caller.knows)
    queues = []
    for number, name in enumerate(names):
        if number % ADMIN_TURN_QUEUES == ADMIN_TURN_QUEUES - 1:
            await asyncio.sleep(0)
        if name in engine.queues:  # else it was deleted in between
            queues.append(_figures(engine.queues[name], engine.definition(name)))
    return QueuePage(queues, following)


async def _create(call: Call) -> Answer:
    name = call.body.name
    is_new = name not in call.engine.queues
    await call.engine.create_queue(name, queue_settings_of(call.body.settings))
    return Answer(201 if is_new else 200, described(call.engine, name))


async def _info(call: Call) -> QueueFigures:
    return described(call.engine, call.path.name)


async def _edit(call: Call) -> QueueFigures:
    name = call.path.name
    now = call.engine.definition(name).settings
    await call.engine.edit_queue(name, queue_settings_of(call.body.settings, now))
    return described(call.engine, name)


async def _delete(call: Call) -> None:
    await call.engine.delete_queue(call.path.name)


async def _purge(call: Call) -> Purged:
    return Purged(await call.engine.queue(call.path.name).purge())


async def _pause(call: Call) -> QueueFigures:
    await call.engine.queue(call.path.name).set_paused(True)
    return described(call.engine, call.path.name)


async def _resume(call: Call) -> QueueFigures:
    await call.engine.queue(call.path.name).set_paused(False)
    return described(call.engine, call.path.name)


async def _release(call: Call) -> Released:
    claims = call.engine.queue(call.path.name).claims
    body: Release = call.body
    return Released(await claims.release(body.consumer, body.dead_letter, body.forget))


def _named_new(call: Call) -> Named:
    return _named(call.body.name, call.body.settings)


def _named_edited(call: Call) -> Named:
    return _named(call.path.name, call.body.settings)


def _named(name: str, settings: GivenQueueSettings) -> Named:
    template = settings.dead_letter
    elsewhere = None if template is UNSET else dead_letters_elsewhere(name, str(template))
    return Named(queue=name, dead_letters=elsewhere)


_CHANGE: dict[str, Any] = {"parameters": AtQueue, "refusals": (404,)}

QUEUES = (
    Operation(
        "list_queues",
        "GET",
        _ALL,
        "List queues with their counts and settings, by name",
        _list,
        QueuePage,
        query=Paging,
    ),
    Operation(
        "create_queue",
        "POST",
        _ALL,
        "Create a queue; 200 if it exists with these settings",
        _create,
        QueueFigures,
        status=201,
        also=200,
        body=NewQueue,
        refusals=(409,),
        named=_named_new,
    ),
    Operation(
        "queue_info",
        "GET",
        _ONE,
        "A queue with its counts and settings",
        _info,
        QueueFigures,
        parameters=AtQueue,
        refusals=(404,),
    ),
    Operation(
        "edit_queue",
        "PATCH",
        _ONE,
        "Change settings of a queue",
        _edit,
        QueueFigures,
        body=QueueEdit,
        named=_named_edited,
        **_CHANGE,
    ),
    Operation(
        "delete_queue",
        "DELETE",
        _ONE,
        "Delete a queue and all its messages",
        _delete,
        status=204,
        **_CHANGE,
    ),
    Operation(
        "purge",
        "POST",
        f"{_ONE}/purge",
        "Delete all messages, including those in flight",
        _purge,
        Purged,
        **_CHANGE,
    ),
    Operation(
        "pause",
        "POST",
        f"{_ONE}/pause",
        "Stop deliveries; pushes are still accepted",
        _pause,
        QueueFigures,
        **_CHANGE,
    ),
    Operation(
        "resume",
        "POST",
        f"{_ONE}/resume",
        "Start deliveries again",
        _resume,
        QueueFigures,
        **_CHANGE,
    ),
    Operation(
        "release",
        "POST",
        f"{_ONE}/release",
        "Return messages claimed by a Spark query that keeps failing or is gone",
        _release,
        Released,
        body=Release,
        **_CHANGE,
    ),
)
