"""The requests and results of SQS, one struct a shape of the service model. Made by

    python -m scripts.sqs_shapes > src/nexo/doors/sqs_http/shapes.py

and a test compares it with the model. Every member may be missing: what must not is in `REQUIRED`,
and is refused in AWS's words.
"""

from __future__ import annotations

from msgspec import Struct, field


def wire_name(name: str) -> str:
    """`md5_of_body` is `MD5OfBody` on the wire."""
    words = [w.upper() if w in ("md5", "aws") else w.capitalize() for w in name.split("_")]
    return "".join(words)


class Shape(Struct, frozen=True, omit_defaults=True, gc=False, rename=wire_name):
    """What all of them have in common."""


class AddPermissionRequest(Shape, frozen=True):
    queue_url: str | None = None
    label: str | None = None
    aws_account_ids: list[str] | None = None
    actions: list[str] | None = None


class CancelMessageMoveTaskRequest(Shape, frozen=True):
    task_handle: str | None = None


class CancelMessageMoveTaskResult(Shape, frozen=True):
    approximate_number_of_messages_moved: int | None = None


class ChangeMessageVisibilityRequest(Shape, frozen=True):
    queue_url: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchRequestEntry(Shape, frozen=True):
    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchRequest(Shape, frozen=True):
    queue_url: str | None = None
    entries: list[ChangeMessageVisibilityBatchRequestEntry] | None = None


class ChangeMessageVisibilityBatchResultEntry(Shape, frozen=True):
    id: str | None = None


class BatchResultErrorEntry(Shape, frozen=True):
    id: str | None = None
    sender_fault: bool | None = None
    code: str | None = None
    message: str | None = None


class ChangeMessageVisibilityBatchResult(Shape, frozen=True):
    successful: list[ChangeMessageVisibilityBatchResultEntry] | None = None
    failed: list[BatchResultErrorEntry] | None = None


class CreateQueueRequest(Shape, frozen=True):
    queue_name: str | None = None
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = field(default=None, name="tags")


class CreateQueueResult(Shape, frozen=True):
    queue_url: str | None = None


class DeleteMessageRequest(Shape, frozen=True):
    queue_url: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatchRequestEntry(Shape, frozen=True):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatchRequest(Shape, frozen=True):
    queue_url: str | None = None
    entries: list[DeleteMessageBatchRequestEntry] | None = None


class DeleteMessageBatchResultEntry(Shape, frozen=True):
    id: str | None = None


class DeleteMessageBatchResult(Shape, frozen=True):
    successful: list[DeleteMessageBatchResultEntry] | None = None
    failed: list[BatchResultErrorEntry] | None = None


class DeleteQueueRequest(Shape, frozen=True):
    queue_url: str | None = None


class GetQueueAttributesRequest(Shape, frozen=True):
    queue_url: str | None = None
    attribute_names: list[str] | None = None


class GetQueueAttributesResult(Shape, frozen=True):
    attributes: dict[str, str] | None = None


class GetQueueUrlRequest(Shape, frozen=True):
    queue_name: str | None = None
    queue_owner_aws_account_id: str | None = None


class GetQueueUrlResult(Shape, frozen=True):
    queue_url: str | None = None


class ListDeadLetterSourceQueuesRequest(Shape, frozen=True):
    queue_url: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueuesResult(Shape, frozen=True):
    queue_urls: list[str] | None = field(default=None, name="queueUrls")
    next_token: str | None = None


class ListMessageMoveTasksRequest(Shape, frozen=True):
    source_arn: str | None = None
    max_results: int | None = None


class ListMessageMoveTasksResultEntry(Shape, frozen=True):
    task_handle: str | None = None
    status: str | None = None
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int | None = None


class ListMessageMoveTasksResult(Shape, frozen=True):
    results: list[ListMessageMoveTasksResultEntry] | None = None


class ListQueueTagsRequest(Shape, frozen=True):
    queue_url: str | None = None


class ListQueueTagsResult(Shape, frozen=True):
    tags: dict[str, str] | None = None


class ListQueuesRequest(Shape, frozen=True):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListQueuesResult(Shape, frozen=True):
    queue_urls: list[str] | None = None
    next_token: str | None = None


class PurgeQueueRequest(Shape, frozen=True):
    queue_url: str | None = None


class ReceiveMessageRequest(Shape, frozen=True):
    queue_url: str | None = None
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class MessageAttributeValue(Shape, frozen=True):
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None
    data_type: str | None = None


class Message(Shape, frozen=True):
    message_id: str | None = None
    receipt_handle: str | None = None
    md5_of_body: str | None = None
    body: str | None = None
    attributes: dict[str, str] | None = None
    md5_of_message_attributes: str | None = None
    message_attributes: dict[str, MessageAttributeValue] | None = None


class ReceiveMessageResult(Shape, frozen=True):
    messages: list[Message] | None = None


class RemovePermissionRequest(Shape, frozen=True):
    queue_url: str | None = None
    label: str | None = None


class MessageSystemAttributeValue(Shape, frozen=True):
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None
    data_type: str | None = None


