"""Celery on Nexo: a transport of kombu, for `broker_url = "nexo://127.0.0.1:9325"`.

| in kombu | in Nexo |
|---|---|
| queue | a queue; messages are sent to the worker as they come, and their leases are extended |
| priority | priority: the higher goes first, as in AMQP |
| `eta`, `countdown`, header `x-delay` | a delay: the broker holds it, for years if need be |
| reject | with requeue a nack, which counts as an attempt; else moved to the dead letters |
| fanout exchange | a topic `kombu.<exchange>`, and queues bound to it |
| direct and topic exchange | for each binding key a topic, which only says what is bound to it |
| queue that deletes itself | a queue without dead letters; those left behind are swept |
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import select
import threading
import time
from datetime import UTC, datetime
from queue import Empty
from typing import Any, ClassVar

from kombu.transport import virtual as kombu_virtual
from kombu.utils.json import dumps, loads
from kombu.utils.scheduling import FairCycle

import nexo
from nexo.client.operation import Operation
from nexo.integrations.acks import Acks, bury

virtual: Any = kombu_virtual  # its types are not those that it has at run time

FOR_EVER_S = 20 * 365 * 86_400.0  # of a broker's longest retention: tasks are not to expire
EPHEMERAL_S = 3_600.0  # how long a queue that deletes itself keeps what nobody takes
SWEEP_S = 600.0  # between two looks for queues whose owner died
TABLE_S = 1.0  # how long a table of bindings is believed
PREFETCH = 1_000  # where no limit is given
DELIVERED_MAX = 100  # messages in one turn of an event loop
MARK = "kombu.ephemeral"  # the tag of queues that delete themselves: when they were made


def queue_name(name: str) -> str:
    """kombu's names may have any characters: those that Nexo has not are replaced."""
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:71]}-{digest}"


def topic_name(exchange: str, key: str | None = None) -> str:
    """The topic of a fanout exchange, or of one binding key of another exchange."""
    name = f"kombu.{escaped(exchange)}" + ("" if key is None else f".{escaped(key, '.')}")
    return name if len(name) <= 80 else f"kombu.{hashlib.sha256(name.encode()).hexdigest()}"


def escaped(text: str, safe: str = "") -> str:
    return re.sub(rf"[^A-Za-z0-9{safe}-]", lambda found: f"_{ord(found[0]):X}_", text)


def unescaped(text: str) -> str:
    return re.sub(r"_([0-9A-F]+)_", lambda found: chr(int(found[1], 16)), text)


def delay_of(message: dict[str, Any], now: float) -> float | None:
    """How long the broker is to hold a message, in seconds."""
    headers = message.get("headers") or {}
    if delay_ms := headers.get("x-delay"):
        return max(0.0, float(delay_ms) / 1000)
    if not (eta := headers.get("eta")):
        return None
    moment = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, float(moment.timestamp()) - now)


