"""Live pages: a stream of server-sent events a page, each with what has changed since the last.

A page says what it shows by a function from now to values by key, and a row of its chart. Only
differences travel, so a quiet broker costs a page nothing but the tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from nexo.doors.console.pages import HEADERS
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import (
    CONSOLE_ALIVE_TICKS,
    CONSOLE_IDLE_S,
    CONSOLE_REST_TICKS,
    CONSOLE_STREAMS_MAX,
    CONSOLE_TICK_S,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.responses import Response

    from nexo.access.caller import Caller
    from nexo.doors.console.history import Sampler

    Frames = Callable[[], "Frame | Awaitable[Frame | None] | None"]


encode = msgspec.json.Encoder().encode


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a page shows now: texts by key, the newest row of its chart, items for its list, and
    what the parts are made of that it has to ask for anew when that changes."""

    set: dict[str, str] = {}
    parts: dict[str, str] = {}  # by the name of the element
    point: list[float] | None = None
    items: list[str] = []
    reload: bool = False  # the page shows something that is no longer there


class Pulse:
    """The one clock of all open pages: samples are taken once, however many look."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._viewers = 0
        self._beat = asyncio.Event()
        self._arrived = asyncio.Event()
        self._streams: dict[object, asyncio.Event] = {}
        self._turn = asyncio.Lock()
        self._spent_s = 0.0  # of the processor, by all pages since the last tick
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Open pages are told to go, and reconnect when the broker is back."""
        self._task.cancel()
        for ending in self._streams.values():
            ending.set()
        self._beat.set()

    async def stream(self, caller: Caller, frame: Frames) -> AsyncIterator[bytes]:
        """What an open page is sent, until it closes, its token ends, or there is no more."""
        me, ending = object(), asyncio.Event()
        if len(self._streams) >= CONSOLE_STREAMS_MAX:
            self._streams.pop(next(iter(self._streams))).set()
        self._streams[me] = ending
        self._viewers += 1
        self._arrived.set()
        sent: dict[str, str] = {}
        parts: dict[str, str] = {}
        silent = 0
        try:
            yield b"retry: 1000\n\n"
            while not ending.is_set() and caller.ending is None:
                now = await self._now(frame)
                if now is None:
                    yield _event(Frame(reload=True))
                    return
                changed = {key: text for key, text in now.set.items() if sent.get(key) != text}
                sent.update(changed)
                others = {name: made for name, made in now.parts.items() if parts.get(name) != made}
                parts.update(others)
                if changed or others or now.point is not None or now.items:
                    silent = 0
                    yield _event(msgspec.structs.replace(now, set=changed, parts=others))
                elif (silent := silent + 1) % CONSOLE_ALIVE_TICKS == 0:
                    yield b": still here\n\n"
                await self._beat.wait()
        finally:
            self._streams.pop(me, None)
            self._viewers -= 1

    async def _now(self, frame: Frames) -> Frame | None:
        """None if what the page shows is gone. Pages wake up together, but look one after the
        other: in between the broker does its work."""
        try:
            async with self._turn:
                await asyncio.sleep(0)  # else the next one looks within the same turn of the loop
                began_s = time.thread_time()  # others may have the machine meanwhile
                found = frame()
                self._spent_s += time.thread_time() - began_s
            return await found if inspect.isawaitable(found) else found
        except NexoError:
            return None

    async def _run(self) -> None:
        while True:
            await self._sampler.look()
            beat, self._beat = self._beat, asyncio.Event()
            beat.set()
            self._arrived.clear()
            spent_s, self._spent_s = self._spent_s, 0.0
            if self._viewers:
                await asyncio.sleep(max(CONSOLE_TICK_S, spent_s * CONSOLE_REST_TICKS))
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CONSOLE_IDLE_S):
                        await self._arrived.wait()


def made_of(*things: object) -> str:
    """What a part is made of, as a short text: the names in their order, say."""
    return sha256(repr(things).encode()).hexdigest()[:12]


def streamed(content: AsyncIterator[bytes]) -> Response:
    headers = {**HEADERS, "x-accel-buffering": "no"}
    return StreamingResponse(content, headers=headers, media_type="text/event-stream")


def _event(frame: Any) -> bytes:
    return b"data: " + encode(frame) + b"\n\n"
