"""A running broker: journal, engine and doors, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
from typing import TYPE_CHECKING

import msgspec

from nexo import __version__
from nexo.doors.rpc_tcp.door import RpcDoor
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal
from nexo.journal.sqlite import SqliteJournal
from nexo.server.listeners import listener
from nexo.vocabulary.errors import InvalidArgument, NotReady

if TYPE_CHECKING:
    from nexo.journal.port import Journal
    from nexo.server.configuration import Configuration

IN_MEMORY = ":memory:"
GOODBYE_S = 5.0  # how long clients may take to hang up when the broker stops


class Ports(msgspec.Struct, frozen=True):
    """Where the doors listen."""

    rpc: int


class Broker:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._engine: Engine | None = None
        self._rpc: RpcDoor | None = None

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "the broker is not started"
        return self._engine

    async def start(self) -> Ports:
        """Recover what the journal holds, then open the doors."""
        configuration = self._configuration
        draw = random.SystemRandom()
        engine = self._engine = Engine(
            _journal(configuration.data),
            memory_limit_bytes=configuration.memory_limit,
            new_incarnation=lambda: draw.getrandbits(64),
        )
        await engine.open()
        self._rpc = RpcDoor(engine, f"nexo {__version__}")
        try:
            return Ports(rpc=await self._open(self._rpc, configuration.rpc_port, "rpc"))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Say goodbye to clients first, then write what waits."""
        if self._rpc is not None:
            # A client that does not read its goodbye must not keep the broker from stopping.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._rpc.close()
        if self._engine is not None:
            await self._engine.close()

    async def _open(self, door: RpcDoor, port: int, kind: str) -> int:
        host = self._configuration.host
        try:
            return await door.open(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                who = await asyncio.to_thread(listener, port)
                raise NotReady(
                    f"port {port} on {host} is taken by {who or 'another process'}",
                    f"stop it, or choose another port with --{kind}-port (0: any free one)",
                ) from error
            if isinstance(error, socket.gaierror):
                raise InvalidArgument(
                    f"there is no host {host!r:.80}", "check --host: a name or an address"
                ) from error
            reason = os.strerror(error.errno or 0)
            raise NotReady(
                f"cannot listen on {host}:{port}: {reason}", f"check --host and --{kind}-port"
            ) from error


def _journal(data: str) -> Journal:
    return MemoryJournal() if data == IN_MEMORY else SqliteJournal(data)
