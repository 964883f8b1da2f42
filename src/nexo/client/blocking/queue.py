# Generated from src/nexo/client/aio/queue.py: edit that file and run scripts/twins.py.
"""A queue, as a blocking client sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from nexo.client import requests
from nexo.client.blocking.consumer import consume
from nexo.client.blocking.handle import QueueHandle
from nexo.client.blocking.subscription import Subscription
from nexo.client.chosen import (
    Choice,
    beginning,
    choice_of,
    counting,
    details,
    discarding,
    explaining,
    redriving,
    resending,
    searching,
)
from nexo.client.info import read_progress, read_queue
from nexo.client.message import (
    Messages,
    acking,
    extending,
    giving_back,
    nacking,
    refused_ids,
)
from nexo.vocabulary.errors import Forbidden, QueueNotFound
from nexo.vocabulary.limits import CLIENT_TASK_WAIT_MS, LINGER_MS_MAX, TIMEOUT_MS_MAX
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import queue_params
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from nexo.client.blocking.connection import Connection
    from nexo.client.blocking.consumer import Handler
    from nexo.client.blocking.message import Message
    from nexo.client.chosen import MessageDetails, ReasonGroup, Steps
    from nexo.client.delivery import Delivery
    from nexo.client.info import Progress, QueueInfo
    from nexo.client.message import PeekedMessage
    from nexo.client.receipts import SettleMany
    from nexo.vocabulary.user_settings import QueueOptions


class Queue(QueueHandle):
    """A queue. Creating this object does no I/O, and any number of threads can share it."""

    # -- Producers ----------------------------------------------------------------------------

    def push(
        self,
        body: Any,
        *,
        priority: int = 0,
        delay: float | None = None,
        attributes: dict[str, str] | None = None,
        deduplication_id: str | None = None,
        group_id: str | None = None,
    ) -> str:
        """Push one message (bytes, text, or anything JSON). Returns its ID once it is on disk."""
        asked = requests.push(
            self._name, body, priority, delay, attributes, deduplication_id, group_id
        )
        pushed: str = self._run(asked)
        return pushed

    def push_batch(
        self,
        bodies: Iterable[Any],
        *,
        priority: int = 0,
        delay: float | None = None,
        attributes: dict[str, str] | None = None,
        deduplication_ids: list[str | None] | None = None,
        group_id: str | list[str | None] | None = None,
    ) -> Sequence[str]:
        """Push many messages at once: all of them are accepted, or none. Returns their IDs, which
        are computed when you read them."""
        asked = requests.push_batch(
            self._name, bodies, priority, delay, attributes, deduplication_ids, group_id
        )
        return self._run(asked) if asked is not None else []

    # -- Consumers ----------------------------------------------------------------------------

    def pop(
        self,
        wait: float = 0.0,
        *,
        visibility_timeout: float | None = None,
        auto_received: bool = True,
    ) -> Message | None:
        """Take one message. Returns None if none arrives within `wait` seconds."""
        delivery = self._pop(wait, visibility_timeout, auto_received)
        return None if delivery is None else self._make(delivery, delivery.parts[0], 0)

    def pop_batch(
        self,
        count: int = 10,
        wait: float = 0.0,
        *,
        visibility_timeout: float | None = None,
        auto_received: bool = True,
    ) -> Messages[Message]:
        """Take up to `count` messages; waits up to `wait` seconds for the first one."""
        delivery = self._run(
            requests.pop(self._name, count, wait, visibility_timeout, auto_received)
        )
        stop = 0 if delivery is None else delivery.count
        return Messages(delivery, 0, stop, self._make)

    def ack_batch(self, messages: Iterable[Message]) -> list[tuple[str, str]]:
        """Ack many messages. Returns the ID and error code of each message that could not be acked;
        the others are acked."""
        return self._settle(acking(self._name, messages))

    def nack_batch(
        self, messages: Iterable[Message], *, delay: float | None = None, reason: str = ""
    ) -> list[tuple[str, str]]:
        """Nack many messages, like `nack`. Returns those that could not be nacked."""
        return self._settle(nacking(self._name, messages, delay, reason))

    def extend_batch(self, messages: Iterable[Message], seconds: float) -> list[tuple[str, str]]:
        """Extend many messages, like `extend`. Returns those that could not be extended."""
        return self._settle(extending(self._name, messages, seconds))

    def give_back(self, messages: Iterable[Message]) -> list[tuple[str, str]]:
        """Return messages that were not processed. They are ready again at once, and this delivery
        does not count as an attempt. Returns those that could not be returned."""
        return self._settle(giving_back(self._name, messages))

    def subscribe(
        self,
        prefetch: int = 100,
        *,
        auto_received: bool = True,
        auto_extend: bool = False,
        visibility_timeout: float | None = None,
    ) -> Subscription[Message]:
        """An endless stream of messages that reconnects by itself. At most `prefetch` unfinished
        messages are held here. Waiting messages keep their lease, and their whole visibility
        timeout starts when you get them. With `auto_extend` the messages you work on are extended
        too, even after the subscription ends, so finish every one of them."""
        return self._subscription(
            self._one, 1, prefetch, auto_received, auto_extend, visibility_timeout
        )

    def subscribe_batches(
        self,
        count: int = 1_000,
        *,
        prefetch: int | None = None,
        auto_received: bool = True,
        auto_extend: bool = False,
        visibility_timeout: float | None = None,
        linger: float = 0.0,
    ) -> Subscription[Messages[Message]]:
        """Like `subscribe`, but in batches of up to `count` messages as they arrive. Use it for
        high rates: the batch is not split into objects, and `ack_batch` acks it as one range. With
        `linger`, messages that arrive in close succession are gathered for that many seconds: less
        work for the same messages, and each of them up to so much later."""
        return self._subscription(
            self._many,
            count,
            4 * count if prefetch is None else prefetch,
            auto_received,
            auto_extend,
            visibility_timeout,
            linger,
        )

    def consume(
        self,
        handler: Handler,
        concurrency: int = 1,
        *,
        prefetch: int | None = None,
        auto_extend: bool = False,
        middleware: Iterable[Any] = (),
        signals: bool = True,
    ) -> None:
        """Call `handler` with each message, endlessly. If it returns, the message is
        acked. If it raises, the message is nacked with the text of the exception as the reason, the
        exception is logged, and the loop continues. With `concurrency`, in that many threads.

        The annotation of the handler's parameter decides what it receives: a type, as in
        `def handler(order: Order)`, is decoded from the body; `nexo.Message` or no annotation is
        the message. A handler can take one of each. `middleware` runs around the handler: see
        `nexo.Middleware`.

        The loop ends with the queue, when it is interrupted, or in the main thread on SIGTERM and
        Ctrl-C: running handlers finish, and prefetched messages return to the queue. Signals that
        your program handles itself are not changed, and none are with `signals=False`."""
        wanted = max(2 * concurrency, 10) if prefetch is None else prefetch
        subscription = self.subscribe(wanted, auto_extend=auto_extend)
        consume(subscription, handler, concurrency, middleware, signals)

    # -- Operators ----------------------------------------------------------------------------

    def peek(self, limit: int = 10) -> list[PeekedMessage]:
        """The first messages in any state, without taking them."""
        seen: list[PeekedMessage] = self._run(requests.peek(self._name, limit))
        return seen

    def info(self) -> QueueInfo:
        asked = requests.call(calls.DescribeQueue(self._name), read_queue)
        info: QueueInfo = self._run(asked)
        return info

    def edit(self, **settings: Unpack[QueueOptions]) -> QueueInfo:
        """Change some settings; the others keep their value."""
        params = queue_params(settings)
        asked = requests.call(calls.EditQueue(self._name, params), read_queue)
        info: QueueInfo = self._run(asked)
        return info

    def purge(self) -> int:
        """Delete all messages, including those in flight. Returns their number."""
        purged: int = self._run(requests.call(calls.Purge(self._name)))
        return purged

    def pause(self) -> None:
        """Stop deliveries. The queue still accepts pushes."""
        self._run(requests.call(calls.Pause(self._name)))

    def resume(self) -> None:
        self._run(requests.call(calls.Resume(self._name)))

    @overload
    def redrive(
        self,
        to: str | None = None,
        rate: float | None = None,
        wait: Literal[True] = True,
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int: ...

    @overload
    def redrive(
        self,
        to: str | None = None,
        rate: float | None = None,
        *,
        wait: Literal[False],
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> Redrive: ...

    def redrive(
        self,
        to: str | None = None,
        rate: float | None = None,
        wait: bool = True,
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int | Redrive:
        """On a dead-letter queue: move each message back to the queue it came from, or to the queue
        `to`, and reset its attempts; at most `rate` messages per second. Returns the number of
        moved messages, or the running task with `wait=False`. Select messages by `ids`, by `reason`
        (numbers and IDs in it are ignored), by the queue they came from (`source`), or by `where`,
        an SQL condition; without any of these all are moved."""
        choice = choice_of(ids, reason, where, source=source)
        if choice is not None and choice.where is not None and wait and rate is None:
            return int(self._drive(redriving(self._name, choice, to)))
        task = self._run(beginning(self._name, choice, to, rate))
        redrive = Redrive(self._connection, task)
        return redrive.wait() if wait else redrive

    def discard(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int:
        """Permanently delete the selected messages in any state, except those claimed by a Spark
        query. Returns their number. Select messages as in `redrive`."""
        choice = choice_of(ids, reason, where, source=source)
        return int(self._drive(discarding(self._name, choice)))

    def search(
        self,
        text: str = "",
        limit: int = 100,
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> list[PeekedMessage]:
        """The first messages that contain `text` in their body, attributes or failure reason and
        match the other conditions, without taking them."""
        choice = choice_of(ids, reason, where, text, source) or Choice()
        found: list[PeekedMessage] = self._drive(searching(self._name, choice, limit))
        return found

    def count(
        self,
        text: str = "",
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int:
        """The number of messages that `search` would find."""
        choice = choice_of(ids, reason, where, text, source) or Choice()
        return int(self._drive(counting(self._name, choice)))

    def message(self, id: str) -> MessageDetails:
        """One message by its ID, with its history, without taking it."""
        found: MessageDetails = self._drive(details(self._name, id))
        return found

    def resend(
        self,
        id: str,
        *,
        body: Any = None,
        attributes: dict[str, str | None] | None = None,
        to: str | None = None,
    ) -> str:
        """Send a copy of a message with another body or other attributes (None removes one), and
        delete the original in one step. Returns the ID of the new message, whose attribute
        `nexo.original_id` holds the old ID. Without `to`, a dead letter goes to the queue it came
        from, any other message to the same queue."""
        asked = resending(self._name, id, body, attributes, to)
        sent: str = self._run(asked)
        return sent

    def why(self) -> list[ReasonGroup]:
        """The dead letters of this queue by reason, most frequent first. If this is a dead-letter
        queue, its own messages."""
        template = (self.info()).settings.dead_letter
        refusal: Forbidden | None = None
        try:
            choice = choice_of(None, None, None, source=self._name)
            name = dead_letter_name(self._name, template)
            there: list[ReasonGroup] = self._drive(explaining(name, choice))
            return there
        except QueueNotFound:
            pass
        except Forbidden as error:  # which may be because there is none
            refusal = error
        here: list[ReasonGroup] = self._drive(explaining(self._name, None))
        if not here and refusal is not None:
            raise refusal
        return here

    def release(self, consumer: str, dead_letter: bool = False, forget: bool = False) -> int:
        """Return the messages claimed by a Spark consumer, or move them to the dead-letter queue.
        With `forget` the consumer is also removed from the lists."""
        asked = requests.call(calls.Release(self._name, consumer, dead_letter, forget))
        released: int = self._run(asked)
        return released

    def delete(self) -> None:
        """Delete the queue and all its messages."""
        self._run(requests.delete(calls.DeleteQueue(self._name)))

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    # -- Inside -------------------------------------------------------------------------------

    def _drive(self, steps: Steps[Any]) -> Any:
        """Ask what these steps ask, one after the other, until they return something."""
        try:
            asked = next(steps)
            while True:
                asked = steps.send(self._run(asked))
        except StopIteration as done:
            return done.value
        finally:
            steps.close()

    def _settle(self, settling: SettleMany | None) -> list[tuple[str, str]]:
        refused = self._run(settling) if settling is not None else None
        return refused_ids(settling, refused) if settling is not None and refused else []

    def _one(self, delivery: Delivery, start: int, _: int) -> Message:
        return self._make(delivery, *delivery.locate(start))

    def _many(self, delivery: Delivery, start: int, stop: int) -> Messages[Message]:
        return Messages(delivery, start, stop, self._make)

    def _subscription(
        self,
        make: Callable[[Delivery, int, int], Any],
        count_max: int,
        prefetch: int,
        auto_received: bool,
        auto_extend: bool,
        visibility_timeout: float | None,
        linger: float = 0.0,
    ) -> Subscription[Any]:
        visibility_ms = None
        if visibility_timeout is not None:
            visibility_ms = milliseconds(visibility_timeout, "visibility_timeout", TIMEOUT_MS_MAX)
        return Subscription(
            self._connection,
            self._name,
            prefetch,
            make,
            count_max=count_max,
            auto_received=auto_received,
            auto_extend=auto_extend,
            visibility_ms=visibility_ms,
            linger_ms=milliseconds(linger, "linger", LINGER_MS_MAX),
            prepare=self._prepare,
        )


class Redrive:
    """A running redrive."""

    def __init__(self, connection: Connection, task: int) -> None:
        self._connection = connection
        self._task = task

    def progress(self) -> Progress:
        """The progress so far. Raises the error that stopped the redrive, if any."""
        progress: Progress = self._connection.run(requests.redrive_progress(self._task, 0))
        return progress

    def cancel(self) -> Progress:
        """Stop after the current step. Messages that were already moved stay where they are."""
        asked = requests.call(calls.CancelRedrive(self._task), read_progress)
        progress: Progress = self._connection.run(asked)
        return progress

    def wait(self) -> int:
        """Wait until it has finished. Returns the number of moved messages."""
        while True:
            asked = requests.redrive_progress(self._task, CLIENT_TASK_WAIT_MS)
            progress: Progress = self._connection.run(asked)
            if progress.finished:
                return progress.moved
