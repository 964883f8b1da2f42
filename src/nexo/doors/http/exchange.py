"""One request with its answer.

An app takes it in one of two ways. It has `begin(exchange)`, which is called with what is there of
the request, and answers with `reply`, at once or later: one call, one write. Or it is an ASGI app:
then it runs in a task, and is told and tells in events.
"""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.limits import HTTP_ONE_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nexo.doors.http.connection import HttpConnection
    from nexo.doors.http.front import App

logger = logging.getLogger("nexo.http")

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CLOSE = b"connection: close\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_NOT_IN_A_HEADER = re.compile(rb"[\x00\r\n]")
_FAILED = b"Internal Server Error"
_FAILED_HEAD = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(_FAILED)


class Exchange:
    """`fields` has the last value of each header, `repeated` those before it of headers that came
    more than once; `is_whole` says whether all of the request has arrived; `is_gone` that the
    client hung up before it was answered."""

    __slots__ = (
        "__weakref__",
        "_connection",
        "_event",
        "_is_chunked",
        "_is_told_whole",
        "_is_waited_for",
        "_left_bytes",
        "_parts",
        "_when_gone",
        "fields",
        "is_answered",
        "is_begun",
        "is_gone",
        "is_started",
        "is_whole",
        "keep_alive",
        "method",
        "path",
        "peer",
        "query",
        "raw_path",
        "repeated",
        "scheme",
        "size",
        "version",
    )

    def __init__(
        self,
        connection: HttpConnection,
        method: str,
        raw_path: bytes,
        path: str,
        query: bytes,
        fields: dict[bytes, bytes],
    ) -> None:
        self._connection: HttpConnection | None = connection
        self.method = method
        self.raw_path = raw_path
        self.path = path
        self.query = query
        self.fields = fields
        self.repeated: list[tuple[bytes, bytes]] | None = None
        self.version = "1.1"
        self.keep_alive = True
        self.peer = connection.peer
        self.scheme = connection.scheme
        self.size = 0  # bytes of the body that nobody has taken yet
        self.is_begun = self.is_whole = self.is_gone = False
        self.is_started = self.is_answered = False
        self._parts: list[bytes] = []
        self._is_told_whole = False
        self._event: asyncio.Event | None = None
        self._when_gone: Callable[[], object] | None = None
        self._is_waited_for = b"expect" in fields and fields[b"expect"].lower() == b"100-continue"

    # -- The connection's side ----------------------------------------------------------------

    def add(self, part: bytes) -> int:
        """More of the body came; returns how much of it nobody has taken yet."""
        self._parts.append(part)
        self.size = size = self.size + len(part)
        if self._event is not None:
            self._event.set()
        return size

    def complete(self) -> None:
        """The request is whole."""
        self.is_whole = True
        if self._event is not None:
            self._event.set()

    def lose(self) -> None:
        """Nobody waits for the answer any more."""
        if self.is_answered:
            return
        self.is_gone = True
        self._connection = None
        if self._event is not None:
            self._event.set()
        gone, self._when_gone = self._when_gone, None
        if gone is not None:
            gone()

    # -- The app's side -----------------------------------------------------------------------

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """All of them, in lower case; those of one name in the order in which they came."""
        return [*(self.repeated or ()), *self.fields.items()]

    @property
    def origin(self) -> str:
        """Where the client found us: what it is told of addresses must lead there again."""
        return f"{self.scheme}://{self.fields.get(b'host', b'localhost').decode('latin-1')}"

    def take_body(self) -> bytes:
        """The body of a request that is whole, without waiting."""
        parts = self._parts
        if len(parts) == 1:
            body = parts.pop()
        else:
            body = b"".join(parts)
            parts.clear()
        self.size = 0
        return body

    def when_gone(self, call: Callable[[], object] | None) -> None:
        """Be told at once when the client hangs up; None: no more."""
        self._when_gone = call

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on in a task; should it fail, the client is told so."""
        if self._connection is None:
            work.close()
        else:
            self._connection.hall.spawn(work).add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # the broker stops
            if self._connection is not None:
                self._connection.cut_off()
        elif (failure := task.exception()) is not None:
            self.fail(failure)

    def run(self, app: App) -> None:
        """Let an ASGI app answer, unless the client has left already."""
        if self._connection is None:  # as while a node asked others what is to be shown
            return
        self.spawn(self._finished(app(self._scope(), self.receive, self.send)))

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer; `headers` are lines that end with CRLF, its length among them."""
        connection = self._connection
        if connection is None or self.is_started:
            return
        self.is_started = self.is_answered = True
        close = b"" if self.keep_alive and self.is_whole else CLOSE
        if self.method == "HEAD":
            body = b""
        is_short = len(body) < HTTP_ONE_PART_BYTES
        parts = STATUS_LINES[status], connection.hall.date, headers, close, body * is_short
        connection.transport.write(b"%b%b%b%b\r\n%b" % parts)
        if not is_short:
            connection.transport.write(body)
        self._end(connection)

    def reply_ok(self, rest: bytes) -> None:
        """The whole answer to a POST, a short one with status 200: `rest` is what follows the date,
        with the empty line and the body. The same as `reply`, in fewer steps."""
        connection = self._connection
        if connection is None or self.is_started:
            return
        self.is_started = self.is_answered = True
        ok = connection.hall.ok
        if not (self.keep_alive and self.is_whole):
            ok += CLOSE
        connection.transport.write(ok + rest)
        self._connection = self._when_gone = None
        if self._event is not None:
            self._event.set()
        connection.answered(self)

    def fail(self, failure: BaseException) -> None:
        """Something is wrong with the app, and the log says what."""
        logger.error("a request failed", exc_info=failure, extra={"path": self.path[:200]})
        connection = self._connection
        if connection is None:
            return
        if self.is_started:
            connection.cut_off()
        else:
            self.keep_alive = False
            self.reply(HTTPStatus.INTERNAL_SERVER_ERROR, _FAILED_HEAD, _FAILED)

    def _end(self, connection: HttpConnection) -> None:
        # What points in a circle stays in memory until the next collection, with all it holds.
        self._connection = self._when_gone = None
        if self._event is not None:
            self._event.set()
        connection.answered(self)

    # -- ASGI ---------------------------------------------------------------------------------

    def _scope(self) -> dict[str, Any]:
        assert self._connection is not None
        client = self._connection.client
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": self.version,
            "server": self._connection.server,
            "client": None if client is None else (self.peer, client[1]),
            "scheme": self.scheme,
            "root_path": "",
            "method": self.method,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": self.headers,
            "state": {},
        }

    async def _finished(self, work: Any) -> None:
        await work
        if not self.is_answered and not self.is_gone:
            raise RuntimeError("the app ended without an answer")

    async def receive(self) -> dict[str, Any]:
        connection = self._connection
        if connection is not None:
            if self._is_waited_for and not self.is_started:
                connection.transport.write(_CONTINUE)
            self._is_waited_for = False
            if not (self._parts or (self.is_whole and not self._is_told_whole)):
                connection.resume_reading()
                self._event = asyncio.Event()
                await self._event.wait()
                self._event = None
        if self.is_gone or self.is_answered:
            return {"type": "http.disconnect"}
        body = b"".join(self._parts)
        self._parts = []
        self.size = 0
        self._is_told_whole = self.is_whole
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, event: dict[str, Any]) -> None:
        connection = self._connection
        if connection is not None:
            await connection.drained()
            connection = self._connection
        if connection is None:
            if self.is_answered:
                raise RuntimeError("the answer has ended already")
            return
        if not self.is_started:
            self._start(connection, event)
            return
        if event["type"] != "http.response.body":
            raise RuntimeError(f"expected the body of an answer, not {event['type']}")
        self._go_on(connection, event.get("body", b""), event.get("more_body", False))

    def _start(self, connection: HttpConnection, event: dict[str, Any]) -> None:
        if event["type"] != "http.response.start":
            raise RuntimeError(f"expected the start of an answer, not {event['type']}")
        status: int = event["status"]
        length: int | None = None
        lines: list[bytes] = []
        for name, value in event.get("headers", ()):
            if _NOT_IN_A_HEADER.search(name) or _NOT_IN_A_HEADER.search(value):
                raise RuntimeError(f"the header {name!r:.100} holds a line break")
            lowered = name.lower()
            if lowered == b"content-length":
                length = int(value)
            elif lowered == b"connection":
                self.keep_alive = self.keep_alive and value.lower() != b"close"
                continue
            lines += (lowered, b": ", value, b"\r\n")
        has_body = self.method != "HEAD" and status not in _NO_BODY
        self._is_chunked = has_body and length is None and self.version != "1.0"
        if not has_body:
            length = 0
        self._left_bytes = -1 if length is None else length
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not (self.keep_alive and self.is_whole):
            self.keep_alive = False
            lines.append(CLOSE)
        self.is_started = True
        head = (STATUS_LINES[status], connection.hall.date, *lines, b"\r\n")
        connection.transport.write(b"".join(head))

    def _go_on(self, connection: HttpConnection, body: bytes, is_more: bool) -> None:
        if self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if is_more else b"0\r\n\r\n"
        elif self._left_bytes >= 0:
            if self.method == "HEAD":
                body = b""
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not is_more):
                raise RuntimeError("the answer is not as long as its head says")
        if body:
            connection.transport.write(body)
        if not is_more:
            self.is_answered = True
            self._end(connection)
