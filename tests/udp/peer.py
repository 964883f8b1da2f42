"""A UDP client with an address of its own, as plain as can be."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 10.0


class Peer:
    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((host, port))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()
        return host, port

    def send(self, request: dict[str, Any] | bytes) -> None:
        self.socket.send(request if isinstance(request, bytes) else json.dumps(request).encode())

    def raw(self, request: dict[str, Any] | bytes) -> bytes:
        """The bytes of the reply."""
        self.send(request)
        return self.socket.recv(65_536)

    def ask(self, action: str, topic: Any = "news", **fields: Any) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(self.raw({"action": action, "topic": topic, **fields}))
        return reply

    def publish(self, payloads: Iterable[Any], topic: str = "news") -> None:
        for payload in payloads:
            assert self.ask("publish", topic, payload=payload)["status"] == "success"

    def payloads(self, topic: str = "news", **fields: Any) -> list[Any]:
        return [each["payload"] for each in self.ask("get", topic, **fields)["messages"]]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
