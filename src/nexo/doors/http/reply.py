"""The short way out: a whole answer in one write.

ASGI sends an answer in two events, and uvicorn looks at each header of it. An app that has its
answer whole, with headers that it knows to be right, finds `scope["nexo.reply"]` and hands it over
as bytes. What is not there it does the ASGI way, so it runs under any server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_CLOSE = b"connection: close\r\n"


class Reply:
    """To one request."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

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
        parts += (headers, b"\r\n" if cycle.keep_alive else _CLOSE + b"\r\n", body)
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True
