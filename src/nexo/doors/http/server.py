"""The HTTP server: uvicorn's connections in the broker's own event loop, with limits for who is
slow or says too much.

Signals, logs and the life of the process are the broker's business, so only the parts of uvicorn
that serve connections are used. The head of a request has to arrive within a time and a size; how
long a body may take and how large it may be is for the app to say, which knows what it expects, up
to a limit for all. Where a request is answered before its body is whole, the connection ends:
nobody knows how much is to come.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from nexo.doors.http.crowd import Crowd
from nexo.vocabulary.limits import HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX

if TYPE_CHECKING:
    import ssl

    from uvicorn._types import ASGI3Application, ASGISendEvent
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from nexo.doors.http.crowd import Table
    from nexo.doors.http.front import App

GOODBYE_S = 3  # requests under way may take this long when the broker stops
HANDSHAKE_S = 10.0  # of TLS; until it is done nobody knows of the connection
BACKLOG = 1_024
_ROUND_S = 1.0  # how often the date in answers is written anew, and who is late is sent away
_HEAD_LINE_BYTES = 4  # of a header, besides its name and value
_CLOSE = b"connection: close\r\n"


class HttpDoor:
    def __init__(self, front: App, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._config = uvicorn.Config(
            front,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GOODBYE_S,
        )
        self._server = uvicorn.Server(self._config)
        self._crowd = Crowd()
        self._sockets: list[socket.socket] = []
        self._rounds: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        self._sockets = [await asyncio.to_thread(_bind, host, port)]
        # Its comings and goings are told by the broker, in the broker's words.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._config.load()
        self._server.lifespan = self._config.lifespan_class(self._config)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            self._connect,
            sock=self._sockets[0],
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
        )
        self._server.servers = [listening]
        await self._server.on_tick(0)
        self._rounds = loop.create_task(self._go_round())
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def close(self) -> None:
        """Take no more connections, and let requests under way come to their end."""
        if self._rounds is None:
            return
        self._rounds.cancel()
        if self._server.server_state.connections or self._server.server_state.tasks:
            await self._server.shutdown(sockets=self._sockets)
            return
        # With nobody there is nobody to wait for, as uvicorn does in any case.
        for server in self._server.servers:
            server.close()
        for bound in self._sockets:
            bound.close()

    def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        return HttpConnection(self._config, self._server.server_state, self._crowd, loop)

    async def _go_round(self) -> None:
        """What uvicorn's own loop does that is of use here; it would wake up ten times as often."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_ROUND_S)
            await self._server.on_tick(0)
            self._crowd.sweep(loop.time())


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


class Reply:
    """The short way out: a whole answer to one request in one write.

    ASGI sends an answer in two events, and uvicorn looks at each header of it. An app that has its
    answer whole, with headers that it knows to be right, finds `scope["nexo.reply"]` and hands it
    over as bytes. What is not there it does the ASGI way, so it runs under any server.
    """

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


def _said(status: HTTPStatus) -> bytes:
    return STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"


class _HeadTooLarge(Exception):
    """Ends the parsing of a head."""


def _bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
