"""`/metrics`: the figures of the broker as Prometheus reads them, a slice at a time."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any

from nexo.doors.metrics_http.queues import queue_lines
from nexo.doors.metrics_http.whole import topic_lines, whole_lines
from nexo.telemetry.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.metrics_http.whole import Surroundings
    from nexo.engine.engine import Engine

    Send = Callable[[dict[str, Any]], Awaitable[None]]

_HEADERS = [
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-store"),
]


class MetricsApp:
    """An ASGI app. `surroundings` tells what the engine does not know."""

    def __init__(self, engine: Engine, surroundings: Surroundings) -> None:
        self._engine = engine
        self._surroundings = surroundings

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["path"] != "/metrics" or scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 404 if scope["path"] != "/metrics" else 405)
            return
        usage = await self._engine.backups.usage()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        whole = [whole_lines(self._engine, self._surroundings, usage)]
        for lines in chain(whole, topic_lines(self._engine), queue_lines(self._engine)):
            if lines:
                body = {"type": "http.response.body", "body": lines.encode(), "more_body": True}
                await send(body)
            await asyncio.sleep(0)  # between two slices the broker works
        await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
