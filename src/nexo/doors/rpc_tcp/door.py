"""The listener of the RPC door."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from nexo.access.guard import Guard
from nexo.doors.rpc_tcp.connection import Connection
from nexo.vocabulary.limits import RPC_CONNECTIONS_MAX, RPC_GREETING_MS

if TYPE_CHECKING:
    import ssl

    from nexo.engine.engine import Engine


class RpcDoor:
    def __init__(
        self,
        engine: Engine,
        server_name: str,
        guard: Guard | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Without a guard anyone may do everything."""
        self._engine = engine
        self._guard = guard or Guard(engine.wall_ms)
        self._tls = tls
        self._server_name = server_name
        self._instance = secrets.randbits(62)
        self._server: asyncio.Server | None = None
        self.connections: set[Connection] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect,
            host,
            port,
            backlog=1024,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else RPC_GREETING_MS / 1000,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Take no more connections, and say goodbye on those that are there."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.say_goodbye()
        if self._server is not None:
            await self._server.wait_closed()

    def _connect(self) -> Connection:
        return Connection(
            self._engine,
            self._guard,
            self._server_name,
            self._instance,
            self.connections,
            RPC_CONNECTIONS_MAX,
        )
