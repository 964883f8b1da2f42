"""Redrives: dead letters back to where they came from, as tasks that can be asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from nexo.access.operations import Named, check_redrive_known
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
from nexo.vocabulary.errors import NexoError
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


class NewRedrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`to`: a queue for all of them, else each goes to where it came from; `rate`: messages a
    second, at most."""

    to: QueueName | None = None
    rate: Annotated[float, Meta(gt=0, le=RECEIVE_RATE_MAX)] | None = None


class AtTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: Annotated[int, Meta(ge=1, le=2**53, description="The number of a redrive.")]


class Redrive(msgspec.Struct, frozen=True):
    """How far a redrive is. `skipped` messages have no queue to go back to, and stay."""

    task: int
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
    wanted = call.body
    return _described(call, await call.engine.tasks.begin(call.path.name, wanted.to, wanted.rate))


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
        "Move the messages of a dead-letter queue back to where they came from",
        _begin,
        Redrive,
        status=202,
        parameters=AtQueue,
        body=NewRedrive,
        refusals=(404,),
        named=_named_redrive,
    ),
    Operation(
        "redrive_progress",
        "GET",
        _ONE,
        "How far a redrive is",
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
        "Stop a redrive; what was moved stays moved",
        _cancel,
        Redrive,
        parameters=AtTask,
        refusals=(404,),
        named=_named_task,
    ),
)
