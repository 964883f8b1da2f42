"""The loop of `consume` in an asyncio client: handlers and their middleware, for ever."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from nexo.client.bodies import Reading
from nexo.client.message import HeldMessage
from nexo.client.middleware import CleanUp, FailureLogged, Layers, Outcome
from nexo.client.signals import Signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from nexo.client.aio.message import AsyncMessage
    from nexo.client.aio.subscription import AsyncSubscription

    Handler = Callable[..., Awaitable[object] | object]


async def consume(
    subscription: AsyncSubscription[AsyncMessage],
    handler: Handler,
    concurrency: int,
    middleware: Iterable[Any],
    signals: bool,
) -> None:
    """In so many tasks, until this one is cancelled or a signal ends it."""
    call = Call(handler, middleware)
    loop = asyncio.get_running_loop()
    closing: set[asyncio.Task[None]] = set()

    def stop() -> None:  # the handlers under way go on
        loop.call_soon_threadsafe(lambda: closing.add(loop.create_task(subscription.close())))

    with Signals(stop, signals):
        async with subscription, asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(_work(aiter(subscription), call))


async def _work(messages: AsyncIterator[AsyncMessage], call: Call) -> None:
    """One worker of `consume`."""
    async for message in messages:
        with FailureLogged(message):
            async with message:
                await call(message)


class Call:
    """A handler with its middleware, for one message after the other."""

    def __init__(self, handler: Handler, middleware: Iterable[Any]) -> None:
        self._handler = handler
        self._read = Reading(handler, HeldMessage)
        self._layers = Layers(middleware)

    async def __call__(self, message: AsyncMessage) -> None:
        if not len(self._layers):
            await _done(self._handler(*self._read(message)))
            return
        opened: list[Any] = []
        with Outcome() as outcome:
            for layer, before in self._layers.open():
                if before is not None:
                    await _done(before(message))
                opened.append(layer)
            await _done(self._handler(*self._read(message)))
            while opened:
                after = getattr(opened[-1], "after", None)
                if after is not None:
                    await _done(after(message))
                opened.pop()
        if outcome.error is not None:
            for layer in reversed(opened):
                if hasattr(layer, "failed"):
                    with CleanUp(layer):
                        await _done(layer.failed(message, outcome.error))
            raise outcome.error


async def _done(result: Any) -> None:
    """Wait for it if it is to be awaited."""
    if inspect.isawaitable(result):
        await result
