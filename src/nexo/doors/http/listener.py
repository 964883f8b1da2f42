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

if TYPE_CHECKING:
    import ssl

    from nexo.doors.http.front import App

CONNECTIONS_MAX = 20_000
KEEP_ALIVE_S = 75  # an idle connection is closed after this long; SDKs open another
GOODBYE_S = 3  # requests under way may take this long when the broker stops
BACKLOG = 1_024
_DATE_S = 1.0  # how often the date in the heads of answers is written anew


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
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GOODBYE_S,
            backlog=BACKLOG,
        )
        self._server = uvicorn.Server(self._config)
        self._sockets: list[socket.socket] = []
        self._dating: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        self._sockets = [await asyncio.to_thread(_bind, host, port)]
        # Its comings and goings are told by the broker, in the broker's words.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._config.load()
        self._config.ssl = self._tls
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.startup(sockets=self._sockets)
        self._dating = asyncio.get_running_loop().create_task(self._keep_the_date())
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def close(self) -> None:
        """Take no more connections, and let requests under way come to their end."""
        if self._dating is None:
            return
        self._dating.cancel()
        if self._server.server_state.connections or self._server.server_state.tasks:
            await self._server.shutdown(sockets=self._sockets)
            return
        # With nobody there is nobody to wait for, as uvicorn does in any case.
        for server in self._server.servers:
            server.close()
        for bound in self._sockets:
            bound.close()

    async def _keep_the_date(self) -> None:
        """All of uvicorn's own loop that is of use here; it would wake up ten times as often."""
        while True:
            await self._server.on_tick(0)
            await asyncio.sleep(_DATE_S)


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
