"""One HTTP connection: uvicorn's, with limits for who is slow or says too much.

The head of a request has to arrive within a time and a size; how long a body may take and how large
it may be is for the app to say, which knows what it expects.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from nexo.doors.http.reply import Reply

if TYPE_CHECKING:
    import asyncio

HEAD_S = 20.0
HEAD_BYTES_MAX = 64 * 1024


class HttpConnection(HttpToolsProtocol):
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if self._head_timer is None and (cycle is None or cycle.response_complete):
            self._expect_head()
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        # Still waiting for the end of the head: what came so far was all head.
        if self._head_timer is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._head_done()
        super().on_headers_complete()
        self.scope["nexo.reply"] = Reply(self.cycle)  # type: ignore[typeddict-unknown-key]

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_S, self._late)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _late(self) -> None:
        """Nothing was said, or not to its end."""
        if self._head_bytes:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self._head_timer = None
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        self._head_done()
        if not self.transport.is_closing():
            self.transport.write(
                STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()
