"""What SNS refuses, in the words of AWS."""

from __future__ import annotations

from http import HTTPStatus
from typing import Self

from nexo.vocabulary import errors
from nexo.vocabulary.limits import SQS_TOLD_CHARS_MAX

_STATUSES = {
    "AuthorizationError": HTTPStatus.FORBIDDEN,
    "FilterPolicyLimitExceeded": HTTPStatus.FORBIDDEN,
    "InternalError": HTTPStatus.INTERNAL_SERVER_ERROR,
    "NotFound": HTTPStatus.NOT_FOUND,
    "ResourceNotFound": HTTPStatus.NOT_FOUND,
    "ServiceUnavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "SubscriptionLimitExceeded": HTTPStatus.FORBIDDEN,
    "Throttled": HTTPStatus.TOO_MANY_REQUESTS,
    "TopicLimitExceeded": HTTPStatus.FORBIDDEN,
}
_OURS = frozenset({"InternalError", "ServiceUnavailable"})


class SnsError(errors.NexoError):
    """Refused, with the code that SNS has for it."""

    code = "sns_refused"
    http_status = 400

    def __init__(self, aws_code: str, message: str) -> None:
        super().__init__(message)
        self.aws_code = aws_code
        self.status = int(_STATUSES.get(aws_code, HTTPStatus.BAD_REQUEST))

    @property
    def fault(self) -> str:
        return "Receiver" if self.aws_code in _OURS else "Sender"

    def anew(self) -> Self:
        return type(self)(self.aws_code, self.message)


def invalid(reason: str) -> SnsError:
    return SnsError("InvalidParameter", f"Invalid parameter: {reason}")


def bad_value(message: str) -> SnsError:
    """A message attribute that SNS does not take."""
    return SnsError("ParameterValueInvalid", message)


def missing(parameter: str) -> SnsError:
    name = parameter[:1].lower() + parameter[1:]
    return SnsError(
        "ValidationError",
        f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: "
        "Member must not be null",
    )


def no_topic() -> SnsError:
    return SnsError("NotFound", "Topic does not exist")


def no_subscription() -> SnsError:
    return SnsError("NotFound", "Subscription does not exist")


def told(text: str) -> str:
    """What a request said, as an error repeats it."""
    return text if len(text) <= SQS_TOLD_CHARS_MAX else text[:SQS_TOLD_CHARS_MAX] + "…"


def sns_error(error: errors.NexoError) -> SnsError:
    """What the engine refuses, as SNS would say it."""
    if isinstance(error, SnsError):
        return error
    if isinstance(error, errors.TopicNotFound):
        return no_topic()
    if isinstance(error, errors.QueueNotFound):
        return invalid(f"Endpoint Reason: {error}")
    if isinstance(error, errors.InvalidArgument):
        return invalid(str(error))
    if isinstance(error, errors.Forbidden):
        return SnsError("AuthorizationError", str(error))
    if isinstance(error, errors.Unauthorized):
        return SnsError("AuthorizationError", str(error))
    if isinstance(error, errors.RateLimited):
        return SnsError("Throttled", str(error))
    # What is our fault and passes: SDKs try again by themselves.
    return SnsError("ServiceUnavailable" if error.retryable else "InternalError", str(error))
