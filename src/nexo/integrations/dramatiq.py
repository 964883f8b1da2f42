"""dramatiq on Nexo: `NexoBroker` and `NexoResults`.

    dramatiq.set_broker(NexoBroker("nexo://127.0.0.1:9325"))

Delays are the broker's, of any length. The option `broker_priority` of an actor or a message is
Nexo's priority: the higher goes first, as with dramatiq's RabbitMQ broker.

Who tries again is a choice. By default it is dramatiq's middleware `Retries`, with everything that
actors can tell it; a message that it gives up is moved to the dead letters. With `retries="nexo"`
it is the broker: a message that failed is nacked with its exception as the reason, comes again as
the queue's `backoff` says, and out of attempts is a dead letter. Then its attempts are counted
where everyone sees them, and survive the worker.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, cast

import dramatiq
from dramatiq import errors
from dramatiq.common import current_millis
from dramatiq.middleware import Middleware, Retries
from dramatiq.results import ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT, Missing

import nexo
from nexo.client.message import reason_of
from nexo.integrations.acks import Acks, bury
from nexo.integrations.results import KIND, READ_EVENTS, TASK, TTL_S, ResultIndex, find

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_S = 20 * 365 * 86_400.0  # messages are not to expire
JOIN_S = 0.05  # between two looks at a queue that is to become empty
RESULT_WAIT_S = 20.0  # one read, at most
LINGER_S = (
    0.002  # at high rates tasks are gathered for this long: a batch costs little more than one
)


class _ConnectionErrors:
    """A broker that is away is what dramatiq knows how to wait for."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (nexo.Unreachable, nexo.Timeout, nexo.NotReady)):
            raise errors.ConnectionClosed(str(error)) from error


_connection_errors = _ConnectionErrors()