class SendMessageRequest(Shape, frozen=True):
    queue_url: str | None = None
    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] | None = None
    message_system_attributes: dict[str, MessageSystemAttributeValue] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageResult(Shape, frozen=True):
    md5_of_message_body: str | None = None
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    message_id: str | None = None
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(Shape, frozen=True):
    id: str | None = None
    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: dict[str, MessageAttributeValue] | None = None
    message_system_attributes: dict[str, MessageSystemAttributeValue] | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchRequest(Shape, frozen=True):
    queue_url: str | None = None
    entries: list[SendMessageBatchRequestEntry] | None = None


class SendMessageBatchResultEntry(Shape, frozen=True):
    id: str | None = None
    message_id: str | None = None
    md5_of_message_body: str | None = None
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchResult(Shape, frozen=True):
    successful: list[SendMessageBatchResultEntry] | None = None
    failed: list[BatchResultErrorEntry] | None = None


class SetQueueAttributesRequest(Shape, frozen=True):
    queue_url: str | None = None
    attributes: dict[str, str] | None = None


class StartMessageMoveTaskRequest(Shape, frozen=True):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskResult(Shape, frozen=True):
    task_handle: str | None = None


class TagQueueRequest(Shape, frozen=True):
    queue_url: str | None = None
    tags: dict[str, str] | None = None


class UntagQueueRequest(Shape, frozen=True):
    queue_url: str | None = None
    tag_keys: list[str] | None = None


REQUIRED: dict[type[Shape], tuple[str, ...]] = {
    AddPermissionRequest: ("QueueUrl", "Label", "AWSAccountIds", "Actions"),
    CancelMessageMoveTaskRequest: ("TaskHandle",),
    ChangeMessageVisibilityRequest: ("QueueUrl", "ReceiptHandle", "VisibilityTimeout"),
    ChangeMessageVisibilityBatchRequestEntry: ("Id", "ReceiptHandle"),
    ChangeMessageVisibilityBatchRequest: ("QueueUrl", "Entries"),
    CreateQueueRequest: ("QueueName",),
    DeleteMessageRequest: ("QueueUrl", "ReceiptHandle"),
    DeleteMessageBatchRequestEntry: ("Id", "ReceiptHandle"),
    DeleteMessageBatchRequest: ("QueueUrl", "Entries"),
    DeleteQueueRequest: ("QueueUrl",),
    GetQueueAttributesRequest: ("QueueUrl",),
    GetQueueUrlRequest: ("QueueName",),
    ListDeadLetterSourceQueuesRequest: ("QueueUrl",),
    ListMessageMoveTasksRequest: ("SourceArn",),
    ListQueueTagsRequest: ("QueueUrl",),
    PurgeQueueRequest: ("QueueUrl",),
    ReceiveMessageRequest: ("QueueUrl",),
    RemovePermissionRequest: ("QueueUrl", "Label"),
    SendMessageRequest: ("QueueUrl", "MessageBody"),
    SendMessageBatchRequestEntry: ("Id", "MessageBody"),
    SendMessageBatchRequest: ("QueueUrl", "Entries"),
    SetQueueAttributesRequest: ("QueueUrl", "Attributes"),
    StartMessageMoveTaskRequest: ("SourceArn",),
    TagQueueRequest: ("QueueUrl", "Tags"),
    UntagQueueRequest: ("QueueUrl", "TagKeys"),
}

# Each action with its request, and its result if it has one.
ACTIONS: dict[str, tuple[type[Shape], type[Shape] | None]] = {
    "AddPermission": (AddPermissionRequest, None),
    "CancelMessageMoveTask": (CancelMessageMoveTaskRequest, CancelMessageMoveTaskResult),
    "ChangeMessageVisibility": (ChangeMessageVisibilityRequest, None),
    "ChangeMessageVisibilityBatch": (
        ChangeMessageVisibilityBatchRequest,
        ChangeMessageVisibilityBatchResult,
    ),
    "CreateQueue": (CreateQueueRequest, CreateQueueResult),
    "DeleteMessage": (DeleteMessageRequest, None),
    "DeleteMessageBatch": (DeleteMessageBatchRequest, DeleteMessageBatchResult),
    "DeleteQueue": (DeleteQueueRequest, None),
    "GetQueueAttributes": (GetQueueAttributesRequest, GetQueueAttributesResult),
    "GetQueueUrl": (GetQueueUrlRequest, GetQueueUrlResult),
    "ListDeadLetterSourceQueues": (
        ListDeadLetterSourceQueuesRequest,
        ListDeadLetterSourceQueuesResult,
    ),
    "ListMessageMoveTasks": (ListMessageMoveTasksRequest, ListMessageMoveTasksResult),
    "ListQueueTags": (ListQueueTagsRequest, ListQueueTagsResult),
    "ListQueues": (ListQueuesRequest, ListQueuesResult),
    "PurgeQueue": (PurgeQueueRequest, None),
    "ReceiveMessage": (ReceiveMessageRequest, ReceiveMessageResult),
    "RemovePermission": (RemovePermissionRequest, None),
    "SendMessage": (SendMessageRequest, SendMessageResult),
    "SendMessageBatch": (SendMessageBatchRequest, SendMessageBatchResult),
    "SetQueueAttributes": (SetQueueAttributesRequest, None),
    "StartMessageMoveTask": (StartMessageMoveTaskRequest, StartMessageMoveTaskResult),
    "TagQueue": (TagQueueRequest, None),
    "UntagQueue": (UntagQueueRequest, None),
}