class Channel(virtual.Channel):
    supports_fanout = True
    max_priority = 255
    from_transport_options = (*virtual.Channel.from_transport_options, "queue_settings")
    queue_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, connection: Any, **options: Any) -> None:
        # By consumer tag: a subscription, where its messages go, and whether that is an ack.
        self._consuming: dict[str, tuple[Any, Any, bool]] = {}
        self._held: dict[str, Any] = {}  # by delivery tag: messages that are not finished
        self._ephemeral: set[str] = set()
        self._tables: dict[Any, tuple[float, Any]] = {}
        super().__init__(connection, **options)

    def queue(self, name: str) -> Any:
        return self.connection.nexo.queue(queue_name(name))

    def _info(self, queue: str) -> Any:
        with contextlib.suppress(nexo.QueueNotFound):
            return self.queue(queue).info()
        return None

    def _new_queue(self, queue: str, **options: Any) -> None:
        settings: dict[str, Any] = {"retention": FOR_EVER_S, **self.queue_settings}
        if options.get("auto_delete") or options.get("exclusive"):
            ttl_ms = (options.get("arguments") or {}).get("x-message-ttl", EPHEMERAL_S * 1000)
            settings = {"retention": max(1.0, ttl_ms / 1000), "max_attempts": None}
            settings |= {"events": False, "tags": {MARK: str(int(time.time()))}}
            self._ephemeral.add(queue)
            self.connection.sweep()
        # It is there, with settings of its own; or it may only be used by this token.
        with contextlib.suppress(nexo.QueueExists, nexo.Forbidden):
            self.connection.nexo.create_queue(queue_name(queue), **settings)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self._info(queue) is not None

    def _size(self, queue: str) -> int:
        return info.ready if (info := self._info(queue)) else 0

    def _purge(self, queue: str) -> int:
        return self.queue(queue).purge() if self._has_queue(queue) else 0

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        info = self._info(queue)
        if info and ((if_empty and info.depth) or (if_unused and info.consumers)):
            return
        with contextlib.suppress(nexo.QueueNotFound):
            self.queue(queue).delete()
        self.state.queue_bindings_delete(queue)
        self._ephemeral.discard(queue)

    def _topic_of(self, exchange: str, key: str) -> Any:
        is_fanout = self.typeof(exchange).type == "fanout"
        return self.connection.nexo.topic(topic_name(exchange, None if is_fanout else key))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        topic = self._topic_of(exchange, routing_key)
        with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
            # What is published goes to the queues that are bound: the topic itself need not last.
            self.connection.nexo.create_topic(topic.name, retention_messages=1)
        topic.bind(queue_name(queue))
        self._tables.clear()

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        with contextlib.suppress(nexo.TopicNotFound, nexo.QueueNotFound, nexo.InvalidArgument):
            self._topic_of(exchange, routing_key).unbind(queue_name(queue))
        self._tables.clear()

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        """The bindings of all processes, as the broker has them."""
        prefix = topic_name(exchange, "")
        kind = self.typeof(exchange)
        return [
            kind.prepare_bind(queue, exchange, unescaped(topic.name[len(prefix) :]), None)
            for topic in self._believed(None, self.connection.nexo.topics)
            if topic.name.startswith(prefix)
            for queue in topic.bound_queues
        ]

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        if exchange and self.typeof(exchange).type == "direct":
            topic = self._topic_of(exchange, routing_key)
            with contextlib.suppress(nexo.TopicNotFound):
                if queues := self._believed(topic.name, lambda: topic.info().bound_queues):
                    return queues
        return super()._lookup(exchange, routing_key, default)

    def _believed(self, name: str | None, ask: Any) -> Any:
        """What the broker said a moment ago, unless that was nothing."""
        asked_at, answer = self._tables.get(name, (0.0, None))
        if not answer or time.monotonic() - asked_at > TABLE_S:
            asked_at, answer = self._tables[name] = (time.monotonic(), ask())
        return answer

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        body, delay = dumps(message), delay_of(message, time.time())
        priority = self._get_message_priority(message)
        try:
            self.queue(queue).push(body, priority=priority, delay=delay)
        except nexo.QueueNotFound:  # as with other transports, a queue need not be declared
            self._new_queue(queue)
            self.queue(queue).push(body, priority=priority, delay=delay)

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **_: Any) -> None:
        with contextlib.suppress(nexo.TopicNotFound):  # nobody listens
            self.connection.nexo.topic(topic_name(exchange)).publish(dumps(message))

    @property
    def prefetch(self) -> int:
        return self.qos.prefetch_count or PREFETCH

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        subscription = self.queue(queue).subscribe(self.prefetch, auto_extend=True)
        called = self.connection._callbacks[queue]  # another channel may take its place there
        self._consuming[consumer_tag] = (subscription, called, no_ack)
        self._reset_cycle()
        self.connection.watch(subscription)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        subscription, *_ = self._consuming.pop(consumer_tag, (None,))
        super().basic_cancel(consumer_tag)
        with contextlib.suppress(nexo.NexoError):
            if subscription is not None:
                subscription.close()
            if queue in self._ephemeral:
                self.queue_delete(queue, if_unused=True)

    def _reset_cycle(self) -> None:
        """Those that `drain_events` takes from in turn, if `qos` lets it."""
        self._cycle = FairCycle(self._take, list(self._consuming.values()), Empty)

    def _take(self, consumer: tuple[Any, Any, bool], _: Any) -> None:
        """Give a consumer its next message."""
        subscription, callback, no_ack = consumer
        try:
            message = subscription._next(0.0)
        except nexo.NexoError as error:
            raise self.connection.lost(error) from error
        if message is None:
            raise Empty
        if message.id in self._held:
            # It came again after a broken connection, and is being worked on here: from now on it
            # is finished by this delivery.
            self._held[message.id] = message
        elif payload := self._payload(message, no_ack):
            callback(payload)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        while (message := self.queue(queue).pop()) is not None:
            if payload := self._payload(message, no_ack=False):
                return payload
        raise Empty

    def _payload(self, message: Any, no_ack: bool) -> dict[str, Any] | None:
        """A message as kombu has it; None if nobody is to see it any more."""
        payload: dict[str, Any] = loads(message.body)
        properties = payload["properties"]
        properties["delivery_tag"] = message.id  # each copy of a message has its own
        if message.attempts > 1:
            payload["headers"]["redelivered"] = True
            properties["delivery_info"]["redelivered"] = True
        lives_ms = float(properties.get("expiration") or FOR_EVER_S * 1000)
        is_over = time.time() - message.created_at.timestamp() > lives_ms / 1000
        if is_over or no_ack:
            self.connection.acks.add(message, self.prefetch)
        else:
            self._held[message.id] = message
        return None if is_over else payload

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        if message := self._finished(delivery_tag):
            self.connection.acks.add(message, self.prefetch)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        message = self._finished(delivery_tag)
        with contextlib.suppress(nexo.StaleReceipt, nexo.WrongState):  # it has come back already
            if message and requeue:
                message.nack(delay=0, reason="rejected, to be tried again")
            elif message:
                bury(self.connection.nexo, message, "rejected")

    def _finished(self, delivery_tag: str) -> Any:
        """Returns what was held, if it still is."""
        was_full = not self.qos.can_consume()
        self.qos.ack(delivery_tag)
        if was_full:
            self.connection.ring()
        return self._held.pop(delivery_tag, None)

    def _restore(self, message: Any) -> None:
        if held := self._held.pop(message.delivery_tag, None):
            self.connection.nexo.queue(held.queue).give_back([held])

    def close(self) -> None:
        if not self.closed and self.connection is not None:
            self.connection.acks.flush()
        super().close()


