"""A request as the actions need it, read from ASGI."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.doors.sqs_http.errors import SqsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Receive = Callable[[], Awaitable[dict[str, Any]]]

# A message of 1 MiB may be six times as long in JSON (\u0000) and three times in a form (%00), and
# a batch holds no more than one message may.
BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_S = 20.0  # how long a body may take to arrive


class Gone(Exception):
    """The client hung up before its request was whole."""


class Request:
    __slots__ = (
        "_length",
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
        self.reply: Callable[[int, bytes, bytes], bool] | None = scope.get("nexo.reply")
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.body = b""
        self.target = self.content_type = self.accept = b""
        self.authorization: bytes | None = None
        self.trace: str | None = None
        self._length = 0
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
            elif name == b"content-length":
                self._length = int(value)  # the parser has refused what is no number
            elif name == b"x-amzn-trace-id":
                self.trace = value.decode("latin-1")

    @property
    def origin(self) -> str:
        """Where the client found us: what it is told of queues must lead there again."""
        return f"{self._scheme}://{self._origin_host.decode('latin-1')}"

    async def read_body(self) -> None:
        if self._length > BODY_BYTES_MAX:
            raise _too_large()
        event = await self.receive()
        self.body = _part(event)
        if event.get("more_body"):
            await self._read_rest()
        elif len(self.body) > BODY_BYTES_MAX:
            raise _too_large()

    async def _read_rest(self) -> None:
        parts, size = [self.body], len(self.body)
        try:
            async with asyncio.timeout(BODY_S):
                more = True
                while more:
                    event = await self.receive()
                    parts.append(_part(event))
                    size += len(parts[-1])
                    more = event.get("more_body", False)
                    if size > BODY_BYTES_MAX:
                        raise _too_large()
        except TimeoutError:
            raise SqsError(
                "RequestTimeout", "The request body took too long to arrive.", status=408
            ) from None
        self.body = b"".join(parts)

    async def hung_up(self) -> None:
        """Wait until the client is gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


def _part(event: dict[str, Any]) -> bytes:
    if event["type"] == "http.disconnect":
        raise Gone
    part: bytes = event.get("body", b"")
    return part


def _too_large() -> SqsError:
    return SqsError(
        "RequestEntityTooLarge",
        f"A request must be shorter than {BODY_BYTES_MAX} bytes.",
        status=413,
    )
