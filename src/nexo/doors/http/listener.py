"""The listener of the HTTP door: uvicorn's protocol and server in the broker's own event loop.

Signals, logs and the life of the process are the broker's business, so only the parts of uvicorn
that serve connections are used.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import uvicorn

from nexo.doors.http.connection import HttpConnection
from nexo.doors.http.crowd import Crowd

if TYPE_CHECKING:
    import ssl

    from nexo.doors.http.front import App

GOODBYE_S = 3  # requests under way may take this long when the broker stops
HANDSHAKE_S = 10.0  # of TLS; until it is done nobody knows of the connection
BACKLOG = 1_024
_ROUND_S = 1.0  # how often the date in answers is written anew, and who is late is sent away


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
