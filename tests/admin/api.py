"""The admin API as a plain HTTP client sees it: nothing is normalised or added on the way."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote

JSON = {"content-type": "application/json"}


class Answer:
    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        """Of a refusal."""
        code: str = self.json["error"]["code"]
        return code


class Api:
    def __init__(self, port: int, token: str | None = None) -> None:
        self._port = port
        self._token = token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """`path` is behind /api/v1. With `status`, that must be the answer's."""
        path = f"/api/v1{path}"
        return self.at(path, method, body, status=status, headers=headers, raw=raw)

    def at(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """The same for the whole path."""
        sent = {} if body is None and raw is None else dict(JSON)
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token}"
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, content, {**sent, **(headers or {})})
            reply = connection.getresponse()
            told = {name.lower(): value for name, value in reply.getheaders()}
            answer = Answer(reply.status, told, reply.read())
        finally:
            connection.close()
        if status is not None:
            shown = f"{method} {path}: {answer.status} {answer.content[:500]!r}"
            assert answer.status == status, f"{shown}, not {status}"
        return answer


def at(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
