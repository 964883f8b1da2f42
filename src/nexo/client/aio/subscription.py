"""Subscriptions of an asyncio consumer, to a queue or a topic: they go on for ever, through
reconnects."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from nexo.client.subscriptions import SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.client.aio.connection import Connection
    from nexo.client.delivery import Delivery

Item = TypeVar("Item")


class AsyncSubscription(Generic[Item]):
    """Iterate over it with `async for`. Leaving the loop, `close()` and the end of an `async with`
    block give back at once what was prefetched; messages that were handed out stay yours until
    you finish them. A new loop subscribes again. Several tasks may take from one subscription."""

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
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._make = make
        self._count_max = count_max
        self._prepare = prepare
        self._waiting: deque[asyncio.Future[None]] = deque()
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

    async def get(self, timeout: float | None = None) -> Item | None:  # noqa: ASYNC109
        """The next one; None if nothing came for `timeout` seconds, or another task closed the
        subscription."""
        if timeout is not None:
            try:
                async with asyncio.timeout(timeout):
                    return await self.get()
            except TimeoutError:
                return None
        if not self._state.number:
            await self._open()
        return await self._next()

    async def close(self) -> None:
        """Take no more, and give back at once what was prefetched."""
        self._connection.close_subscription(self._state)
        self._wake()

    def __aiter__(self) -> _Loop[Item]:
        self._loops += 1
        return _Loop(self)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _next(self) -> Item | None:
        """The next one, if the subscription is open: it stays closed when it was."""
        connection, state = self._connection, self._state
        while True:
            taken = state.take(self._count_max)
            if connection.session.has_quiet:
                connection.write_soon()
            if taken is not None:
                return self._make(*taken)
            if connection.session.closed is not None:
                return None
            if state.error is not None:
                raise state.error
            if not state.number:
                return None
            await self._news()

    async def _news(self) -> None:
        """Wait until something came, or it is over."""
        news = asyncio.get_running_loop().create_future()
        self._waiting.append(news)
        try:
            await news
        finally:
            if news in self._waiting:
                self._waiting.remove(news)

    async def _open(self) -> None:
        if not self._state.number:
            await self._prepare()
        if not self._state.number:
            self._connection.begin()
            self._connection.session.subscriptions.open(self._state)
            self._connection.write_soon()

    def _wake(self) -> None:
        """Something came, or it is over."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)


class _Loop(Generic[Item]):
    """One loop over a subscription; when the loop is left, it closes."""

    def __init__(self, subscription: AsyncSubscription[Item]) -> None:
        self._subscription = subscription
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if not self._begun:
            await self._subscription._open()
            self._begun = True
        item = await self._subscription._next()
        if item is None:
            raise StopAsyncIteration
        return item

    def __del__(self) -> None:
        subscription = self._subscription
        subscription._loops -= 1
        if not subscription._loops:
            subscription._connection.close_soon(subscription._state)
