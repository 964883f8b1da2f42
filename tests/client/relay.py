"""A relay between a client and a broker that sees every frame: it counts them, and can cut the
connection, swallow answers or fall silent at any of them."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from nexo.wire.frame import PREFIX, Frame, FrameReader, Kind

if TYPE_CHECKING:
    from collections.abc import Callable


class Relay:
    """`on_request` and `on_answer` are asked for each frame: what they return is done with it."""

    PASS, SWALLOW, CUT = "pass", "swallow", "cut"

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: Counter[Kind] = Counter()
        self.answers: Counter[Kind] = Counter()
        self.reads: Counter[str] = Counter()  # of each direction: what came in one go is one
        self.connections = 0
        self._silent_to = 0  # connections up to this are half-open: nothing passes or is closed
        self.on_request: Callable[[Frame], str] = lambda _: self.PASS
        self.on_answer: Callable[[Frame], str] = lambda _: self.PASS
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection."""
        for sock in self._open:
            _shut(sock)

    def fall_silent(self) -> None:
        """From now on nothing passes on the connections that are there."""
        self._silent_to = self.connections

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                near.close()
                continue
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += (near, far)
            number = self.connections
            self._start(partial(self._pump, number, near, far, self.requests, "on_request"))
            self._start(partial(self._pump, number, far, near, self.answers, "on_answer"))

    def _pump(
        self,
        number: int,
        source: socket.socket,
        target: socket.socket,
        seen: Counter[Kind],
        asked: str,
    ) -> None:
        reader = FrameReader()
        try:
            while data := source.recv(1 << 20):
                self.reads[asked] += 1
                for frame in reader.feed(data):
                    seen[frame.kind] += 1
                    verdict = getattr(self, asked)(frame)
                    if verdict == self.CUT:
                        _shut(source)
                        _shut(target)
                        return
                    if verdict == self.PASS and number > self._silent_to:
                        target.sendall(_bytes(frame))
        except OSError:
            pass
        if number > self._silent_to:
            _shut(source)
            _shut(target)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="relay", daemon=True)
        self._threads.append(thread)
        thread.start()


def _bytes(frame: Frame) -> bytes:
    size = PREFIX.size - 4 + len(frame.head) + len(frame.body)
    described = len(frame.head) << 8 | frame.kind
    return PREFIX.pack(size, described, frame.correlation) + frame.head + bytes(frame.body)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
