"""What the engine refuses, as SQS would say it."""

from __future__ import annotations

from nexo.doors.sqs_http.errors import SqsError, invalid, no_such_queue
from nexo.vocabulary import errors


def sqs_error(error: errors.NexoError) -> SqsError:
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
