"""A connection of the HTTP door: bytes become requests, which are answered one after the other.

The head of a request has to arrive within a time and a size; how long a body may take and how large
it may be is for the app to say, which knows what it expects, up to a limit for all. Where a request
is answered before its body is whole, the connection ends: nobody knows how much is to come.

Requests that come before their predecessors were answered wait in line, and meanwhile nothing more
is read. One begins when all that came with it has been looked at, so that a short one is whole by
then; nearly all are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from nexo.doors.http.exchange import CLOSE, STATUS_LINES, Exchange
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.limits import (
    HTTP_BODY_AHEAD_BYTES,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEADERS_MAX,
    HTTP_STEP_CONNECTIONS,
    HTTP_TURN_REQUESTS,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nexo.doors.http.crowd import Crowd, Table
    from nexo.doors.http.front import Beginning

_METHODS = {b"POST": "POST", b"GET": "GET"}  # nearly all
_HEAD_LINE_BYTES = 4  # of a header, besides its name and value


class Hall:
    """What all connections of a door share."""

    def __init__(self, front: Beginning, crowd: Crowd) -> None:
        self.front = front
        self.crowd = crowd
        self.date = b""  # the line of an answer's head
        self.ok = b""  # how an answer without trouble begins: its first line, and the date
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        self._ready: deque[HttpConnection] = deque()  # whose requests have come, and wait to begin
        self.set_date()

    def set_date(self) -> None:
        self.date = f"date: {formatdate(usegmt=True)}\r\n".encode()
        self.ok = STATUS_LINES[HTTPStatus.OK] + self.date

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def begin_soon(self, connection: HttpConnection) -> None:
        """Begin what has come, when the others of this turn have been read: a processor that does
        the same thing again and again is quicker at it."""
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._begin_some)
        self._ready.append(connection)

    def _begin_some(self) -> None:
        ready = self._ready
        for _ in range(min(len(ready), HTTP_STEP_CONNECTIONS)):
            ready.popleft().go_on()
        if ready:
            asyncio.get_running_loop().call_soon(self._begin_some)

    def left(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self._look_round()

    async def emptied(self) -> None:
        """Wait until everybody is gone, and nothing is under way."""
        self._emptied = asyncio.Event()
        self._look_round()
        await self._emptied.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._look_round()

    def _look_round(self) -> None:
        if self._emptied is not None and not (self.connections or self.tasks):
            self._emptied.set()


class HttpConnection(asyncio.Protocol):
    __slots__ = (
        "__weakref__",
        "_answering",
        "_crowd",
        "_drained",
        "_fields",
        "_has_whole",
        "_head_bytes",
        "_is_going",
        "_is_open",
        "_is_paused",
        "_is_refused",
        "_loop",
        "_parser",
        "_reading",
        "_repeated",
        "_table",
        "_url",
        "_waiting",
        "_writes",
        "client",
        "hall",
        "peer",
        "scheme",
        "server",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, hall: Hall, loop: asyncio.AbstractEventLoop) -> None:
        self.hall = hall
        self._loop = loop
        self._crowd = hall.crowd
        self._parser: Any = httptools.HttpRequestParser(self)
        # What follows the last request that is to be answered does not make that one wrong.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self.peer = ""
        self.scheme = "http"
        self._table: Table | None = None  # the one of the crowd that this connection stands in
        self._head_bytes = 0  # since the last whole head
        self._is_refused = False
        self._is_open = False
        self._is_paused = False  # nothing is read
        self._writes = True  # the client takes what is written
        self._drained: asyncio.Event | None = None
        self._url = b""
        self._fields: Any = {}  # the headers of the request that comes, by their name
        self._repeated: list[tuple[bytes, bytes]] = []  # those that came again, as they were before
        self._reading: Exchange | None = None  # the body of this one is still to come
        self._has_whole = False  # one came to its end in what is being parsed
        self._answering: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._is_going = False

    # -- What the transport tells -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        self.peer = self.client[0] if self.client else ""
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self.hall.connections.add(self)
        self._is_open = True
        found = transport.get_extra_info("socket")
        descriptor = 0 if found is None else found.fileno()
        if self._crowd.admit(descriptor, self._loop.time()):
            self._stand_in(self._crowd.head)
        else:
            # There is no room for it, not even to see it read this.
            self._is_refused = True
            self.transport.write(_said(HTTPStatus.SERVICE_UNAVAILABLE))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        answering = self._answering
        if answering is not None and answering.is_whole and not answering.is_begun:
            self.go_on()  # it came, and is done: who hangs up only does not want the answer
        self.hall.left(self)
        self._step_out()
        self._crowd.unread.pop(self, None)
        if self._is_open:
            self._is_open = False
            self._crowd.left()
        self._lose_all()
        self.resume_writing()
        self._parser = None  # it knows this connection

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return  # it is waited for until it has read the answer; what it says does not matter
        self._head_bytes += len(data)
        self._has_whole = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._crowd.malformed += 1
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        except httptools.HttpParserUpgrade:
            pass  # to what, we do not speak: it is answered as plain HTTP
        if self._reading is not None:
            if self._reading is self._answering and self._table is not self._crowd.body:
                self._stand_in(self._crowd.body)
        elif self._has_whole:
            self._head_bytes = 0
            table = self._table
            if table is not None:
                del table[self]
                self._table = None
        elif self._head_bytes > HTTP_HEAD_BYTES_MAX:  # what came so far was all head
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._table is self._crowd.idle:
            self._stand_in(self._crowd.head)
        answering = self._answering
        if answering is not None and not answering.is_begun:
            self.hall.begin_soon(self)

    def pause_writing(self) -> None:
        self._writes = False
        self._crowd.unread[self] = self._loop.time()

    def resume_writing(self) -> None:
        self._writes = True
        self._crowd.unread.pop(self, None)
        if self._drained is not None:
            self._drained.set()
        self.go_on()

    # -- What the parser tells ----------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        fields = self._fields
        if name in fields:
            self._repeated.append((name, fields[name]))
        fields[name] = value

    def on_headers_complete(self) -> None:
        fields, repeated, url = self._fields, self._repeated, self._url
        # Less came in all than a head may have, nearly always; else it is counted.
        if self._head_bytes > HTTP_HEAD_BYTES_MAX or len(fields) + len(repeated) > HTTP_HEADERS_MAX:
            self._check_head()
        self._head_bytes = 0
        self._fields = _NOWHERE
        if url == b"/":
            raw_path, path, query = url, "/", b""
        else:
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path, parsed.query or b""
            path = raw_path.decode("ascii")
            if "%" in path:
                path = unquote(path)
        parser = self._parser
        method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        exchange = Exchange(
            self, _METHODS.get(method) or method.decode("ascii"), raw_path, path, query, fields
        )
        if repeated:
            exchange.repeated = repeated
            self._repeated = []
        if not keep_alive or b"connection" in fields:
            # Only then it can be another version than 1.1, and asking for it takes its time.
            exchange.version = version = parser.get_http_version()
            exchange.keep_alive = keep_alive and version != "1.0"
        self._reading = exchange
        if self._answering is None:
            self._answering = exchange
        else:
            self._waiting.append(exchange)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        reading = self._reading
        if reading is not None and reading.add(body) > HTTP_BODY_AHEAD_BYTES:
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._url = b""
        self._fields = {}
        reading = self._reading
        if reading is not None:
            self._reading = None
            self._has_whole = True
            reading.complete()

    def _check_head(self) -> None:
        size, headers = len(self._url), [*self._repeated, *self._fields.items()]
        for name, value in headers:
            size += len(name) + len(value) + _HEAD_LINE_BYTES
        if size > HTTP_HEAD_BYTES_MAX or len(headers) > HTTP_HEADERS_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            raise _HeadTooLarge  # so that the parser goes no further

    # -- What requests tell -------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """The answer to this one is written; the next one may begin."""
        self._answering = None
        if self._is_refused:
            return
        if not exchange.is_whole:
            self._reading = None
            self.leave()
            return
        if not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            # What it has not read yet may keep it from closing.
            self._crowd.unread[self] = self._loop.time()
            return
        if self._waiting:
            self._answering = self._waiting.popleft()
            self.go_on()
        else:
            if self._table is not None:
                self._step_out()
            self._table = idle = self._crowd.idle
            idle[self] = self._loop.time()
            if self._is_paused:
                self.resume_reading()

    def leave(self) -> None:
        """It is answered, and the rest of what it sends is not wanted. To close at once would
        make the system drop the answer on its way, so it may read that first."""
        if self.transport.is_closing():
            return
        self._is_refused = True
        self._lose_all()
        self._stand_in(self._crowd.leaving)
        self.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    async def drained(self) -> None:
        """Wait until the client has taken what was written, or is gone."""
        while not self._writes:
            if self._drained is None:
                self._drained = asyncio.Event()
            await self._drained.wait()
            self._drained = None

    # -- What the door and the crowd tell -----------------------------------------------------

    def go_on(self) -> None:
        """Begin what is next. One that is answered at once brings the one behind it: they are taken
        in a loop, never one inside the other, and after a few the event loop gets its turn."""
        if self._is_going:
            return
        self._is_going = True
        begun = 0
        while (exchange := self._answering) is not None and not exchange.is_begun and self._writes:
            if begun == HTTP_TURN_REQUESTS:
                self._loop.call_soon(self.go_on)
                break
            begun += 1
            exchange.is_begun = True
            if exchange is self._reading:
                self._stand_in(self._crowd.body)
                self.resume_reading()
            _, failure = outcome_of(self.hall.front.begin, exchange)
            if failure is not None:
                exchange.fail(failure)
        self._is_going = False

    def shutdown(self) -> None:
        """The broker stops: who has not asked for anything yet gets no answer."""
        if self._table is None and self._answering is not None:
            self._answering.keep_alive = False
        elif self._table is None or self._table is self._crowd.idle:
            self.transport.close()
        else:
            self.cut_off()

    def late(self, table: Table) -> None:
        """It was waited for, for as long as it is in this table; it is in it no more."""
        self._table = None if table is self._table else self._table
        crowd = self._crowd
        if table is crowd.idle or (table is crowd.head and not self._head_bytes):
            self.transport.close()  # nothing was said
        elif table is crowd.head or (table is crowd.body and not self._is_answering):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.cut_off()

    def cut_off(self) -> None:
        self._step_out()
        self._crowd.unread.pop(self, None)
        self.transport.abort()

    # -- Inside -------------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and self._answering.is_started

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _lose_all(self) -> None:
        lost = [self._answering, *self._waiting]
        self._answering = self._reading = None
        self._waiting.clear()
        for each in lost:
            if each is not None:
                each.lose()

    def _stand_in(self, table: Table) -> None:
        self._step_out()
        self._table = table
        table[self] = self._loop.time()

    def _step_out(self) -> None:
        if self._table is not None:
            self._table.pop(self, None)
            self._table = None

    def _refuse(self, status: HTTPStatus) -> None:
        """Without an app: there is no request, or there will never be one."""
        if self.transport.is_closing() or self._is_refused:
            return
        if self._is_answering:
            self.cut_off()  # in the middle of an answer there is no place for another
            return
        self.transport.write(_said(status))
        self.leave()


def _said(status: HTTPStatus) -> bytes:
    return STATUS_LINES[status] + b"content-length: 0\r\n" + CLOSE + b"\r\n"


def _address(told: Any) -> tuple[str, int] | None:
    """Host and port of an end; of a Unix socket there are none."""
    return (str(told[0]), int(told[1])) if isinstance(told, tuple | list) and told else None


class _HeadTooLarge(Exception):
    """Ends the parsing of a head."""


class _Nowhere:
    """Takes the headers that come behind a body: nobody reads them, however many they are."""

    def __contains__(self, _: object) -> bool:
        return False

    def __setitem__(self, _: object, value: object) -> None:
        pass


_NOWHERE = _Nowhere()
