"""What SQS refuses, in the words of AWS.

An error has two names: the code that the query protocol and SDKs show, and the shape that the JSON
protocol puts into `__type`. Where they differ, or where the status is not 400, the table says so.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import NamedTuple

from nexo.access.signature import SignatureRefused
from nexo.vocabulary import errors
from nexo.vocabulary.limits import SQS_TOLD_CHARS_MAX

_SQS = "com.amazonaws.sqs"
_CORAL = "com.amazon.coral.service"
_PREFIX = "AWS.SimpleQueueService."
_ID = re.compile(r"[!-~]{1,128}")


class _Kind(NamedTuple):
    code: str
    status: int = HTTPStatus.BAD_REQUEST
    namespace: str = _SQS


_KINDS = {
    "BatchEntryIdsNotDistinct": _Kind(_PREFIX + "BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": _Kind(_PREFIX + "BatchRequestTooLong"),
    "EmptyBatchRequest": _Kind(_PREFIX + "EmptyBatchRequest"),
    "InvalidBatchEntryId": _Kind(_PREFIX + "InvalidBatchEntryId"),
    "InvalidParameterValueException": _Kind("InvalidParameterValue", namespace=_CORAL),
    "MessageNotInflight": _Kind(_PREFIX + "MessageNotInflight"),
    "MissingRequiredParameterException": _Kind("MissingParameter", namespace=_CORAL),
    "OverLimit": _Kind("OverLimit", HTTPStatus.FORBIDDEN),
    "PurgeQueueInProgress": _Kind(_PREFIX + "PurgeQueueInProgress", HTTPStatus.FORBIDDEN),
    "QueueDeletedRecently": _Kind(_PREFIX + "QueueDeletedRecently"),
    "QueueDoesNotExist": _Kind(_PREFIX + "NonExistentQueue"),
    "QueueNameExists": _Kind("QueueAlreadyExists"),
    "ReceiptHandleIsInvalid": _Kind("ReceiptHandleIsInvalid", HTTPStatus.NOT_FOUND),
    "RequestThrottled": _Kind("RequestThrottled", HTTPStatus.FORBIDDEN),
    "ResourceNotFoundException": _Kind("ResourceNotFoundException", HTTPStatus.NOT_FOUND),
    "SerializationException": _Kind("SerializationException", namespace=_CORAL),
    "TooManyEntriesInBatchRequest": _Kind(_PREFIX + "TooManyEntriesInBatchRequest"),
    "UnknownOperationException": _Kind(
        "UnknownOperationException", HTTPStatus.NOT_FOUND, namespace=_CORAL
    ),
    "UnsupportedOperation": _Kind(_PREFIX + "UnsupportedOperation"),
}


class SqsError(Exception):
    """Refused. `shape` is the name in the JSON protocol, `code` the one in the query protocol."""

    def __init__(
        self, shape: str, message: str, *, status: int | None = None, is_sender: bool = True
    ) -> None:
        super().__init__(message)
        kind = _KINDS.get(shape) or _Kind(shape)
        self.shape = shape
        self.message = message
        self.code = kind.code
        self.status = int(status or kind.status)
        self.type_name = f"{kind.namespace}#{shape}"
        self.is_sender = is_sender

    @property
    def fault(self) -> str:
        return "Sender" if self.is_sender else "Receiver"


def invalid(message: str) -> SqsError:
    return SqsError("InvalidParameterValueException", message)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    shown = str(value)
    if len(shown) > SQS_TOLD_CHARS_MAX:
        shown = shown[:SQS_TOLD_CHARS_MAX] + "…"
    return invalid(f"Value {shown} for parameter {parameter} is invalid. Reason: {reason}")


def check_id(given: str, parameter: str) -> None:
    """Refuse an id of a group, of deduplication or of an attempt that is none."""
    if not _ID.fullmatch(given):
        raise invalid_value(
            given,
            parameter,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length.",
        )


def missing(parameter: str) -> SqsError:
    return SqsError(
        "MissingRequiredParameterException", f"The request must contain the parameter {parameter}."
    )


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name:.{SQS_TOLD_CHARS_MAX}}.")


def invalid_attribute(name: str, reason: str = "") -> SqsError:
    told = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.{told}")


def no_such_queue() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def not_found(parameter: str) -> SqsError:
    return SqsError(
        "ResourceNotFoundException",
        f"The resource that you specified for the {parameter} parameter doesn't exist.",
    )


def sqs_error(error: errors.NexoError | SqsError) -> SqsError:
    """What the guard or the engine refuses, as SQS would say it."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, SignatureRefused):
        return SqsError(error.aws_code, error.message, status=error.http_status)
    if isinstance(error, errors.QueueNotFound):
        return no_such_queue()
    if isinstance(error, errors.InvalidArgument):
        return invalid(str(error))
    if isinstance(error, errors.QueueFull):
        return SqsError("OverLimit", str(error))
    if isinstance(error, errors.RateLimited):
        return SqsError("RequestThrottled", str(error))
    if isinstance(error, errors.Forbidden):
        return SqsError("AccessDenied", str(error), status=403)
    if isinstance(error, errors.Unauthorized):  # by a token, which SQS does not know of
        return SqsError("InvalidClientTokenId", str(error), status=403)
    # What is our fault and passes: SDKs try again by themselves.
    status = 503 if error.retryable else 500
    shape = "ServiceUnavailable" if error.retryable else "InternalFailure"
    return SqsError(shape, str(error), status=status, is_sender=False)
