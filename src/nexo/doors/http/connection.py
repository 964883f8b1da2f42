"""One HTTP connection: uvicorn's, with limits for who is slow or says too much.

The head of a request has to arrive within a time and a size; how long a body may take and how large
it may be is for the app to say, which knows what it expects, up to a limit for all. Where a request
is answered before its body is whole, the connection ends: nobody knows how much is to come.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from nexo.doors.http.reply import Reply
from nexo.vocabulary.limits import HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application, ASGISendEvent
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from nexo.doors.http.crowd import Crowd, Table

_HEAD_LINE_BYTES = 4  # of a header, besides its name and value


class HttpConnection(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        crowd: Crowd,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self._crowd = crowd
        self._table: Table | None = None  # the one of the crowd that this connection stands in
        self._head_bytes = 0  # since the last whole head
        self._is_refused = False
        self._is_open = False

    # -- What the transport tells -------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_open = True
        found = transport.get_extra_info("socket")
        descriptor = 0 if found is None else found.fileno()
        if self._crowd.admit(descriptor, self.loop.time()):
            self._stand_in(self._crowd.head)
        else:
            # There is no room for it, not even to see it read this.
            self._is_refused = True
            self.transport.write(_said(HTTPStatus.SERVICE_UNAVAILABLE))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._step_out()
        self._crowd.unread.pop(self, None)
        if self._is_open:
            self._is_open = False
            self._crowd.left()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return  # it is waited for until it has read the answer; what it says does not matter
        if self._table is self._crowd.idle:
            self._stand_in(self._crowd.head)
        before: RequestResponseCycle | None = self.cycle  # None before the first request
        is_answering = self._table is None  # then this is of the request that comes next
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._crowd.malformed += 1
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        except httptools.HttpParserUpgrade:
            pass  # to what, we do not speak: it is answered as plain HTTP
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is before and (is_answering or cycle is None or cycle.response_complete):
            if self._head_bytes > HTTP_HEAD_BYTES_MAX:  # what came so far was all head
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif cycle is not None and not cycle.more_body:
            self._head_bytes = 0
            self._step_out()
        elif self._table is not self._crowd.body:
            self._stand_in(self._crowd.body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._crowd.unread[self] = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._crowd.unread.pop(self, None)

    # -- What the parser tells ----------------------------------------------------------------

    def on_headers_complete(self) -> None:
        # Less came in all than a head may have, nearly always; else it is counted.
        is_long = self._head_bytes > HTTP_HEAD_BYTES_MAX and self._head_size() > HTTP_HEAD_BYTES_MAX
        if is_long or len(self.headers) > HTTP_HEADERS_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            raise _HeadTooLarge  # so that the parser goes no further
        self._head_bytes = 0
        super().on_headers_complete()

    def _head_size(self) -> int:
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value) + _HEAD_LINE_BYTES
        return size

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = Exchange  # uvicorn made it as one of its own
        assert isinstance(cycle, Exchange)
        cycle.begin(self)
        super()._start_asgi_task(cycle, app)

    # -- What requests tell -------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._is_refused:
            return
        if self.transport.is_closing():
            # What it has not read yet may keep it from closing.
            self._crowd.unread[self] = self.loop.time()
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._stand_in(self._crowd.idle)

    def leave(self) -> None:
        """It is answered, and the rest of what it sends is not wanted. To close at once would
        make the system drop the answer on its way, so it may read that first."""
        if self.transport.is_closing():
            return
        self._is_refused = True
        self._stand_in(self._crowd.leaving)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def shutdown(self) -> None:
        """The broker stops: who has not asked for anything yet gets no answer."""
        if self._table is None or self._table is self._crowd.idle:
            super().shutdown()
        else:
            self.cut_off()

    # -- What the crowd tells -----------------------------------------------------------------

    def late(self, table: Table) -> None:
        """It was waited for, for as long as it is in this table; it is in it no more."""
        self._table = None if table is self._table else self._table
        crowd = self._crowd
        if table is crowd.idle or (table is crowd.head and not self._head_bytes):
            self.transport.close()  # nothing was said
        elif table is crowd.head or (table is crowd.body and not self.cycle.response_started):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.cut_off()

    def cut_off(self) -> None:
        self._step_out()
        self._crowd.unread.pop(self, None)
        self.transport.abort()

    # -- Inside -------------------------------------------------------------------------------

    def _stand_in(self, table: Table) -> None:
        self._step_out()
        self._table = table
        table[self] = self.loop.time()

    def _step_out(self) -> None:
        if self._table is not None:
            self._table.pop(self, None)
            self._table = None

    def _refuse(self, status: HTTPStatus) -> None:
        """Without an app: there is no request, or there will never be one."""
        if self.transport.is_closing() or self._is_refused:
            return
        cycle: Exchange | None = self.cycle  # type: ignore[assignment]
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.cut_off()  # in the middle of an answer there is no place for another
            return
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # whoever reads its body reads no more
            cycle.message_event.set()
        self.transport.write(_said(status))
        self.leave()


class Exchange(RequestResponseCycle):
    """One request with its answer."""

    connection: HttpConnection

    def begin(self, connection: HttpConnection) -> None:
        self.connection = connection
        self.scope["nexo.reply"] = Reply(self)  # type: ignore[typeddict-unknown-key]

    async def run_asgi(self, app: ASGI3Application) -> None:
        await super().run_asgi(app)
        # What points in a circle stays in memory until the next collection, with all it holds.
        del self.connection
        del self.scope["nexo.reply"]  # type: ignore[typeddict-item]

    async def send(self, message: ASGISendEvent) -> None:
        if self.more_body and not self.response_started:
            self.keep_alive = False  # told in the head of the answer; then `close` is called
            self.transport = _Leaving(self)  # type: ignore[assignment]
        await super().send(message)


class _Leaving:
    """What a connection is to a request that is answered before it was read to its end."""

    def __init__(self, exchange: Exchange) -> None:
        self.write = exchange.transport.write
        self.is_closing = exchange.transport.is_closing
        self.close = exchange.connection.leave


def _said(status: HTTPStatus) -> bytes:
    return STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"


class _HeadTooLarge(Exception):
    """Ends the parsing of a head."""
