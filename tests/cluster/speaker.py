"""A client that says exactly what a test tells it to, and nothing by itself."""

from __future__ import annotations

import socket
import time
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from nexo.wire import commands
from nexo.wire.frame import FrameReader, Kind, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.operation import Request
    from nexo.wire.frame import Frame

HELLO = ("NEXO", (commands.PROTOCOL_VERSION, commands.PROTOCOL_VERSION), "speaker")
FOLLOWS = (*HELLO, None, 10_000, "", "", 0, "", True)


class Speaker:
    def __init__(self, url: str, hello: tuple[Any, ...] = FOLLOWS) -> None:
        """`hello` are the fields of the greeting, as many as the client knows."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), 10)
        self._reader = FrameReader()
        self._numbers = count(2)
        self.frames: list[Frame] = []  # all that came
        self.send(Kind.HELLO, 1, msgspec.msgpack.encode(hello))

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()

    def send(self, kind: Kind, correlation: int, head: bytes, body: bytes = b"") -> None:
        self._socket.sendall(frame(kind, correlation, head, body))

    def ask(self, request: Request) -> Frame:
        """What it answers."""
        number = next(self._numbers)
        self.send(request.kind, number, request.head, b"".join(request.body))
        return self.until(lambda each: each.correlation == number)

    def until(self, is_so: Callable[[Frame], bool], seconds: float = 10.0) -> Frame:
        """The first frame of this kind, also of those that came already."""
        found = self.look(is_so, seconds)
        assert found is not None, [each.kind.name for each in self.frames]
        return found

    def look(self, is_so: Callable[[Frame], bool], seconds: float) -> Frame | None:
        ends = time.monotonic() + seconds
        while True:
            for each in self.frames:
                if is_so(each):
                    return each
            self._socket.settimeout(max(0.001, ends - time.monotonic()))
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            assert data, "it hung up"
            self.frames += self._reader.feed(data)
