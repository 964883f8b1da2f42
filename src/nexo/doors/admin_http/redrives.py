"""Redrives: dead letters back to where they came from, as tasks that can be asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from nexo.access.operations import Named, check_redrive_known
from nexo.doors.admin_http.chosen import Choice, choice_of
from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import (
    AtQueue,
    Count,
    Moment,
    QueueName,
    Refusal,
    moment,
    refusal_of,
)
from nexo.vocabulary.errors import InvalidArgument, NexoError
from nexo.vocabulary.limits import RECEIVE_RATE_MAX

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call

_ONE = "/api/v1/redrives/{task}"
_STATES: dict[str, Literal["running", "cancelling", "cancelled", "completed", "failed"]] = {
    "RUNNING": "running",
    "CANCELLING": "cancelling",
    "CANCELLED": "cancelled",
    "COMPLETED": "completed",
    "FAILED": "failed",
}


class NewRedrive(Choice, frozen=True, forbid_unknown_fields=True):
    """All messages, or the selected ones. `to`: target queue, by default the source of each
    message; `rate`: maximum messages per second."""

    to: QueueName | None = None
    rate: Annotated[float, Meta(gt=0, le=RECEIVE_RATE_MAX)] | None = None


class AtTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: Annotated[int, Meta(ge=1, le=2**53, description="The number of a redrive.")]


class Redrive(msgspec.Struct, frozen=True):
    """Progress of a redrive or a discard. `skipped` messages stay: they have no source queue, or
    are claimed by a Spark query. `total` grows while messages are being selected."""

    task: int
    action: Literal["redrive", "discard"]
    queue: str
    to: str | None
    rate: float | None
    started_at: Moment
    status: Literal["running", "cancelling", "cancelled", "completed", "failed"]
    moved: Count
    total: Count
    skipped: Count
    finished: bool
    error: Refusal | None


def _described(call: Call, number: int) -> Redrive:
    task = call.engine.tasks.find(number)
    progress, failure = task.progress(), task.failure
    return Redrive(
        task=number,
        action="discard" if task.verb == "discard" else "redrive",
        queue=task.source.name,
        to=task.to,
        rate=task.rate,
        started_at=moment(task.started_ms),
        status=_STATES[task.status],
        moved=progress.moved,
        total=progress.total,
        skipped=progress.skipped,
        finished=progress.finished,
        error=refusal_of(failure) if isinstance(failure, NexoError) else None,
    )


async def _begin(call: Call) -> Redrive:
    wanted, tasks = call.body, call.engine.tasks
    choice = choice_of(wanted)
    if choice.is_all:
        return _described(call, await tasks.begin(call.path.name, wanted.to, wanted.rate))
    task = await call.engine.hands.redrive(call.path.name, wanted.to, wanted.rate, choice)
    return _described(call, tasks.keep(task))


async def _discard(call: Call) -> Redrive:
    choice = choice_of(call.body)
    if choice.is_all:
        raise InvalidArgument(
            "no messages selected", "give ids, reason or text; purge deletes all messages"
        )
    task = await call.engine.hands.discard(call.path.name, choice)
    return _described(call, call.engine.tasks.keep(task))


async def _progress(call: Call) -> Redrive:
    return _described(call, call.path.task)


async def _cancel(call: Call) -> Redrive:
    call.engine.tasks.cancel(call.path.task)
    return _described(call, call.path.task)


def _named_redrive(call: Call) -> Named:
    return Named(queue=call.path.name, target=call.body.to)


def _named_task(call: Call) -> Named:
    source = call.engine.tasks.source_of(call.path.task)
    check_redrive_known(call.caller, source, call.path.task)
    return Named(queue=source)


REDRIVES = (
    Operation(
        "redrive",
        "POST",
        "/api/v1/queues/{name}/redrive",
        "Move dead letters back to the queues they came from",
        _begin,
        Redrive,
        status=202,
        parameters=AtQueue,
        body=NewRedrive,
        refusals=(404,),
        named=_named_redrive,
    ),
    Operation(
        "discard",
        "POST",
        "/api/v1/queues/{name}/discard",
        "Permanently delete selected messages; its progress is that of a redrive",
        _discard,
        Redrive,
        status=202,
        parameters=AtQueue,
        body=Choice,
        refusals=(404,),
    ),
    Operation(
        "redrive_progress",
        "GET",
        _ONE,
        "Progress of a redrive or a discard",
        _progress,
        Redrive,
        parameters=AtTask,
        refusals=(404,),
        named=_named_task,
    ),
    Operation(
        "redrive_cancel",
        "DELETE",
        _ONE,
        "Cancel a redrive or a discard; finished steps stay",
        _cancel,
        Redrive,
        parameters=AtTask,
        refusals=(404,),
        named=_named_task,
    ),
)
