"""The programs that receive over SQS, as far as HTTP shows them: for the list of consumers.

A program opens and closes connections as it likes, and deletes over another one than it received
by. So a client is what comes from one address with one key and one name of its software, and it
has gone when it has not called for some minutes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.doors.sqs_http.accounts import DOOR
from nexo.engine.connections import AckTally, ConnectionFigures, ConsumerFigures, state_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import (
    SQS_CLIENT_CHARS_MAX,
    SQS_CLIENT_QUEUES_MAX,
    SQS_CLIENT_SILENT_MS,
    SQS_CLIENTS_MAX,
)

if TYPE_CHECKING:
    from nexo.doors.sqs_http.call import Call
    from nexo.engine.engine import Engine


class Clients:
    """Those that have called lately, the one that has been silent the longest first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[str, str, str, bytes], Client] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def received(self, call: Call, queue: str) -> None:
        """It asked for messages of a queue, whether or not there were any."""
        now_ms = self._engine.wall_ms()
        self._of(call, now_ms).tally(queue, now_ms)

    def deleted(self, call: Call, queue: str, count: int) -> None:
        now_ms = self._engine.wall_ms()
        tally = self._of(call, now_ms).tally(queue, now_ms)
        if tally is not None:
            tally.add(count, now_ms)

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for client in self._known.values():
            self._engine.connections.remove(client.number)
        self._known.clear()

    def _of(self, call: Call, now_ms: int) -> Client:
        exchange, caller = call.exchange, call.caller
        rights = caller.rights
        token = rights.name if rights.is_bound else ""
        agent = exchange.fields.get(b"user-agent", b"")[:SQS_CLIENT_CHARS_MAX]
        key = (exchange.peer, caller.access_key_id, token, agent)
        client = self._known.pop(key, None)
        if client is None:
            client = Client(self._engine, *key, now_ms)
            client.number = self._engine.connections.add(client)
            if len(self._known) >= SQS_CLIENTS_MAX:
                self._forget(next(iter(self._known)))
            if self._sweeping is None:
                self._sweep_later()
        client.last_ms = now_ms
        self._known[key] = client
        return client

    def _forget(self, key: tuple[str, str, str, bytes]) -> None:
        self._engine.connections.remove(self._known.pop(key).number)

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SQS_CLIENT_SILENT_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        silent_since_ms = self._engine.wall_ms() - SQS_CLIENT_SILENT_MS
        while self._known:
            key, client = next(iter(self._known.items()))
            if client.last_ms > silent_since_ms:
                self._sweep_later()
                return
            self._forget(key)


class Client:
    """One of them, as a connection of the list."""

    def __init__(
        self, engine: Engine, peer: str, access_key_id: str, token: str, agent: bytes, now_ms: int
    ) -> None:
        self.number = 0
        self.last_ms = now_ms
        self._engine = engine
        self._peer = peer
        self._name = access_key_id
        self._token = token
        self._software = agent.decode("latin-1").partition(" ")[0]
        self._since_ms = now_ms
        self._tallies: dict[str, AckTally] = {}

    def tally(self, queue: str, now_ms: int) -> AckTally | None:
        """Of one queue; None: of so many, not all are told."""
        tally = self._tallies.get(queue)
        if tally is None and len(self._tallies) < SQS_CLIENT_QUEUES_MAX:
            tally = self._tallies[queue] = AckTally(now_ms)
        return tally

    def figures(self, number: int) -> ConnectionFigures:
        now_ms = self._engine.wall_ms()
        consumers = [
            ConsumerFigures(
                queue=queue,
                prefetch=0,
                unacked=0,
                acked=tally.count,
                rate=round(tally.rate(now_ms), 2),
                last_ack_ms=tally.last_ms,
                state=state_of(0, True, 0, now_ms - tally.last_ms),
            )
            for queue, tally in self._tallies.items()
        ]
        return ConnectionFigures(
            number=number,
            door=DOOR,
            name=self._name,
            address=self._peer,
            software=self._software,
            token=self._token,
            since_ms=self._since_ms,
            consumers=consumers,
        )

    def close_by_operator(self) -> None:
        raise InvalidArgument(
            "an SQS client cannot be closed: its next call opens another connection",
            "revoke its access key instead: nexo token revoke NAME",
        )
