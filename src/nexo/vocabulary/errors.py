"""Everything that can be refused, as one tree.

    NexoError                        code               retryable  http
    ├── InvalidArgument              invalid_argument              400   your fault: change the call
    │   ├── MessageTooLarge          message_too_large             413
    │   ├── InvalidBody              invalid_body                  400   a message cannot be read
    │   ├── ConnectionNotFound       connection_not_found          404
    │   ├── MessageNotFound          message_not_found             404   it is gone, or was never
    │   ├── NumberReused             number_reused                 409   for other messages
    │   └── RedriveNotFound          redrive_not_found             404
    ├── QueueNotFound                queue_not_found               404
    ├── QueueExists                  queue_exists                  409
    ├── TopicNotFound                topic_not_found               404
    ├── TopicExists                  topic_exists                  409
    ├── TokenNotFound                token_not_found               404
    ├── TokenExists                  token_exists                  409
    ├── QueueFull                    queue_full         yes        429
    ├── StaleReceipt                 stale_receipt                 409   an outdated delivery
    ├── WrongState                   wrong_state                   409   an ack out of order
    ├── Unauthorized                 unauthorized                  401
    ├── Forbidden                    forbidden                     403
    ├── RateLimited                  rate_limited       yes        429
    ├── Fenced                       fenced                        409   another driver took over
    ├── LeaseLost                    lease_lost                    409   a claim lapsed
    ├── OffsetExpired                offset_expired                410   retention passed it by
    ├── ReadOnly                     read_only          yes        503   our fault: the disk
    ├── NotReady                     not_ready          yes        503
    ├── Unreachable                  unreachable        yes        503
    ├── Timeout                      timeout            yes        504
    ├── VersionMismatch              version_mismatch              505
    └── DataCorrupt                  data_corrupt                  500   a checksum does not match

A code is for programs and never changes; the message says what happened; the hint says what to do.
"""

from __future__ import annotations

from typing import ClassVar, Self


class NexoError(Exception):
    """The root: catch this to catch everything that Nexo refuses."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def anew(self) -> Self:
        """The same error, to be raised by someone who keeps this one for others to come. Each
        time that an error is raised it takes hold of what was under way, for as long as it is
        kept: messages, connections, everything."""
        return type(self)(self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidArgument(NexoError):
    code = "invalid_argument"
    http_status = 400


class MessageTooLarge(InvalidArgument):
    code = "message_too_large"
    http_status = 413


class InvalidBody(InvalidArgument):
    code = "invalid_body"


class ConnectionNotFound(InvalidArgument):
    code = "connection_not_found"
    http_status = 404


class MessageNotFound(InvalidArgument):
    code = "message_not_found"
    http_status = 404


class RedriveNotFound(InvalidArgument):
    code = "redrive_not_found"
    http_status = 404


class NumberReused(InvalidArgument):
    code = "number_reused"
    http_status = 409


class QueueNotFound(NexoError):
    code = "queue_not_found"
    http_status = 404


class QueueExists(NexoError):
    code = "queue_exists"
    http_status = 409


class TopicNotFound(NexoError):
    code = "topic_not_found"
    http_status = 404


class TopicExists(NexoError):
    code = "topic_exists"
    http_status = 409


class TokenNotFound(NexoError):
    code = "token_not_found"
    http_status = 404


class TokenExists(NexoError):
    code = "token_exists"
    http_status = 409


class QueueFull(NexoError):
    code = "queue_full"
    retryable = True
    http_status = 429


class StaleReceipt(NexoError):
    code = "stale_receipt"
    http_status = 409


class WrongState(NexoError):
    code = "wrong_state"
    http_status = 409


class Unauthorized(NexoError):
    code = "unauthorized"
    http_status = 401


class Forbidden(NexoError):
    code = "forbidden"
    http_status = 403


class RateLimited(NexoError):
    code = "rate_limited"
    retryable = True
    http_status = 429


class Fenced(NexoError):
    code = "fenced"
    http_status = 409


class LeaseLost(NexoError):
    code = "lease_lost"
    http_status = 409


class OffsetExpired(NexoError):
    code = "offset_expired"
    http_status = 410


class ReadOnly(NexoError):
    code = "read_only"
    retryable = True
    http_status = 503


class NotReady(NexoError):
    code = "not_ready"
    retryable = True
    http_status = 503


class Unreachable(NexoError):
    code = "unreachable"
    retryable = True
    http_status = 503


class Timeout(NexoError):
    code = "timeout"
    retryable = True
    http_status = 504


class VersionMismatch(NexoError):
    code = "version_mismatch"
    http_status = 505


class DataCorrupt(NexoError):
    code = "data_corrupt"
    http_status = 500