class NexoBroker(dramatiq.Broker):
    """Its queues are named `<namespace>.<queue>`. `settings` are those of queues that do not exist
    yet, as `create_queue` takes them; other options are those of `nexo.connect`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        namespace: str = "dramatiq",
        middleware: list[Middleware] | None = None,
        retries: Literal["dramatiq", "nexo"] = "dramatiq",
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.retries = retries
        self._options = {"url": url, "token": token, **options}
        self._namespace = namespace
        self._settings = {"retention": KEPT_S, **(settings or {})}
        self._client: nexo.Client | None = None
        self._acks: Acks | None = None
        self._lock = threading.Lock()
        self._opened: dict[str, nexo.Queue] = {}  # by dramatiq's name
        if retries == "nexo":
            self.middleware = [each for each in self.middleware if not isinstance(each, Retries)]
            self.add_middleware(_Failures())

    @property
    def client(self) -> nexo.Client:
        """Connects at first use."""
        with self._lock:
            if self._client is None:
                options: Any = self._options
                self._client = nexo.connect(**options)
                self._acks = Acks(self._client)
            return self._client

    def ack(self, delivery: nexo.Message, prefetch: int) -> None:
        """Without keeping a worker waiting for the disk."""
        if self._acks is not None:
            self._acks.add(delivery, prefetch)

    def queue(self, name: str) -> nexo.Queue:
        """The queue of Nexo that stands behind one of dramatiq's; it is created if needed."""
        opened = self._opened.get(name)
        if opened is None:
            full, settings = f"{self._namespace}.{name}", cast("Any", self._settings)
            # It is there with settings of its own, or this token may only use it.
            with contextlib.suppress(nexo.QueueExists, nexo.Forbidden):
                self.client.create_queue(full, **settings)
            opened = self._opened[name] = self.client.queue(full)
        return opened

    def forget_queues(self) -> None:
        """Somebody has deleted one: it is created again when it is needed."""
        self._opened.clear()

    @property
    def actor_options(self) -> set[str]:
        return {*self._actor_options, "broker_priority"}

    @actor_options.setter
    def actor_options(self, options: set[str]) -> None:
        self._actor_options = options

    def flush_acks(self) -> None:
        if self._acks is not None:
            self._acks.flush()

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def enqueue(
        self, message: dramatiq.Message[Any], *, delay: int | None = None
    ) -> dramatiq.Message[Any]:
        name = message.queue_name
        self.declare_queue(name)
        self.logger.debug("Enqueueing message %r on queue %r.", message.message_id, name)
        self.emit_before("enqueue", message, delay)
        priority = message.options.get("broker_priority")
        if priority is None and message.actor_name in self.actors:
            priority = self.actors[message.actor_name].options.get("broker_priority")
        options: dict[str, Any] = {
            "priority": int(priority or 0),
            "delay": None if delay is None else delay / 1000,
            "attributes": _attributes(message) if self.retries == "nexo" else None,
        }
        with _connection_errors:
            try:
                self.queue(name).push(message.encode(), **options)
            except nexo.QueueNotFound:
                self.forget_queues()
                self.queue(name).push(message.encode(), **options)
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> _Consumer:
        if queue_name not in self.queues:
            raise errors.QueueNotFound(queue_name)
        with _connection_errors:
            return _Consumer(self, self.queue(queue_name), prefetch, timeout / 1000)

    def flush(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            raise errors.QueueNotFound(queue_name)
        with _connection_errors:
            self.queue(queue_name).purge()

    def flush_all(self) -> None:
        for name in self.queues:
            self.flush(name)

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Messages in line or being worked on, delayed ones, and dead letters."""
        with _connection_errors:
            info = self.queue(queue_name).info()
            dead = 0
            with contextlib.suppress(nexo.QueueNotFound):
                dead = self.client.queue(f"{info.name}_dlq").info().depth
            return info.ready + info.in_flight, info.scheduled, dead

    def join(self, queue_name: str, *, timeout: int | None = None, **_: Any) -> None:
        """Wait until a queue is empty: nothing ready, delayed or being worked on. What the joins of
        other brokers take besides, to guess when that is so, is accepted and not needed."""
        if queue_name not in self.queues:
            raise errors.QueueNotFound(queue_name)
        ends = None if timeout is None else time.monotonic() + timeout / 1000
        with _connection_errors:
            while self._depth(queue_name):
                if ends is not None and time.monotonic() >= ends:
                    raise errors.QueueJoinTimeout(queue_name)
                time.sleep(JOIN_S)

    def _depth(self, queue_name: str) -> int:
        self.flush_acks()  # of a worker in this process, as in tests
        return self.queue(queue_name).info().depth

    def close(self) -> None:
        with self._lock:
            client, acks = self._client, self._acks
            self._client = self._acks = None
        if acks is not None:
            acks.stop()
        if client is not None:
            client.close()
        self.forget_queues()


def _attributes(message: Any) -> dict[str, str]:
    """What one looks for among dead letters. Other messages have it in their body only."""
    return {"message_id": message.message_id, "actor": message.actor_name}


class _Failures(Middleware):
    """Where the broker tries again, an exception is a failure."""

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
    ) -> None:
        if exception is not None:
            message.fail()


class _Proxy(dramatiq.MessageProxy):
    """A message that knows its delivery."""

    def __init__(self, message: dramatiq.Message[Any], delivery: nexo.Message) -> None:
        super().__init__(message)
        self.delivery = delivery


class _Consumer(dramatiq.Consumer):
    def __init__(self, broker: NexoBroker, queue: nexo.Queue, prefetch: int, wait_s: float) -> None:
        self._broker = broker
        self._queue = queue
        self._prefetch = prefetch
        self._wait_s = wait_s
        self._subscription = queue.subscribe_batches(
            prefetch, prefetch=prefetch, auto_extend=True, linger=LINGER_S
        )
        self._arrived: deque[nexo.Message] = deque()

    def __next__(self) -> dramatiq.MessageProxy | None:
        if not self._arrived:
            with _connection_errors:
                try:
                    self._arrived.extend(self._subscription.get(self._wait_s) or ())
                except nexo.QueueNotFound as error:  # dramatiq tries again
                    self._broker.forget_queues()
                    raise errors.ConnectionClosed(str(error)) from error
        if not self._arrived:
            return None
        delivery = self._arrived.popleft()
        with contextlib.suppress(errors.DecodeError):
            return _Proxy(dramatiq.Message.decode(delivery.body), delivery)
        self._broker.logger.error("Message %r cannot be decoded.", delivery.id)
        with _connection_errors:
            bury(self._broker.client, delivery, "invalid_body: no message of dramatiq")
        return None

    def ack(self, message: Any) -> None:
        self._broker.ack(message.delivery, self._prefetch)

    def nack(self, message: Any) -> None:
        error = message._exception
        reason = "failed" if error is None else reason_of(error)
        is_unknown = isinstance(error, errors.ActorNotFound)  # trying again would not help
        with _connection_errors, contextlib.suppress(nexo.StaleReceipt, nexo.WrongState):
            if self._broker.retries == "nexo" and not is_unknown:
                message.delivery.nack(reason=reason)
            else:
                bury(self._broker.client, message.delivery, reason, **_attributes(message))

    def requeue(self, messages: Iterable[Any]) -> None:
        """They were not begun, so this is no attempt."""
        with _connection_errors:
            self._queue.give_back([each.delivery for each in messages])

    def close(self) -> None:
        with contextlib.suppress(nexo.NexoError):
            self._subscription.close()
            if self._arrived:
                self._queue.give_back(list(self._arrived))
                self._arrived.clear()
        self._broker.flush_acks()


class NexoResults(ResultBackend):
    """Results in the topic `topic`, at most `ttl` seconds; dramatiq's `result_ttl` may be less.
    Waiting for one costs no polling."""

    def __init__(
        self,
        url: str | None = None,
        topic: str = "dramatiq.results",
        *,
        ttl: float = TTL_S,
        token: str | None = None,
        namespace: str = "dramatiq-results",
        encoder: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(namespace=namespace, encoder=encoder)
        self._options = {"url": url, "token": token, **options}
        self._name = topic
        self._ttl = ttl
        self._lock = threading.Lock()  # of the index, and while one reads for all
        self._index = ResultIndex()
        self._opened: nexo.Topic | None = None

    @property
    def _topic(self) -> nexo.Topic:
        if self._opened is None:
            options: Any = self._options
            client = nexo.connect(**options)
            with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
                client.create_topic(self._name, retention_seconds=self._ttl)
            self._opened = client.topic(self._name)
        return self._opened

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        ends = time.monotonic() + (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        key = self.build_message_key(message)
        while (found := self._get(key)) is Missing:
            left = ends - time.monotonic()
            if not block:
                raise ResultMissing(message)
            if left <= 0:
                raise ResultTimeout(message)
            # Whoever waits for any result wakes all who wait, and each looks for its own.
            self._topic.read(self._index.next_offset, 1, wait=min(left, RESULT_WAIT_S))
        return self.unwrap_result(found)

    def _get(self, message_key: str) -> Any:
        topic, index = self._topic, self._index
        with self._lock:
            while events := topic.read(index.next_offset, READ_EVENTS):
                index.add(events)
        offset = index.offset_of("", message_key)
        event = None
        if offset is not None:
            event = find(topic.read(offset, 1), "", message_key)
        start = 0
        while offset is None and not index.is_whole and (events := topic.read(start, READ_EVENTS)):
            event = find(events, "", message_key) or event
            start = events[-1].offset + 1
        if event is None or int(event.attributes["expires"]) < current_millis():
            return Missing
        return self.encoder.decode(event.body)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        expires = str(current_millis() + ttl)
        attributes = {TASK: message_key, KIND: "", "expires": expires}
        self._topic.publish(self.encoder.encode(result), attributes=attributes)