class Transport(virtual.Transport):
    Channel = Channel
    default_port = 9325
    driver_type = driver_name = "nexo"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (ConnectionError, OSError, nexo.Unreachable, nexo.Timeout, nexo.NotReady)
    channel_errors = (*virtual.Transport.channel_errors, nexo.NexoError)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.nexo: Any = None
        self._bell, self._rope = os.pipe()  # whoever reads pulls the rope, whoever waits hears it
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        self._failure: nexo.NexoError | None = None
        self._swept_at = 0.0

    def __del__(self) -> None:
        os.close(self._bell)
        os.close(self._rope)

    def establish_connection(self) -> Any:
        asked, options = self.client, self.client.transport_options
        scheme = "nexos" if asked.transport_cls == "nexos" else "nexo"
        self.nexo = nexo.connect(
            f"{scheme}://{asked.hostname or '127.0.0.1'}:{asked.port or self.default_port}",
            token=asked.password or options.get("token"),
            timeout=options.get("timeout", 30.0),
            tls_ca=options.get("tls_ca"),
        )
        self.acks = Acks(self.nexo)
        self._is_read, self._failure = False, None  # no thread reads yet
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        with contextlib.suppress(nexo.NexoError):  # what was not acked comes again
            super().close_connection(connection)
            self.acks.stop()
        self.nexo.close()

    def verify_connection(self, connection: Any) -> bool:
        return self.nexo is not None and self._failure is None

    def driver_version(self) -> str:
        return nexo.__version__

    def lost(self, error: nexo.NexoError) -> ConnectionError:
        """What to raise when there will be no more."""
        self._failure = error
        return ConnectionError(str(error))

    def watch(self, subscription: Any) -> None:
        """Ring when something comes. A thread reads for all that the connection waits for."""
        subscription._state.wake = self.ring
        subscription._open()
        if not self._is_read:
            self._is_read = True
            threading.Thread(target=self._read, args=[self.nexo._connection], daemon=True).start()

    def _read(self, connection: Any) -> None:
        try:
            connection.wait(Operation(), math.inf)
        except nexo.NexoError as error:
            if connection.session.closed is None:
                self.lost(error)
                self.ring()

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is rung already
            os.write(self._rope, b"!")

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while not self._deliver_some():
            if (left := ends - time.monotonic()) <= 0:
                raise TimeoutError
            select.select([self._bell], [], [], None if timeout is None else left)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self._bell, self._deliver_some)
        self.ring()  # for what came before

    def _deliver_some(self) -> bool:
        """What has come; channels and their consumers take turns."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)  # first: what comes from here on rings again
        if self._failure is not None:
            raise self.lost(self._failure)
        for delivered in range(DELIVERED_MAX):
            try:
                self.cycle.get(self._deliver)
            except Empty:
                return delivered > 0
        self.ring()  # whoever waits has other things to do in between
        return True

    def sweep(self) -> None:
        """Delete what processes left that died: queues that delete themselves, without a consumer,
        and the bindings of replies."""
        if time.monotonic() - self._swept_at < SWEEP_S and self._swept_at:
            return
        self._swept_at = time.monotonic()
        with contextlib.suppress(nexo.NexoError):  # it is somebody else's turn, or right
            oldest = str(int(time.time() - EPHEMERAL_S))
            for queue in self.nexo.queues():
                if queue.settings.tags.get(MARK, oldest) < oldest and not queue.consumers:
                    self.nexo.queue(queue.name).delete()
            for topic in self.nexo.topics():
                if topic.name.startswith(topic_name("reply.")) and not topic.bound_queues:
                    self.nexo.topic(topic.name).delete()
