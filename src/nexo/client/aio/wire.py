"""One connection of an asyncio client, from its greeting to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from nexo.client.handshake import configure
from nexo.vocabulary.errors import NexoError, Unreachable

if TYPE_CHECKING:
    import socket

    from nexo.client.aio.connection import Connection
    from nexo.client.operation import Pieces
    from nexo.client.session import Session
    from nexo.wire.frame import Frame


JOINED_BYTES_MAX = 64 * 1024  # above this a copy costs more than pieces do


class Wire(asyncio.Protocol):
    def __init__(self, owner: Connection, session: Session) -> None:
        self._owner = owner
        self._session = session
        self._transport: asyncio.Transport | None = None
        self._greeting = True
        self._ended = asyncio.get_running_loop().create_future()
        self.greeted: asyncio.Future[list[Frame]] = asyncio.get_running_loop().create_future()
        self.writable: bool = True

    def take_over(self) -> None:
        """The greeting is done: what comes from here on is for the connection."""
        self._greeting = False

    def write(self, pieces: Pieces) -> None:
        if self._transport is not None:
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            elif sum(map(len, pieces)) < JOINED_BYTES_MAX:
                self._transport.write(b"".join(pieces))
            else:
                self._transport.writelines(pieces)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def end(self, seconds: float) -> None:
        """Close once everything is written."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait([self._ended], timeout=seconds)
            self.abort()

    # -- The transport's side -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            configure(sock)
        self._transport.write(self._session.hello())

    def data_received(self, data: bytes) -> None:
        if not self._greeting:
            self._owner.received(self, data)
            return
        if self.greeted.done():
            return  # the broker said more than one thing, and the first was a refusal
        try:
            frames = self._session.read(data)
        except NexoError as error:
            self.greeted.set_exception(error)
            return
        if frames:
            self._greeting = False
            self.greeted.set_result(frames)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._owner.resumed()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._ended.done():
            self._ended.set_result(None)
        reason = Unreachable(f"the broker hung up{f': {error}' if error else ''}")
        if not self.greeted.done():
            self.greeted.set_exception(
                Unreachable(
                    "the broker hung up during the greeting",
                    "is it the RPC port, and does it speak TLS (nexos://)?",
                )
            )
            self.greeted.exception()  # nobody may be waiting for it any more
        self._owner.lost(self, reason)
