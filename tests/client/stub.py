"""A broker that is none: it says exactly what a test tells it to, to whoever connects."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from nexo.wire import commands
from nexo.wire.frame import FrameReader, Kind, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.wire.frame import Frame

WELCOME = frame(Kind.WELCOME, 1, commands.pack(commands.Welcome(1, "stub", 1_000, 7)))


class Stub:
    """`answer` gives the bytes to send back for each frame; None hangs up."""

    def __init__(self, answer: Callable[[Frame], bytes | None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nexo://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *failure: object) -> None:
        for sock in (self._listener, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        reader = FrameReader()
        try:
            while data := sock.recv(1 << 16):
                for arrived in reader.feed(data):
                    reply = self._answer(arrived)
                    if reply is None:
                        sock.shutdown(socket.SHUT_RDWR)
                        return
                    sock.sendall(reply)
        except OSError:
            return
