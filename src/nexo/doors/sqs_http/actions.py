"""Every action with the type of its request and the function that does it."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import OPERATIONS
from nexo.doors.sqs_http import shapes
from nexo.doors.sqs_http.accounts import GetCallerIdentityRequest, get_caller_identity
from nexo.doors.sqs_http.delete_message import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from nexo.doors.sqs_http.errors import missing
from nexo.doors.sqs_http.move_tasks import (
    cancel_message_move_task,
    list_message_move_tasks,
    start_message_move_task,
)
from nexo.doors.sqs_http.policies import add_permission, remove_permission
from nexo.doors.sqs_http.queue_attributes import get_queue_attributes, set_queue_attributes
from nexo.doors.sqs_http.queues import (
    create_queue,
    delete_queue,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queue_tags,
    list_queues,
    purge_queue,
    tag_queue,
    untag_queue,
)
from nexo.doors.sqs_http.receive_message import receive_message
from nexo.doors.sqs_http.send_message import send_message, send_message_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nexo.doors.sqs_http.call import Call, Later, Taken
    from nexo.doors.sqs_http.errors import SqsError

    # An action is done at once, or when the disk has it, or after some waiting.
    Result = shapes.Shape | None
    Handler = Callable[[Call, Any], Result | Later | Taken | Coroutine[Any, Any, Result]]


class Action:
    """`decode` takes JSON; `required` gives the values of the fields that a request must have. Who
    calls it must be allowed what its `operation` needs."""

    __slots__ = (
        "_lacking",
        "decode",
        "handler",
        "is_audited",
        "name",
        "operation",
        "request",
        "required",
    )

    decode: Callable[[bytes], shapes.Shape]
    required: Callable[[shapes.Shape], tuple[Any, ...]]

    def __init__(self, name: str, request: type[shapes.Shape], handler: Handler) -> None:
        self.name = name
        self.operation = OPERATIONS[_OPERATIONS[name]]
        self.request = request
        self.handler = handler
        self.decode = self._first_decode
        self.is_audited = self.operation.is_audited
        words = dict(zip(request.__struct_encode_fields__, request.__struct_fields__, strict=True))
        self._lacking = [(words[name], name) for name in shapes.REQUIRED.get(request, ())]
        self.required = _values_of([field for field, _ in self._lacking])

    def _first_decode(self, body: bytes) -> shapes.Shape:
        """Not at the start: most brokers never need most of the decoders."""
        self.decode = msgspec.json.Decoder(self.request).decode
        return self.decode(body)

    def lack(self, request: shapes.Shape) -> SqsError:
        """Why a request that lacks a field is refused: the first of those that it lacks."""
        return missing(next(n for f, n in self._lacking if getattr(request, f) is None))

    @property
    def is_change(self) -> bool:
        """Whether anything is different afterwards; a receive puts messages in flight."""
        return not self.name.startswith(("Get", "List"))


def _values_of(fields: list[str]) -> Callable[[shapes.Shape], tuple[Any, ...]]:
    """One call in C for all of them, for the hot path."""
    if not fields:
        return lambda _: ()
    return attrgetter(*fields, *fields[:1])  # of one alone it would give no tuple


# What each action is, in the words of all doors. Tags and policies are kept with the settings.
_OPERATIONS = {
    "AddPermission": "edit_queue",
    "CancelMessageMoveTask": "redrive_cancel",
    "ChangeMessageVisibility": "extend",
    "ChangeMessageVisibilityBatch": "extend",
    "CreateQueue": "create_queue",
    "DeleteMessage": "ack",
    "DeleteMessageBatch": "ack",
    "DeleteQueue": "delete_queue",
    "GetQueueAttributes": "queue_info",
    "GetQueueUrl": "queue_info",
    "ListDeadLetterSourceQueues": "queue_info",
    "ListMessageMoveTasks": "redrive_progress",
    "ListQueueTags": "queue_info",
    "ListQueues": "list_queues",
    "PurgeQueue": "purge",
    "ReceiveMessage": "pop",
    "RemovePermission": "edit_queue",
    "SendMessage": "push",
    "SendMessageBatch": "push",
    "SetQueueAttributes": "edit_queue",
    "StartMessageMoveTask": "redrive",
    "TagQueue": "edit_queue",
    "UntagQueue": "edit_queue",
    "GetCallerIdentity": "list_queues",  # it tells callers only who they are
}
_HANDLERS: dict[str, Handler] = {
    "AddPermission": add_permission,
    "CancelMessageMoveTask": cancel_message_move_task,
    "ChangeMessageVisibility": change_message_visibility,
    "ChangeMessageVisibilityBatch": change_message_visibility_batch,
    "CreateQueue": create_queue,
    "DeleteMessage": delete_message,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteQueue": delete_queue,
    "GetQueueAttributes": get_queue_attributes,
    "GetQueueUrl": get_queue_url,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "ListMessageMoveTasks": list_message_move_tasks,
    "ListQueueTags": list_queue_tags,
    "ListQueues": list_queues,
    "PurgeQueue": purge_queue,
    "ReceiveMessage": receive_message,
    "RemovePermission": remove_permission,
    "SendMessage": send_message,
    "SendMessageBatch": send_message_batch,
    "SetQueueAttributes": set_queue_attributes,
    "StartMessageMoveTask": start_message_move_task,
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
}
ACTIONS = {
    name: Action(name, shapes.ACTIONS[name][0], handler) for name, handler in _HANDLERS.items()
}
_WHO = "GetCallerIdentity"
STS_ACTIONS = {_WHO: Action(_WHO, GetCallerIdentityRequest, get_caller_identity)}
