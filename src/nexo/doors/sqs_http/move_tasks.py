"""StartMessageMoveTask, CancelMessageMoveTask and ListMessageMoveTasks."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING

import msgspec

from nexo.access.operations import On
from nexo.doors.sqs_http.errors import SqsError, invalid, invalid_value, not_found
from nexo.doors.sqs_http.queues import has_source
from nexo.doors.sqs_http.shapes import (
    CancelMessageMoveTaskResult,
    ListMessageMoveTasksResult,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTaskResult,
)
from nexo.vocabulary.errors import QueueNotFound

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.doors.sqs_http.shapes import (
        CancelMessageMoveTaskRequest,
        ListMessageMoveTasksRequest,
        StartMessageMoveTaskRequest,
    )
    from nexo.engine.move_tasks import EndedTask
    from nexo.engine.moves import MoveTask
    from nexo.engine.queue_actor import QueueActor

RATE_MAX = 500
RESULTS_MAX = 10


class _Handle(msgspec.Struct, frozen=True):
    """What a task handle says; the words are those of AWS."""

    task_id: str = msgspec.field(name="taskId")
    source_arn: str = msgspec.field(name="sourceArn")


async def start_message_move_task(
    call: Call, request: StartMessageMoveTaskRequest
) -> StartMessageMoveTaskResult:
    source = _queue(call, request.source_arn or "", "SourceArn")
    if not await has_source(call, source.name):
        raise invalid("Source queue must be configured as a Dead Letter Queue.")
    to = None
    if request.destination_arn is not None:
        to = _name(call, request.destination_arn, "DestinationArn", On.TARGET)
        await call.learn(to)
        target = call.settings_of(to)
        if target is None:
            raise not_found("DestinationArn")
        if target.fifo != source.settings.fifo:
            raise invalid("Destination queue must be same type of queue as the source.")
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid_value(
            rate, "MaxNumberOfMessagesPerSecond", f"Must be between 1 and {RATE_MAX}, if provided."
        )
    tasks = call.engine.tasks
    if any(not task.finished.done() for _, task in tasks.of(source)):
        raise invalid(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    number = await tasks.begin(source.name, to, None if rate is None else float(rate))
    return StartMessageMoveTaskResult(task_handle=_handle(call, source, number))


async def cancel_message_move_task(
    call: Call, request: CancelMessageMoveTaskRequest
) -> CancelMessageMoveTaskResult:
    handle = _read(request.task_handle or "")
    if call.addresses.named_by(handle.source_arn) is None:
        raise not_found("SourceArn")
    source = _queue(call, handle.source_arn, "SourceArn")
    for number, task in call.engine.tasks.of(source):
        if call.engine.tasks.id_of(number) == handle.task_id:
            if task.status != "RUNNING":
                raise SqsError("ResourceNotFoundException", "Only active tasks can be cancelled.")
            moved = call.engine.tasks.cancel(number).moved
            return CancelMessageMoveTaskResult(approximate_number_of_messages_moved=moved)
    raise SqsError("ResourceNotFoundException", "Task does not exist.")


async def list_message_move_tasks(
    call: Call, request: ListMessageMoveTasksRequest
) -> ListMessageMoveTasksResult:
    limit = 1 if request.max_results is None else request.max_results
    if not 1 <= limit <= RESULTS_MAX:
        raise invalid_value(limit, "MaxResults", f"Must be between 1 and {RESULTS_MAX}.")
    source = _queue(call, request.source_arn or "", "SourceArn")
    tasks = call.engine.tasks.of(source)[:limit]
    shown = [_shown(call, source, number, task) for number, task in tasks]
    return ListMessageMoveTasksResult(results=shown or None)


def _shown(
    call: Call, source: QueueActor, number: int, task: MoveTask | EndedTask
) -> ListMessageMoveTasksResultEntry:
    progress, failure = task.progress(), task.failure
    reason = None
    if failure is not None:
        is_gone = isinstance(failure, QueueNotFound)
        reason = "AWS.SimpleQueueService.NonExistentQueue" if is_gone else str(failure)
    return ListMessageMoveTasksResultEntry(
        task_handle=_handle(call, source, number) if task.status == "RUNNING" else None,
        status=task.status,
        source_arn=call.addresses.arn_of(source.name),
        destination_arn=None if task.to is None else call.addresses.arn_of(task.to),
        max_number_of_messages_per_second=None if task.rate is None else int(task.rate),
        approximate_number_of_messages_moved=progress.moved,
        approximate_number_of_messages_to_move=progress.total,
        failure_reason=reason,
        started_timestamp=task.started_ms,
    )


def _queue(call: Call, arn: str, parameter: str, on: On = On.QUEUE) -> QueueActor:
    """The queue of an ARN, if the caller may do with it what the action does. Asked in this
    order, so that who may not learns nothing of whether there is such a queue."""
    found = call.engine.queues.get(_name(call, arn, parameter, on))
    if found is None:
        raise not_found(parameter)
    return found


def _name(call: Call, arn: str, parameter: str, on: On) -> str:
    name = call.addresses.named_by(arn)
    if name is None:
        raise invalid_value(arn, parameter, "Must be an ARN of a queue.")
    call.check(name, on)
    return name


def _handle(call: Call, source: QueueActor, number: int) -> str:
    told = _Handle(call.engine.tasks.id_of(number), call.addresses.arn_of(source.name))
    return b64encode(msgspec.json.encode(told)).decode()


def source_of(handle: str) -> str:
    """The ARN of the queue whose messages a task moves; empty if it is no handle."""
    try:
        return _read(handle).source_arn
    except SqsError:
        return ""


def _read(text: str) -> _Handle:
    try:
        return msgspec.json.decode(b64decode(text, validate=True), type=_Handle)
    except (NotBase64, ValueError, msgspec.DecodeError, RecursionError):
        raise invalid("Value for parameter TaskHandle is invalid.") from None
