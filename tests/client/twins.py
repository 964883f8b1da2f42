"""Both clients under one face, so that every scenario runs on both: the asyncio one lives in a
loop of its own thread, and whatever it gives is called from here as if it were blocking."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

import nexo
from nexo.client.message import Messages

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 50.0


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="twin")
        self._thread.start()

    def run(self, action: Any) -> Any:
        async def act() -> Any:
            result = action()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(act(), self.loop).result(WAIT_S)

    def close(self) -> None:
        async def cancel_rest() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(cancel_rest(), self.loop).result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """An object of the asyncio client as a blocking one."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return self._wrapped(value)

        def call(*arguments: Any, **options: Any) -> Any:
            unwrapped = [_unwrapped(each) for each in arguments]
            return self._wrapped(self._loop.run(lambda: value(*unwrapped, **options)))

        return call

    def __enter__(self) -> Any:
        return self._wrapped(self._loop.run(lambda: self._target.__aenter__()))

    def __exit__(self, *failure: Any) -> Any:
        return self._loop.run(lambda: self._target.__aexit__(*failure))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._target, Messages):
            for message in self._target:
                yield self._wrapped(message)
            return
        iterator = [self._loop.run(lambda: self._target.__aiter__())]
        try:
            while True:
                try:
                    item = self._loop.run(lambda: iterator[0].__anext__())
                except StopAsyncIteration:
                    return
                yield self._wrapped(item)
        finally:
            self._loop.run(iterator.clear)  # the loop is left in its own thread

    def __len__(self) -> int:
        return len(self._target)

    def __getitem__(self, index: Any) -> Any:
        return self._wrapped(self._target[index])

    def __eq__(self, other: object) -> bool:
        return bool(self._target == _unwrapped(other))

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrapped(each) for each in value]
        own = type(value).__module__.startswith("nexo.client.aio")
        return Blocking(value, self._loop) if own or isinstance(value, Messages) else value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    return value._target if isinstance(value, Blocking) else value


class Twin:
    """One of the two clients."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loop = Loop() if kind == "asyncio" else None
        self._clients: list[Any] = []

    def connect(self, *arguments: Any, **options: Any) -> Any:
        if self._loop is None:
            client: Any = nexo.connect(*arguments, **options)
        else:
            loop = self._loop

            async def connect() -> Any:
                return await nexo.connect_async(*arguments, **options).__aenter__()

            client = Blocking(loop.run(connect), loop)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._loop is not None:
            self._loop.close()
