"""What AWS says when it refuses, and how a test asks for it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

_SERVICE = "AWS.SimpleQueueService."
NO_QUEUE = _SERVICE + "NonExistentQueue"
NO_QUEUE_MESSAGE = "The specified queue does not exist"
INVALID_VALUE = "InvalidParameterValue"
MISSING = "MissingParameter"

# The code that SDKs show, and the shape that the JSON protocol names.
SHAPES = {
    NO_QUEUE: "QueueDoesNotExist",
    "QueueAlreadyExists": "QueueNameExists",
    INVALID_VALUE: "InvalidParameterValueException",
    MISSING: "MissingRequiredParameterException",
    _SERVICE + "TooManyEntriesInBatchRequest": "TooManyEntriesInBatchRequest",
    _SERVICE + "EmptyBatchRequest": "EmptyBatchRequest",
    _SERVICE + "BatchEntryIdsNotDistinct": "BatchEntryIdsNotDistinct",
    _SERVICE + "InvalidBatchEntryId": "InvalidBatchEntryId",
    _SERVICE + "BatchRequestTooLong": "BatchRequestTooLong",
    _SERVICE + "MessageNotInflight": "MessageNotInflight",
    _SERVICE + "UnsupportedOperation": "UnsupportedOperation",
    _SERVICE + "PurgeQueueInProgress": "PurgeQueueInProgress",
    _SERVICE + "QueueDeletedRecently": "QueueDeletedRecently",
    "ReceiptHandleIsInvalid": "ReceiptHandleIsInvalid",
    "InvalidMessageContents": "InvalidMessageContents",
    "InvalidAttributeName": "InvalidAttributeName",
    "InvalidAttributeValue": "InvalidAttributeValue",
    "ResourceNotFoundException": "ResourceNotFoundException",
    "OverLimit": "OverLimit",
}


@contextmanager
def refused(code: str, message: str = "") -> Iterator[dict[str, Any]]:
    """The call must be refused with this code, and a message that begins with this text."""
    told: dict[str, Any] = {}
    with pytest.raises(ClientError) as caught:
        yield told
    response: Any = caught.value.response
    told |= response
    error = response["Error"]
    assert error["Code"] == code, error
    assert error["Message"].startswith(message), f"{error['Message']!r} is not {message!r}"
    assert error["Type"] == "Sender"
    if "QueryErrorCode" in error:  # the JSON protocol
        assert error["QueryErrorCode"] == SHAPES.get(code, code)
    assert 400 <= response["ResponseMetadata"]["HTTPStatusCode"] < 500
    assert re.fullmatch(r"[\w-]{20,}", response["ResponseMetadata"]["RequestId"])
