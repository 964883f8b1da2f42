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

    Key = tuple[str, str, str, bytes]  # address, access key, token, software


class Clients:
    """Those that have called lately, in the order of the calls after which they were last put in
    order: who calls again is only marked, and goes to the end when somebody has to make room."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[Key, Client] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def received(self, call: Call, queue: str) -> None:
        """It asked for messages of a queue, whether or not there were any."""
        now_ms = self._engine.wall_ms()
        client = self._of(call, now_ms)
        if queue not in client.tallies:
            client.begin(queue, now_ms)

    def deleted(self, call: Call, queue: str, count: int) -> None:
        now_ms = self._engine.wall_ms()
        client = self._of(call, now_ms)
        tally = client.tallies.get(queue) or client.begin(queue, now_ms)
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
        agent = exchange.fields.get(b"user-agent", b"")
        if len(agent) > SQS_CLIENT_CHARS_MAX:
            agent = agent[:SQS_CLIENT_CHARS_MAX]
        token = rights.name if rights.is_bound else ""
        key = (exchange.peer, caller.access_key_id, token, agent)
        client = self._known.get(key)
        if client is None:
            client = self._add(key, now_ms)
        client.last_ms = now_ms
        return client

    def _add(self, key: Key, now_ms: int) -> Client:
        if len(self._known) >= SQS_CLIENTS_MAX:
            self._forget(self._silent_longest())
        client = self._known[key] = Client(self._engine, *key, now_ms)
        client.number = self._engine.connections.add(client)
        if self._sweeping is None:
            self._sweep_later()
        return client

    def _silent_longest(self) -> Key:
        """Who has called since its place was found gets another, at the end; each at most once."""
        for _ in range(len(self._known)):
            key = next(iter(self._known))
            client = self._known[key]
            if client.last_ms == client.placed_ms:
                return key
            client.placed_ms = client.last_ms
            self._known[key] = self._known.pop(key)
        return next(iter(self._known))

    def _forget(self, key: Key) -> None:
        self._engine.connections.remove(self._known.pop(key).number)

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(SQS_CLIENT_SILENT_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        silent_since_ms = self._engine.wall_ms() - SQS_CLIENT_SILENT_MS
        for key in [k for k, client in self._known.items() if client.last_ms <= silent_since_ms]:
            self._forget(key)
        if self._known:
            self._sweep_later()


class Client:
    """One of them, as a connection of the list."""

    def __init__(
        self, engine: Engine, peer: str, access_key_id: str, token: str, agent: bytes, now_ms: int
    ) -> None:
        self.number = 0
        self.last_ms = self.placed_ms = now_ms  # when it called; and when it had, to find its place
        self._engine = engine
        self._peer = peer
        self._name = access_key_id
        self._token = token
        self._software = agent.decode("latin-1").partition(" ")[0]
        self._since_ms = now_ms
        self.tallies: dict[str, AckTally] = {}  # by queue

    def begin(self, queue: str, now_ms: int) -> AckTally | None:
        """It has not received from this queue before; None: of so many, not all are told."""
        if len(self.tallies) >= SQS_CLIENT_QUEUES_MAX:
            return None
        tally = self.tallies[queue] = AckTally(now_ms)
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
            for queue, tally in self.tallies.items()
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
