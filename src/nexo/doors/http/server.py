"""The HTTP server: a port, its connections, and their end.

Signals, logs and the life of the process are the broker's business; it lives in the broker's own
event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from nexo.doors.http.connection import Hall, HttpConnection
from nexo.doors.http.crowd import Crowd
from nexo.vocabulary.limits import HTTP_BACKLOG, HTTP_GOODBYE_S, HTTP_HANDSHAKE_S, HTTP_ROUND_S

if TYPE_CHECKING:
    import ssl

    from nexo.doors.http.front import Beginning


class HttpDoor:
    def __init__(self, front: Beginning, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._hall = Hall(front, Crowd())
        self._server: asyncio.Server | None = None
        self._rounds: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        bound = await asyncio.to_thread(_bind, host, port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect,
            sock=bound,
            backlog=HTTP_BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HTTP_HANDSHAKE_S,
        )
        self._rounds = loop.create_task(self._go_round())
        found: int = bound.getsockname()[1]
        return found

    @property
    def connections(self) -> int:
        return len(self._hall.connections)

    async def close(self) -> None:
        """Take no more connections, and let requests under way come to their end."""
        if self._rounds is None or self._server is None:
            return
        self._rounds.cancel()
        self._server.close()
        hall = self._hall
        for each in list(hall.connections):
            each.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HTTP_GOODBYE_S):
                await hall.emptied()
        for task in list(hall.tasks):
            task.cancel()
        for each in list(hall.connections):
            each.cut_off()
        await asyncio.gather(*hall.tasks, return_exceptions=True)

    def _connect(self) -> HttpConnection:
        return HttpConnection(self._hall, asyncio.get_running_loop())

    async def _go_round(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HTTP_ROUND_S)
            self._hall.set_date()
            self._hall.crowd.sweep(loop.time())


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
