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
import time
from collections import deque
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from kombu.transport import virtual as kombu_virtual
from kombu.utils.json import dumps, loads

import nexo
from nexo.integrations.acks import Acks
from nexo.integrations.kombu_names import delay_of, queue_name, topic_name, unescaped
from nexo.integrations.kombu_threads import Bell, Pump

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


class QoS(virtual.QoS):
    """Which messages are not finished; what is said of them goes to the broker."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.finish(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.refuse(delivery_tag, requeue)
        super().ack(delivery_tag)


class Channel(virtual.Channel):
    QoS = QoS
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

    @property
    def client(self) -> nexo.Client:
        connected: nexo.Client = self.connection.nexo
        return connected

    # -- Queues -------------------------------------------------------------------------------

    def _queue(self, name: str) -> nexo.Queue:
        return self.client.queue(queue_name(name))

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
            self.client.create_queue(queue_name(queue), **settings)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        with contextlib.suppress(nexo.QueueNotFound):
            self._queue(queue).info()
            return True
        return False

    def _size(self, queue: str) -> int:
        return self._queue(queue).info().ready if self._has_queue(queue) else 0

    def _purge(self, queue: str) -> int:
        return self._queue(queue).purge() if self._has_queue(queue) else 0

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        with contextlib.suppress(nexo.QueueNotFound):
            info = self._queue(queue).info()
            if (if_empty and info.depth) or (if_unused and info.consumers):
                return
            self._queue(queue).delete()
        for exchange, key, _arguments in list(self.state.queue_bindings(queue)):
            if queue in self._ephemeral and self.typeof(exchange).type == "direct":
                self.connection.forget(topic_name(exchange, key))
        self.state.queue_bindings_delete(queue)
        self._ephemeral.discard(queue)

    # -- Exchanges ----------------------------------------------------------------------------

    def _topic_of(self, exchange: str, key: str) -> str:
        is_fanout = self.typeof(exchange).type == "fanout"
        return topic_name(exchange, None if is_fanout else key)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:
        topic = self._topic_of(exchange, routing_key)
        with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
            # What is published goes to the queues that are bound: the topic itself need not last.
            self.client.create_topic(topic, retention_messages=1)
        self.client.topic(topic).bind(queue_name(queue))
        self._tables.clear()

    def queue_unbind(
        self, queue: str, exchange: str = "", routing_key: str = "", *arguments: Any, **_: Any
    ) -> None:
        self.state.binding_delete(queue, exchange, routing_key)
        with contextlib.suppress(nexo.TopicNotFound, nexo.QueueNotFound, nexo.InvalidArgument):
            topic = self.client.topic(self._topic_of(exchange, routing_key))
            topic.unbind(queue_name(queue))
        self._tables.clear()

    def get_table(self, exchange: str) -> list[tuple[str, Any, str]]:
        """The bindings of all processes, as the broker has them."""
        prefix = topic_name(exchange, "")
        kind = self.typeof(exchange)
        return [
            kind.prepare_bind(queue, exchange, unescaped(topic.name[len(prefix) :]), None)
            for topic in self._believed(None, self.client.topics)
            if topic.name.startswith(prefix)
            for queue in topic.bound_queues
        ]

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Iterable[str]:
        if exchange and self.typeof(exchange).type == "direct":
            topic = topic_name(exchange, routing_key)
            with contextlib.suppress(nexo.TopicNotFound):
                ask = self.client.topic(topic).info
                queues: list[str] = self._believed(topic, lambda: ask().bound_queues)
                if queues:
                    return queues
        found: Iterable[str] = super()._lookup(exchange, routing_key, default)
        return found

    def _believed(self, name: str | None, ask: Callable[[], Any]) -> Any:
        """What the broker said a moment ago, unless that was nothing."""
        now = time.monotonic()
        asked_at, answer = self._tables.get(name, (0.0, None))
        if not answer or now - asked_at > TABLE_S:
            answer = ask()
            self._tables[name] = (now, answer)
        return answer

    # -- Producers ----------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        body = dumps(message)
        options: dict[str, Any] = {
            "priority": self._get_message_priority(message),
            "delay": delay_of(message, time.time()),
        }
        try:
            self._queue(queue).push(body, **options)
        except nexo.QueueNotFound:  # as with other transports, a queue need not be declared
            self._new_queue(queue)
            self._queue(queue).push(body, **options)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any
    ) -> None:
        with contextlib.suppress(nexo.TopicNotFound):  # nobody listens
            self.client.topic(topic_name(exchange)).publish(dumps(message))

    # -- Consumers ----------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        prefetch = self.qos.prefetch_count or PREFETCH
        pump = Pump(self._queue(queue), prefetch, lambda messages: self._arrive(pump, messages))
        pump.callback, pump.failed = self.connection._callbacks[queue], self.connection.fail
        pump.no_ack = no_ack
        self._pumps[consumer_tag] = pump
        pump.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        pump = self._pumps.pop(consumer_tag, None)
        if pump is not None and queue is not None:
            waiting = [each for owner, each in self._arrived if owner is pump]
            self._arrived = deque(each for each in self._arrived if each[0] is not pump)
            pump.stop(waiting)
            if queue in self._ephemeral:
                with contextlib.suppress(nexo.NexoError):
                    self.queue_delete(queue, if_unused=True)

    def _arrive(self, pump: Pump, messages: Iterable[Any]) -> None:
        """In the thread of a pump."""
        self._arrived.extend((pump, message) for message in messages)
        self.connection.bell.ring()

    def deliver_one(self) -> bool:
        """Give the next message to its consumer, if it may have one more."""
        while self._arrived and self.qos.can_consume():
            pump, message = self._arrived.popleft()
            tag = message.id
            if tag in self._held:
                # It came again after a broken connection, and is being worked on here: from now
                # on it is finished by this delivery.
                self._held[tag] = message
                continue
            payload = self._payload(message, pump.no_ack)
            if payload is not None:
                pump.callback(payload)
                return True
        return False

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        while (message := self._queue(queue).pop()) is not None:
            payload = self._payload(message, no_ack=False)
            if payload is not None:
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
        lives_ms = properties.get("expiration")
        if lives_ms and time.time() - message.created_at.timestamp() > float(lives_ms) / 1000:
            self.connection.acks.add(message)
            return None
        if no_ack:
            self.connection.acks.add(message)
        else:
            self._held[message.id] = message
        return payload

    def finish(self, delivery_tag: str) -> None:
        message = self._held.pop(delivery_tag, None)
        if message is not None:
            self.connection.acks.add(message)
        if self._arrived:  # there is room for one more
            self.connection.bell.ring()

    def refuse(self, delivery_tag: str, requeue: bool) -> None:
        message = self._held.pop(delivery_tag, None)
        if message is None:
            return
        with contextlib.suppress(nexo.StaleReceipt, nexo.WrongState):  # it has come back already
            if requeue:
                message.nack(delay=0, reason="rejected, to be tried again")
                return
            dead = self.client.queue(f"{message.queue}_dlq", create=True)
            dead.push(message.body, attributes={**message.attributes, "reason": "rejected"})
            message.ack()

    def _restore(self, message: Any) -> None:
        held = self._held.pop(message.delivery_tag, None)
        if held is not None:
            self.client.queue(held.queue).give_back([held])

    def close(self) -> None:
        if not self.closed and self.connection is not None:
            self.connection.acks.flush()
        super().close()


class Transport(virtual.Transport):
    Channel = Channel
    default_port = 9325
    driver_type = driver_name = "nexo"
    scheme = "nexo"
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
            if ends is not None and time.monotonic() >= ends:
                raise TimeoutError
            self.bell.wait(None if ends is None else ends - time.monotonic())

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
