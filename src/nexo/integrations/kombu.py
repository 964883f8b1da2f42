"""Celery on Nexo: a transport of kombu, for `broker_url = "nexo://127.0.0.1:9325"`.

| in kombu | in Nexo |
|---|---|
| queue | a queue; messages are sent to the worker as they come, and their leases are extended |
| priority | priority: the higher goes first, as in AMQP |
| `eta`, `countdown`, header `x-delay` | a delay: the broker holds it, for years if need be |
| reject with requeue | a nack: it counts as an attempt, and the last one makes a dead letter |
| reject without requeue | moved to the queue's dead letters |
| fanout exchange | a topic `kombu.<exchange>`, and queues bound to it |
| direct and topic exchange | for each binding key a topic, which only says what is bound to it |
| queue that deletes itself | a queue without dead letters; those left behind are swept |
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import threading
import time
from collections import deque
from datetime import UTC, datetime
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from kombu.transport import virtual as kombu_virtual
from kombu.utils.json import dumps, loads

import nexo
from nexo.integrations.acks import Acks, bury

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

virtual: Any = kombu_virtual  # its types are not those that it has at run time

FOR_EVER_S = 20 * 365 * 86_400.0  # of a broker's longest retention: tasks are not to expire
EPHEMERAL_S = 3_600.0  # how long a queue that deletes itself keeps what nobody takes
SWEEP_S = 600.0  # between two looks for queues whose owner died
TABLE_S = 1.0  # how long a table of bindings is believed
PREFETCH = 1_000  # where no limit is given
DELIVERED_MAX = 100  # messages in one turn of an event loop
MARK = "kombu.ephemeral"  # the tag of queues that delete themselves: when they were made


# -- Names and times --------------------------------------------------------------------------


def queue_name(name: str) -> str:
    """kombu's names may have any characters: those that Nexo has not are replaced."""
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:71]}-{digest}"


def topic_name(exchange: str, key: str | None = None) -> str:
    """The topic of a fanout exchange, or of one binding key of another exchange."""
    name = f"kombu.{escaped(exchange)}"
    if key is not None:
        name += f".{escaped(key, '.')}"
    return name if len(name) <= 80 else f"kombu.{hashlib.sha256(name.encode()).hexdigest()}"


def escaped(text: str, safe: str = "") -> str:
    return re.sub(rf"[^A-Za-z0-9{safe}-]", lambda found: f"_{ord(found[0]):X}_", text)


def unescaped(text: str) -> str:
    return re.sub(r"_([0-9A-F]+)_", lambda found: chr(int(found[1], 16)), text)


def delay_of(message: dict[str, Any], now: float) -> float | None:
    """How long the broker is to hold a message, in seconds."""
    headers = message.get("headers") or {}
    if headers.get("x-delay"):
        return max(0.0, float(headers["x-delay"]) / 1000)
    eta = headers.get("eta")
    if not eta:
        return None
    moment = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, float(moment.timestamp()) - now)


# -- Waiting ----------------------------------------------------------------------------------


