"""A queue, as an asyncio client sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from nexo.client import requests
from nexo.client.aio.consumer import consume
from nexo.client.aio.handle import AsyncQueueHandle
from nexo.client.aio.subscription import AsyncSubscription
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
from nexo.vocabulary.limits import CLIENT_REDRIVE_WAIT_MS, TIMEOUT_MS_MAX
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import queue_params
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from nexo.client.aio.connection import Connection
    from nexo.client.aio.consumer import Handler
    from nexo.client.aio.message import AsyncMessage
    from nexo.client.chosen import MessageDetails, ReasonGroup, Steps
    from nexo.client.delivery import Delivery
    from nexo.client.info import Progress, QueueInfo
    from nexo.client.message import PeekedMessage
    from nexo.client.receipts import SettleMany
    from nexo.vocabulary.user_settings import QueueOptions


class AsyncQueue(AsyncQueueHandle):
    """A handle; making one does no I/O. Any number of tasks may share it."""

    # -- Producers ----------------------------------------------------------------------------

    async def push(
        self,
        body: Any,
        *,
        priority: int = 0,
        delay: float | None = None,
        attributes: dict[str, str] | None = None,
        deduplication_id: str | None = None,
        group_id: str | None = None,
    ) -> str:
        """Push one message (bytes, text, or anything JSON); returns its id once it is on disk."""
        asked = requests.push(
            self._name, body, priority, delay, attributes, deduplication_id, group_id
        )
        pushed: str = await self._run(asked)
        return pushed

    async def push_batch(
        self,
        bodies: Iterable[Any],
        *,
        priority: int = 0,
        delay: float | None = None,
        attributes: dict[str, str] | None = None,
        deduplication_ids: list[str | None] | None = None,
        group_id: str | list[str | None] | None = None,
    ) -> Sequence[str]:
        """Push many messages as one: all of them are accepted, or none. Returns their ids, which
        are made when you look at them."""
        asked = requests.push_batch(
            self._name, bodies, priority, delay, attributes, deduplication_ids, group_id
        )
        return await self._run(asked) if asked is not None else []

    # -- Consumers ----------------------------------------------------------------------------

    async def pop(
        self,
        wait: float = 0.0,
        *,
        visibility_timeout: float | None = None,
        auto_received: bool = True,
    ) -> AsyncMessage | None:
        """Take one message; None when nothing came within `wait` seconds."""
        delivery = await self._pop(wait, visibility_timeout, auto_received)
        return None if delivery is None else self._make(delivery, delivery.parts[0], 0)

    async def pop_batch(
        self,
        count: int = 10,
        wait: float = 0.0,
        *,
        visibility_timeout: float | None = None,
        auto_received: bool = True,
    ) -> Messages[AsyncMessage]:
        """Take up to `count` messages; waits up to `wait` seconds for the first one."""
        delivery = await self._run(
            requests.pop(self._name, count, wait, visibility_timeout, auto_received)
        )
        stop = 0 if delivery is None else delivery.count
        return Messages(delivery, 0, stop, self._make)

    async def ack_batch(self, messages: Iterable[AsyncMessage]) -> list[tuple[str, str]]:
        """Ack what can be acked; returns the id and the error code of what was refused."""
        return await self._settle(acking(self._name, messages))

    async def nack_batch(
        self, messages: Iterable[AsyncMessage], *, delay: float | None = None, reason: str = ""
    ) -> list[tuple[str, str]]:
        """Nack what can be nacked, as `nack` does with one; returns what was refused."""
        return await self._settle(nacking(self._name, messages, delay, reason))

    async def extend_batch(
        self, messages: Iterable[AsyncMessage], seconds: float
    ) -> list[tuple[str, str]]:
        """Extend what can be extended: it comes back `seconds` from now; returns what was
        refused."""
        return await self._settle(extending(self._name, messages, seconds))

    async def give_back(self, messages: Iterable[AsyncMessage]) -> list[tuple[str, str]]:
        """Return messages that were not worked on: they are ready again at once, and this
        delivery does not count as an attempt. Returns what was refused."""
        return await self._settle(giving_back(self._name, messages))

    def subscribe(
        self,
        prefetch: int = 100,
        *,
        auto_received: bool = True,
        auto_extend: bool = False,
        visibility_timeout: float | None = None,
    ) -> AsyncSubscription[AsyncMessage]:
        """Messages for ever, through reconnects. At most `prefetch` of them are unfinished here at
        a time; those that wait keep their lease, and begin with all of their visibility timeout
        when you get them. With `auto_extend` those that you work on are extended too, also after
        the end of the subscription, so finish every one of them."""
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
    ) -> AsyncSubscription[Messages[AsyncMessage]]:
        """The same in batches of up to `count` as they arrive, for those who want many messages a
        second: they stay columns, and `ack_batch` acks each batch as one range."""
        return self._subscription(
            self._many,
            count,
            4 * count if prefetch is None else prefetch,
            auto_received,
            auto_extend,
            visibility_timeout,
        )

    async def consume(
        self,
        handler: Handler,
        concurrency: int = 1,
        *,
        prefetch: int | None = None,
        auto_extend: bool = False,
        middleware: Iterable[Any] = (),
        signals: bool = True,
    ) -> None:
        """Call (and await) `handler` with each message, for ever: returning acks, an exception
        nacks with its text as the reason, is logged, and the loop goes on. With `concurrency`, in
        that many tasks.

        A handler whose parameter is annotated with a type gets the body as a value of it, such as
        `def handler(order: Order)`; with `nexo.Message`, or nothing, the message. It may have one
        of each. `middleware` runs around it: see `nexo.Middleware`.

        It ends with the queue, when it is interrupted, or in the main thread at SIGTERM and Ctrl-C:
        handlers under way are finished, and what was prefetched goes back. Signals that the program
        handles itself, and all with `signals=False`, are left to it."""
        wanted = max(2 * concurrency, 10) if prefetch is None else prefetch
        subscription = self.subscribe(wanted, auto_extend=auto_extend)
        await consume(subscription, handler, concurrency, middleware, signals)

    # -- Operators ----------------------------------------------------------------------------

    async def peek(self, limit: int = 10) -> list[PeekedMessage]:
        """The first messages, whatever their state; nothing is taken."""
        seen: list[PeekedMessage] = await self._run(requests.peek(self._name, limit))
        return seen

    async def info(self) -> QueueInfo:
        asked = requests.call(calls.DescribeQueue(self._name), read_queue)
        info: QueueInfo = await self._run(asked)
        return info

    async def edit(self, **settings: Unpack[QueueOptions]) -> QueueInfo:
        """Change some settings; the others stay as they are."""
        params = queue_params(settings)
        asked = requests.call(calls.EditQueue(self._name, params), read_queue)
        info: QueueInfo = await self._run(asked)
        return info

    async def purge(self) -> int:
        """Remove everything, in flight included; returns how many messages that were."""
        purged: int = await self._run(requests.call(calls.Purge(self._name)))
        return purged

    async def pause(self) -> None:
        """Stop deliveries, not pushes."""
        await self._run(requests.call(calls.Pause(self._name)))

    async def resume(self) -> None:
        await self._run(requests.call(calls.Resume(self._name)))

    @overload
    async def redrive(
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
    async def redrive(
        self,
        to: str | None = None,
        rate: float | None = None,
        *,
        wait: Literal[False],
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> AsyncRedrive: ...

    async def redrive(
        self,
        to: str | None = None,
        rate: float | None = None,
        wait: bool = True,
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int | AsyncRedrive:
        """On a dead-letter queue: move each message to where it came from, or to the queue `to`,
        with its attempts reset; at most `rate` a second. Returns how many were moved, or with
        `wait=False` the task under way.

        All of them, or those that are chosen by `ids`, by `reason` (numbers and ids in it do not
        count), by the queue they came from (`source`), or by `where`, a condition in SQL."""
        choice = choice_of(ids, reason, where, source=source)
        if choice is not None and choice.where is not None and wait and rate is None:
            return int(await self._drive(redriving(self._name, choice, to)))
        task = await self._run(beginning(self._name, choice, to, rate))
        redrive = AsyncRedrive(self._connection, task)
        return await redrive.wait() if wait else redrive

    async def discard(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int:
        """Remove chosen messages for good, wherever they are, except those that a Spark query
        holds; returns how many there were. They are chosen as `redrive` does."""
        choice = choice_of(ids, reason, where, source=source)
        return int(await self._drive(discarding(self._name, choice)))

    async def search(
        self,
        text: str = "",
        limit: int = 100,
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> list[PeekedMessage]:
        """The first messages that say `text` in their body, their attributes or their reason, and
        for which the rest holds; nothing is taken."""
        choice = choice_of(ids, reason, where, text, source) or Choice()
        found: list[PeekedMessage] = await self._drive(searching(self._name, choice, limit))
        return found

    async def count(
        self,
        text: str = "",
        *,
        ids: str | Iterable[str] | None = None,
        where: str | None = None,
        reason: str | None = None,
        source: str | None = None,
    ) -> int:
        """How many messages `search` would find."""
        choice = choice_of(ids, reason, where, text, source) or Choice()
        return int(await self._drive(counting(self._name, choice)))

    async def message(self, id: str) -> MessageDetails:
        """One message by its id, with its life so far; nothing is taken."""
        found: MessageDetails = await self._drive(details(self._name, id))
        return found

    async def resend(
        self,
        id: str,
        *,
        body: Any = None,
        attributes: dict[str, str | None] | None = None,
        to: str | None = None,
    ) -> str:
        """Send a message again with another body or other attributes (None leaves one out), and
        remove the one it was, in one step; returns the id of the new one, which has the old id in
        its attribute `nexo.original_id`. A dead letter goes to the queue it came from, any other
        to the same queue, if `to` names none."""
        asked = resending(self._name, id, body, attributes, to)
        sent: str = await self._run(asked)
        return sent

    async def why(self) -> list[ReasonGroup]:
        """The dead letters of this queue by their reason, the most frequent first: those in its
        dead-letter queue, or in this one if it is such a queue."""
        template = (await self.info()).settings.dead_letter
        refusal: Forbidden | None = None
        try:
            choice = choice_of(None, None, None, source=self._name)
            name = dead_letter_name(self._name, template)
            there: list[ReasonGroup] = await self._drive(explaining(name, choice))
            return there
        except QueueNotFound:
            pass
        except Forbidden as error:  # which may be because there is none
            refusal = error
        here: list[ReasonGroup] = await self._drive(explaining(self._name, None))
        if not here and refusal is not None:
            raise refusal
        return here

    async def release(self, consumer: str, dead_letter: bool = False, forget: bool = False) -> int:
        """Give back what a Spark consumer holds, or send it to the dead letters. With `forget` the
        consumer is not listed any more."""
        asked = requests.call(calls.Release(self._name, consumer, dead_letter, forget))
        released: int = await self._run(asked)
        return released

    async def delete(self) -> None:
        """Remove the queue with all its messages."""
        await self._run(requests.delete(calls.DeleteQueue(self._name)))

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    # -- Inside -------------------------------------------------------------------------------

    async def _drive(self, steps: Steps[Any]) -> Any:
        """Ask what these steps ask, one after the other, until they return something."""
        try:
            asked = next(steps)
            while True:
                asked = steps.send(await self._run(asked))
        except StopIteration as done:
            return done.value
        finally:
            steps.close()

    async def _settle(self, settling: SettleMany | None) -> list[tuple[str, str]]:
        refused = await self._run(settling) if settling is not None else None
        return refused_ids(settling, refused) if settling is not None and refused else []

    def _one(self, delivery: Delivery, start: int, _: int) -> AsyncMessage:
        return self._make(delivery, *delivery.locate(start))

    def _many(self, delivery: Delivery, start: int, stop: int) -> Messages[AsyncMessage]:
        return Messages(delivery, start, stop, self._make)

    def _subscription(
        self,
        make: Callable[[Delivery, int, int], Any],
        count_max: int,
        prefetch: int,
        auto_received: bool,
        auto_extend: bool,
        visibility_timeout: float | None,
    ) -> AsyncSubscription[Any]:
        visibility_ms = None
        if visibility_timeout is not None:
            visibility_ms = milliseconds(visibility_timeout, "visibility_timeout", TIMEOUT_MS_MAX)
        return AsyncSubscription(
            self._connection,
            self._name,
            prefetch,
            make,
            count_max=count_max,
            auto_received=auto_received,
            auto_extend=auto_extend,
            visibility_ms=visibility_ms,
            prepare=self._prepare,
        )


class AsyncRedrive:
    """A redrive under way."""

    def __init__(self, connection: Connection, task: int) -> None:
        self._connection = connection
        self._task = task

    async def progress(self) -> Progress:
        """How far it is. Raises what stopped it."""
        progress: Progress = await self._connection.run(requests.redrive_progress(self._task, 0))
        return progress

    async def cancel(self) -> Progress:
        """Stop after the step under way; what was moved stays moved."""
        asked = requests.call(calls.CancelRedrive(self._task), read_progress)
        progress: Progress = await self._connection.run(asked)
        return progress

    async def wait(self) -> int:
        """Wait for its end; returns how many messages were moved."""
        while True:
            asked = requests.redrive_progress(self._task, CLIENT_REDRIVE_WAIT_MS)
            progress: Progress = await self._connection.run(asked)
            if progress.finished:
                return progress.moved
