"""Calls of the SQS API without any SDK: sockets and bytes, to see exactly what comes back."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from nexo.testing import Broker


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Door:
    """The HTTP door of a broker, as one client sees it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.url = broker.sqs_url
        split = urlsplit(self.url)
        self.address = (str(split.hostname), int(split.port or 0))

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        connection = HTTPConnection(*self.address, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            lowered = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, lowered, response.read())
        finally:
            connection.close()

    def json(self, action: str, more: dict[str, str] | None = None, /, **wanted: Any) -> Answer:
        """`more`: headers."""
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
            **(more or {}),
        }
        return self.ask("POST", "/", json.dumps(wanted).encode(), headers)

    def query(self, path: str = "/", **fields: str) -> Answer:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields).encode(), kind)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)
