"""Subscriptions of a blocking consumer, to a queue or a topic: they go on for ever, through
reconnects."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from nexo.client.operation import Operation
from nexo.client.subscriptions import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.blocking.connection import Connection
    from nexo.client.delivery import Delivery

Item = TypeVar("Item")


class Subscription(Generic[Item]):
    """Iterate over it. Leaving the loop, `close()` and the end of a `with` block give back at once
    what was prefetched; messages that were handed out stay yours until you finish them. A new loop
    subscribes again. Several threads may take from one subscription."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        prefetch: int,
        make: Callable[[Delivery, int, int], Item],
        *,
        count_max: int = 1,
        auto_received: bool,
        auto_extend: bool,
        visibility_ms: int | None,
        linger_ms: int = 0,
        prepare: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._make = make
        self._count_max = count_max
        self._prepare = prepare
        self._waiting: deque[Operation] = deque()
        self._loops = 0
        self._state = SubscriptionState(
            connection.session.subscriptions,
            queue,
            prefetch,
            auto_received=auto_received,
            auto_extend=auto_extend,
            visibility_ms=visibility_ms,
            linger_ms=linger_ms,
            wake=self._wake,
        )

    def get(self, timeout: float | None = None) -> Item | None:
        """The next one; None if nothing came for `timeout` seconds, or another thread closed the
        subscription."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        self._open()
        return self._next(deadline)

    def close(self) -> None:
        """Take no more, and give back at once what was prefetched."""
        with self._connection.lock:
            self._connection.session.subscriptions.close(self._state)
            self._wake()
        self._connection.write()

    def __iter__(self) -> _Loop[Item]:
        self._open()
        self._loops += 1
        return _Loop(self)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _next(self, deadline: float) -> Item | None:
        """The next one, if the subscription is open: it stays closed when it was."""
        connection, state = self._connection, self._state
        while True:
            news: Operation | None = None
            with connection.lock:
                taken = state.take(self._count_max)
                quiet = connection.session.has_quiet
                if taken is None:
                    if connection.session.closed is not None:
                        return None
                    if state.error is not None:
                        raise state.error
                    if not state.number:
                        return None
                    news = Operation()
                    self._waiting.append(news)
            if quiet:
                connection.written_later()
            if taken is not None:
                return self._make(*taken)
            assert news is not None
            self._await(news, deadline)
            if not news.done:
                return None

    def _open(self) -> None:
        if self._state.number:
            return
        self._prepare()
        with self._connection.lock:
            if not self._state.number:
                self._connection.session.subscriptions.open(self._state)
        self._connection.write()

    def _await(self, news: Operation, deadline: float) -> None:
        try:
            self._connection.wait(news, deadline, patient=True)
        finally:
            with self._connection.lock:
                if news in self._waiting:
                    self._waiting.remove(news)

    def _wake(self) -> None:
        """Under the lock: something came, or it is over."""
        while self._waiting:
            self._waiting.popleft().finish(None)


class _Loop(Generic[Item]):
    """One loop over a subscription; when the loop is left, it closes."""

    def __init__(self, subscription: Subscription[Item]) -> None:
        self._subscription = subscription

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        try:
            item = self._subscription._next(math.inf)
        except KeyboardInterrupt as interrupt:
            # Whoever pressed Ctrl-C wants to see the line of the loop, not the way of the wait.
            raise interrupt.with_traceback(None) from None
        if item is None:
            raise StopIteration
        return item

    def __del__(self) -> None:
        subscription = self._subscription
        subscription._loops -= 1
        if not subscription._loops:
            subscription._connection.close_soon(subscription._state)