class Bell:
    """Wakes the thread that waits for it, or watches its file descriptor."""

    def __init__(self) -> None:
        self._inside, self._outside = os.pipe()
        os.set_blocking(self._inside, False)
        os.set_blocking(self._outside, False)

    def fileno(self) -> int:
        return self._inside

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is rung already
            os.write(self._outside, b"!")

    def hush(self) -> None:
        """Before one looks: what comes from here on rings again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._inside, 4096)

    def __del__(self) -> None:
        os.close(self._inside)
        os.close(self._outside)


class Pump(threading.Thread):
    """Waits for the messages of one consumer."""

    def __init__(self, channel: Channel, queue: str, no_ack: bool) -> None:
        super().__init__(name=f"nexo-kombu-{queue}", daemon=True)
        self.callback = channel.connection._callbacks[queue]
        self.no_ack = no_ack
        self.is_stopped = False
        self._source = channel.queue(queue)
        self._arrive, self._fail = channel.arrive, channel.connection.fail
        held = channel.prefetch
        self._subscription = self._source.subscribe_batches(held, prefetch=held, auto_extend=True)
        self.start()

    def run(self) -> None:
        try:
            for messages in self._subscription:
                self._arrive(self, messages)
        except nexo.NexoError as error:
            if not self.is_stopped:
                self._fail(error)

    def stop(self) -> None:
        self.is_stopped = True
        with contextlib.suppress(nexo.NexoError):
            self._subscription.close()

    def give_back(self, messages: Iterable[Any]) -> None:
        """What nobody has seen goes back as if it had never been here."""
        with contextlib.suppress(nexo.NexoError):
            self._source.give_back(messages)


class Channel(virtual.Channel):
    supports_fanout = True
    max_priority = 255
    from_transport_options = (*virtual.Channel.from_transport_options, "queue_settings")
    queue_settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, connection: Any, **options: Any) -> None:
        self._pumps: dict[str, Pump] = {}  # by consumer tag
        self._arrived: deque[tuple[Pump, Any]] = deque()  # not given to their consumers yet
        self._held: dict[str, Any] = {}  # by delivery tag: messages that are not finished
        self._ephemeral: set[str] = set()
        self._tables: dict[Any, tuple[float, Any]] = {}
        super().__init__(connection, **options)

    # -- Queues -------------------------------------------------------------------------------

    def queue(self, name: str) -> nexo.Queue:
        found: nexo.Queue = self.connection.nexo.queue(queue_name(name))
        return found

    def _info(self, queue: str) -> Any:
        with contextlib.suppress(nexo.QueueNotFound):
            return self.queue(queue).info()
        return None

    def _new_queue(self, queue: str, **options: Any) -> None:
        settings: dict[str, Any] = {"retention": FOR_EVER_S, **self.queue_settings}
        if options.get("auto_delete") or options.get("exclusive"):
            ttl_ms = (options.get("arguments") or {}).get("x-message-ttl")
            retention = max(1.0, ttl_ms / 1000) if ttl_ms else EPHEMERAL_S
            tags = {MARK: str(int(time.time()))}
            settings = {"retention": retention, "max_attempts": None, "events": False, "tags": tags}
            self._ephemeral.add(queue)
            self.connection.sweep()
        # It is there, with settings of its own; or it may only be used by this token.
        with contextlib.suppress(nexo.QueueExists, nexo.Forbidden):
            self.connection.nexo.create_queue(queue_name(queue), **settings)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self._info(queue) is not None

    def _size(self, queue: str) -> int:
        info = self._info(queue)
        return info.ready if info else 0

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
        for exchange, key, _arguments in list(self.state.queue_bindings(queue)):
            if queue in self._ephemeral and self.typeof(exchange).type == "direct":
                self.connection.forget(topic_name(exchange, key))
        self.state.queue_bindings_delete(queue)
        self._ephemeral.discard(queue)

    # -- Exchanges ----------------------------------------------------------------------------

    def _topic_of(self, exchange: str, key: str) -> nexo.Topic:
        is_fanout = self.typeof(exchange).type == "fanout"
        found: nexo.Topic = self.connection.nexo.topic(
            topic_name(exchange, None if is_fanout else key)
        )
        return found

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        topic = self._topic_of(exchange, routing_key)
        with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
            # What is published goes to the queues that are bound: the topic itself need not last.
            self.connection.nexo.create_topic(topic.name, retention_messages=1)
        topic.bind(queue_name(queue))
        self._tables.clear()

    def queue_unbind(
        self, queue: str, exchange: str = "", routing_key: str = "", *arguments: Any, **_: Any
    ) -> None:
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
                queues = self._believed(topic.name, lambda: topic.info().bound_queues)
                if queues:
                    return queues
        return super()._lookup(exchange, routing_key, default)

    def _believed(self, name: str | None, ask: Callable[[], Any]) -> Any:
        """What the broker said a moment ago, unless that was nothing."""
        asked_at, answer = self._tables.get(name, (0.0, None))
        if not answer or time.monotonic() - asked_at > TABLE_S:
            answer = ask()
            self._tables[name] = (time.monotonic(), answer)
        return answer

    # -- Producers ----------------------------------------------------------------------------

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

    # -- Consumers ----------------------------------------------------------------------------

    @property
    def prefetch(self) -> int:
        return self.qos.prefetch_count or PREFETCH

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        self._pumps[consumer_tag] = Pump(self, queue, no_ack)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        pump = self._pumps.pop(consumer_tag, None)
        if pump is not None and queue is not None:
            pump.stop()
            pump.give_back([each for owner, each in self._arrived if owner is pump])
            self._arrived = deque(each for each in self._arrived if each[0] is not pump)
            if queue in self._ephemeral:
                with contextlib.suppress(nexo.NexoError):
                    self.queue_delete(queue, if_unused=True)

    def arrive(self, pump: Pump, messages: Iterable[Any]) -> None:
        """In the thread of a pump."""
        if pump.is_stopped:
            pump.give_back(messages)
        else:
            self._arrived.extend((pump, message) for message in messages)
            self.connection.bell.ring()

    def deliver_one(self) -> bool:
        """Give the next message to its consumer, if it may have one more."""
        while self._arrived and self.qos.can_consume():
            pump, message = self._arrived.popleft()
            if message.id in self._held:
                # It came again after a broken connection, and is being worked on here: from now
                # on it is finished by this delivery.
                self._held[message.id] = message
            elif payload := self._payload(message, pump.no_ack):
                pump.callback(payload)
                return True
        return False

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
        message = self._held.pop(delivery_tag, None)
        if message is not None:
            self.connection.acks.add(message, self.prefetch)
        self._finished(delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        message = self._held.pop(delivery_tag, None)
        with contextlib.suppress(nexo.StaleReceipt, nexo.WrongState):  # it has come back already
            if message is not None and requeue:
                message.nack(delay=0, reason="rejected, to be tried again")
            elif message is not None:
                bury(self.connection.nexo, message, "rejected")
        self._finished(delivery_tag)

    def _finished(self, delivery_tag: str) -> None:
        self.qos.ack(delivery_tag)
        if self._arrived:  # there is room for one more
            self.connection.bell.ring()

    def _restore(self, message: Any) -> None:
        held = self._held.pop(message.delivery_tag, None)
        if held is not None:
            self.connection.nexo.queue(held.queue).give_back([held])

    def close(self) -> None:
        if not self.closed and self.connection is not None:
            self.connection.acks.flush()
        super().close()


class Transport(virtual.Transport):
    Channel = Channel
    default_port = 9325
    driver_type = driver_name = scheme = "nexo"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (ConnectionError, OSError, nexo.Unreachable, nexo.Timeout, nexo.NotReady)
    channel_errors = (*virtual.Transport.channel_errors, nexo.NexoError)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.nexo: Any = None
        self.bell = Bell()
        self.acks: Any = None
        self._failure: nexo.NexoError | None = None
        self._swept_at = 0.0

    def establish_connection(self) -> Any:
        asked, options = self.client, self.client.transport_options
        host = asked.hostname or "127.0.0.1"
        self.nexo = nexo.connect(
            f"{self.scheme}://{host}:{asked.port or self.default_port}",
            token=asked.password or options.get("token"),
            timeout=options.get("timeout", 30.0),
            tls_ca=options.get("tls_ca"),
        )
        self.acks = Acks(self.nexo)
        self._failure = None
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        with contextlib.suppress(nexo.NexoError):  # what was not acked comes again
            super().close_connection(connection)
            if self.acks is not None:
                self.acks.stop()
        if self.nexo is not None:
            self.nexo.close()

    def verify_connection(self, connection: Any) -> bool:
        return self.nexo is not None and self._failure is None

    def driver_version(self) -> str:
        return nexo.__version__

    def fail(self, error: nexo.NexoError) -> None:
        """A pump has ended: in its thread."""
        self._failure = error
        self.bell.ring()

    # -- Delivering ---------------------------------------------------------------------------

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        ends = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_some():
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            select.select([self.bell], [], [], left)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self.bell.fileno(), self._deliver_some)
        self.bell.ring()  # for what came before

    def _deliver_some(self) -> bool:
        """What has arrived; channels take turns."""
        self.bell.hush()
        if self._failure is not None:
            raise ConnectionError(str(self._failure)) from self._failure
        for delivered in range(DELIVERED_MAX):
            if not [channel for channel in list(self.channels) if channel.deliver_one()]:
                return delivered > 0
        self.bell.ring()  # whoever waits has other things to do in between
        return True

    # -- Tidiness -----------------------------------------------------------------------------

    def forget(self, topic: str) -> None:
        """A topic of bindings, if nothing is bound any more."""
        with contextlib.suppress(nexo.NexoError):
            if not self.nexo.topic(topic).info().bound_queues:
                self.nexo.topic(topic).delete()

    def sweep(self) -> None:
        """Delete what processes left that died: queues that delete themselves, without a consumer,
        and the bindings of replies."""
        if time.monotonic() - self._swept_at < SWEEP_S and self._swept_at:
            return
        self._swept_at = time.monotonic()
        with contextlib.suppress(nexo.NexoError):  # it is somebody else's turn, or right
            for queue in self.nexo.queues():
                made = queue.settings.tags.get(MARK, "")
                is_old = made.isdigit() and time.time() - int(made) > EPHEMERAL_S
                if is_old and not queue.consumers:
                    self.nexo.queue(queue.name).delete()
            for topic in self.nexo.topics():
                if topic.name.startswith(topic_name("reply.")) and not topic.bound_queues:
                    self.forget(topic.name)


class TlsTransport(Transport):
    """For `nexos://…`."""

    scheme = "nexos"
