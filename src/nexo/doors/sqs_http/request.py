"""A request as the actions need it, read from ASGI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.doors.http.body import TooSlow, part_of, read_body, too_large
from nexo.doors.sqs_http.errors import SqsError
from nexo.vocabulary.errors import MessageTooLarge
from nexo.vocabulary.limits import SQS_BODY_S, SQS_TRACE_CHARS_MAX

if TYPE_CHECKING:
    from nexo.doors.http.body import Receive
    from nexo.doors.http.server import Reply


class Request:
    __slots__ = (
        "_origin_host",
        "_scheme",
        "accept",
        "authorization",
        "body",
        "content_type",
        "headers",
        "method",
        "path",
        "peer",
        "query",
        "raw_path",
        "receive",
        "reply",
        "target",
        "trace",
    )

    def __init__(self, scope: dict[str, Any], receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.receive = receive
        self.reply: Reply | None = scope.get("nexo.reply")
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.body = b""
        self.target = self.content_type = self.accept = b""
        self.authorization: bytes | None = None
        self.trace: str | None = None
        self._scheme: str = scope["scheme"]
        self._origin_host = b"localhost"
        for name, value in self.headers:
            if name == b"x-amz-target":
                self.target = value
            elif name == b"authorization":
                self.authorization = value
            elif name == b"host":
                self._origin_host = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"accept":
                self.accept = value
            elif name == b"x-amzn-trace-id" and len(value) <= SQS_TRACE_CHARS_MAX:
                self.trace = value.decode("latin-1")

    @property
    def origin(self) -> str:
        """Where the client found us: what it is told of queues must lead there again."""
        return f"{self._scheme}://{self._origin_host.decode('latin-1')}"

    async def read_body(self, bytes_max: int) -> None:
        try:
            if self.reply is not None and self.reply.is_whole:  # nearly all: no need for a timer
                self.body = part_of(await self.receive())
                if len(self.body) > bytes_max:
                    raise too_large(bytes_max)
            else:
                self.body = await read_body(self.receive, self.headers, bytes_max, SQS_BODY_S)
        except MessageTooLarge:
            raise SqsError(
                "RequestEntityTooLarge",
                f"A request must be shorter than {bytes_max} bytes.",
                status=413,
            ) from None
        except TooSlow:
            raise SqsError(
                "RequestTimeout", "The request body took too long to arrive.", status=408
            ) from None

    async def hung_up(self) -> None:
        """Wait until the client is gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
