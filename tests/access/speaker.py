"""The RPC protocol by hand: one frame out, what comes back."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from nexo.wire import commands
from nexo.wire.frame import Frame, FrameReader, Kind, frame, frame_parts

if TYPE_CHECKING:
    from nexo.wire.commands import Refusal


class Speaker:
    def __init__(self, port: int, token: str | None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._reader = FrameReader()
        self._arrived: list[Frame] = []
        hello = commands.Hello(commands.MAGIC, (1, 1), "test", token, 60_000)
        self._socket.sendall(frame(Kind.HELLO, 1, commands.pack(hello)))
        self.greeting = self.next()

    def ask(self, kind: Kind, head: bytes = b"", body: list[Any] | None = None) -> Frame | None:
        """Send a request; returns the answer, None if the broker hung up."""
        self.tell(kind, head, body, 7)
        while (answer := self.next()) is not None:
            if answer.correlation == 7 or answer.kind is Kind.GOODBYE:
                return answer
        return None

    def tell(
        self, kind: Kind, head: bytes = b"", body: list[Any] | None = None, correlation: int = 0
    ) -> None:
        self._socket.sendall(b"".join(frame_parts(kind, correlation, head, body or [])))

    def call(self, method: str, **params: Any) -> Frame | None:
        return self.ask(Kind.CALL, b"", [commands.pack(commands.Call(method, params))])

    def next(self) -> Frame | None:
        while not self._arrived:
            try:
                data = self._socket.recv(65_536)
            except ConnectionError:  # it was closed on what it had not read
                return None
            if not data:
                return None
            self._arrived += self._reader.feed(data)
        return self._arrived.pop(0)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def code_of(answer: Frame | None) -> str:
    """`ok`, or the code of the refusal."""
    assert answer is not None, "the broker hung up without a word"
    if answer.kind in (Kind.ERROR, Kind.GOODBYE):
        refusal: Refusal = commands.unpack(answer.head, commands.Refusal)
        return refusal.code
    return "ok"
