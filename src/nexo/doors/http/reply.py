"""The short way out: a whole answer in one write.

ASGI sends an answer in two events, and uvicorn looks at each header of it. An app that has its
answer whole, with headers that it knows to be right, finds `scope["nexo.reply"]` and hands it over
as bytes. What is not there it does the ASGI way, so it runs under any server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from nexo.doors.http.connection import Exchange

_CLOSE = b"connection: close\r\n"


class Reply:
    """To one request."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: Exchange) -> None:
        self._cycle = cycle

    @property
    def is_whole(self) -> bool:
        """Whether all of the request has arrived, so that reading it waits for nothing."""
        return not self._cycle.more_body

    def __call__(self, status: int, headers: bytes, body: bytes) -> bool:
        """Answer; `headers` are lines that end with CRLF. False if the client does not read: then
        it has to be waited for, which is done the ASGI way."""
        cycle = self._cycle
        if cycle.disconnected:
            return True
        if cycle.flow.write_paused or cycle.response_started or cycle.scope["method"] == "HEAD":
            return False
        cycle.response_started = cycle.response_complete = True
        parts = [STATUS_LINE[status]]
        for name, value in cycle.default_headers:
            parts += (name, b": ", value, b"\r\n")
        stays = cycle.keep_alive and not cycle.more_body
        parts += (headers, b"\r\n" if stays else _CLOSE + b"\r\n", body)
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if cycle.more_body:
            cycle.connection.leave()
        elif not stays:
            cycle.transport.close()
        cycle.on_response()
        return True
