"""What a queue handle does for each of its calls: create the queue first, if it is to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.client import requests
from nexo.client.aio.message import AsyncMessage
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.client.aio.connection import Connection
    from nexo.client.delivery import Delivery
    from nexo.client.operation import Operation


class AsyncQueueHandle:
    """The part of `AsyncQueue` that its twin does otherwise; making one does no I/O."""

    message_type: type[AsyncMessage] = AsyncMessage

    def __init__(self, connection: Connection, name: str, create: bool = False) -> None:
        self._connection = connection
        self._name = name
        self._to_create = create
        self._make = partial(self.message_type, connection)
        self._first_step: Callable[[], Awaitable[None]] | None = None

    @property
    def name(self) -> str:
        return self._name

    def _run(self, operation: Operation) -> Awaitable[Any]:
        """To be awaited; no coroutine of its own, which every call would pay for."""
        if self._to_create:
            return self._create_and_run(operation)
        return self._connection.run(operation)

    async def _create_and_run(self, operation: Operation) -> Any:
        await self._create()
        return await self._connection.run(operation)

    def _pop(
        self, wait: float, visibility_timeout: float | None, auto_received: bool
    ) -> Awaitable[Delivery | None]:
        """One message."""
        return self._run(requests.pop(self._name, 1, wait, visibility_timeout, auto_received))

    async def _create(self) -> None:
        """The first use of a handle that creates."""
        if self._to_create:
            asked = requests.call(calls.CreateQueue(self._name, exist_ok=True))
            await self._connection.run(asked)
            self._to_create = False

    async def _prepare(self) -> None:
        """What has to be done before a subscription can be opened."""
        if self._first_step is not None:
            await self._first_step()
        await self._create()

    def _prepare_with(self, step: Callable[[], Awaitable[None]]) -> None:
        """Something else that has to be done first: later, because nobody awaits this."""
        self._first_step = step
