"""The way to the HTTP port of another node: a request as it came, so that its signature stays
valid, and the answer as it comes.

With it goes a secret that only nodes know, and the address of the client. Whoever gets that passes
nothing on again, and takes the address for the client's own; from anybody else both are worth
nothing.
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest
from typing import TYPE_CHECKING

import httptools

from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import CLUSTER_ROUTE_S, WAIT_MS_MAX

if TYPE_CHECKING:
    import ssl

    from nexo.doors.http.exchange import Exchange

PASSED = b"x-nexo-passed"
_PEER = b"x-nexo-peer"
_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"content-length"})
_NOT_SENT = _HOP | {b"expect", PASSED, _PEER}
_IDLE_MAX = 64  # connections to another node that are kept
_FAILURES = (OSError, TimeoutError, EOFError, httptools.HttpParserError)


def is_passed(exchange: Exchange, secret: str) -> bool:
    """Whether another node passed a request on; then it counts as the client's of that node."""
    told = exchange.fields.get(PASSED)
    if told is None or not compare_digest(told, secret.encode()):
        return False
    exchange.peer = exchange.fields.get(_PEER, b"").decode("latin-1")
    return True


class Peer:
    """Connections to one node. They are kept for the next request."""

    def __init__(self, address: str, secret: str, tls: ssl.SSLContext | None) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._tls = tls
        self._secret = secret
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def ask(self, exchange: Exchange, body: bytes) -> Answer:
        """Send a request, and return the whole answer."""
        try:
            # A long poll may take its time, and so may a shard that is on its way.
            async with asyncio.timeout(WAIT_MS_MAX / 1000 + CLUSTER_ROUTE_S):
                return await self._ask([self._head(exchange, body), body])
        except _FAILURES as error:
            raise self._silent(error) from None

    async def stream(self, exchange: Exchange, body: bytes) -> None:
        """Send a request, and what is answered to the client as it comes: live pages never end."""
        try:
            async with asyncio.timeout(CLUSTER_ROUTE_S):
                reader, writer = await self._connect()
        except _FAILURES as error:
            raise self._silent(error) from None
        answer = Answer()
        exchange.when_gone(writer.close)
        try:
            writer.writelines([self._head(exchange, body), body])
            while not answer.is_whole and not exchange.is_gone:
                data = await reader.read(1 << 16)
                if not data:
                    raise EOFError("it hung up")
                answer.parser.feed_data(data)
                await answer.send_on(exchange)
        except _FAILURES as error:
            if exchange.is_gone:
                return
            if not exchange.is_started:
                raise self._silent(error) from None
            exchange.fail(error)
        finally:
            exchange.when_gone(None)
            writer.close()

    def _head(self, exchange: Exchange, body: bytes) -> bytes:
        query = b"?" + exchange.query if exchange.query else b""
        # A HEAD is a GET of which only the head is told on.
        method = b"GET" if exchange.method == "HEAD" else exchange.method.encode()
        lines = [b"%b %b%b HTTP/1.1\r\n" % (method, exchange.raw_path, query)]
        lines += [
            b"%b: %b\r\n" % (name, value)
            for name, value in exchange.headers
            if name not in _NOT_SENT
        ]
        lines.append(b"%b: %b\r\n" % (PASSED, self._secret.encode()))
        lines.append(b"%b: %b\r\n" % (_PEER, exchange.peer.encode("latin-1")))
        lines.append(b"content-length: %d\r\n\r\n" % len(body))
        return b"".join(lines)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._host.strip("[]"), int(self._port)
        return await asyncio.open_connection(host, port, ssl=self._tls)

    async def _ask(self, pieces: list[bytes]) -> Answer:
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        answer = Answer()
        try:
            writer.writelines(pieces)
            while not answer.is_whole:
                data = await reader.read(1 << 16)
                if not data:
                    raise EOFError("it hung up")
                answer.parser.feed_data(data)
        except BaseException:
            writer.close()
            raise
        if answer.parser.should_keep_alive() and len(self._idle) < _IDLE_MAX:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return answer

    def _silent(self, error: BaseException) -> NotReady:
        return NotReady(f"the node at {self._host}:{self._port} does not answer: {error}")


class Answer:
    """What httptools tells of an answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_whole = False
        self._has_head = False
        self._parts: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.is_whole = True

    def reply(self, exchange: Exchange) -> None:
        """The whole of it."""
        body = b"".join(self._parts)
        lines = b"".join(
            b"%b: %b\r\n" % (name, value) for name, value in self.headers if name not in _HOP
        )
        head = b"%bcontent-length: %d\r\n" % (lines, len(body))
        exchange.reply(self.parser.get_status_code(), head, body)

    async def send_on(self, exchange: Exchange) -> None:
        """What has come of it since the last time."""
        if not self._has_head:
            return
        if not exchange.is_started:
            headers = [each for each in self.headers if each[0] not in _HOP]
            length = [each for each in self.headers if each[0] == b"content-length"]
            status = self.parser.get_status_code()
            await exchange.send(
                {"type": "http.response.start", "status": status, "headers": headers + length}
            )
        if exchange.method == "HEAD":
            self.is_whole, self._parts = True, []
        part, self._parts = b"".join(self._parts), []
        if part or self.is_whole:
            more = not self.is_whole
            await exchange.send({"type": "http.response.body", "body": part, "more_body": more})
