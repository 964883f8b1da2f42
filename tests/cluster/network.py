"""A network on loopback that can be cut: a proxy stands before each address."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

_PIECE_BYTES = 1 << 16


class Network:
    """All links run in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._links: list[Link] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def link(self, listen: tuple[str, int], target: tuple[str, int]) -> Link:
        """What comes in at one address goes to the other."""
        link = Link(self, target)
        self.run(link.open(*listen))
        self._links.append(link)
        return link

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def close(self) -> None:
        for link in self._links:
            self.run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Link:
    def __init__(self, network: Network, target: tuple[str, int]) -> None:
        self._network, self._target = network, target
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._refuses = False
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._break()

    async def _break(self) -> None:
        """End every connection."""
        passing = list(self._passing)
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    def cut(self, *, is_silent: bool) -> None:
        """Silent: nothing arrives any more, and nobody is told. Else every connection breaks, and
        new ones do."""

        async def cut() -> None:
            self._is_open.clear()
            self._refuses = not is_silent
            if self._refuses:
                await self._break()

        self._network.run(cut())

    def mend(self) -> None:
        """What was under way when it was cut silently arrives now."""

        async def mend() -> None:
            self._refuses = False
            self._is_open.set()

        self._network.run(mend())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        ends = [writer]
        try:
            if self._refuses:
                return
            await self._is_open.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            ways = [self._pass(reader, far_writer), self._pass(far_reader, writer)]
            passing = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in passing:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._passing.discard(task)
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                await self._is_open.wait()
                writer.write(data)
                await writer.drain()
            await self._is_open.wait()
