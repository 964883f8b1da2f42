"""A broker inside your own process, for tests.

    >>> from nexo.testing import broker
    >>> from nexo.vocabulary.batch import batch_of
    >>> with broker() as running:
    ...     orders = running.call(lambda engine: engine.create_queue("orders"))
    ...     _ = running.call(lambda engine: orders.push(batch_of([b"one", b"two"])))
    ...     delivery = running.call(lambda engine: orders.pop(10))
    ...     [message.body for message in orders.messages(delivery)]
    [b'one', b'two']

Most tests only need a client of it:

    >>> with broker() as running, running.client() as client:
    ...     message_id = client.queue("orders", create=True).push("hello")
    ...     client.queue("orders").pop().text
    'hello'

It is the broker itself with its rules, timers and commits, on a journal in memory unless it is
given a data directory. With pytest there is the fixture `nexo_broker`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from nexo import connect
from nexo.doors.http.front import Front
from nexo.doors.http.server import HttpDoor
from nexo.doors.rpc_tcp.door import RpcDoor
from nexo.doors.sns_http.app import SnsApi
from nexo.doors.sqs_http.app import SqsApp
from nexo.engine.engine import Engine
from nexo.server.broker import IN_MEMORY, is_postgresql, journal_of
from nexo.vocabulary.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from nexo import Client
    from nexo.journal.port import Journal

    Result = TypeVar("Result")


class Broker:
    """A running broker for tests, in its own thread."""

    engine: Engine
    url: str  # where clients reach it; the port is of the system's choice
    _door: RpcDoor
    _loop: asyncio.AbstractEventLoop

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._thread = threading.Thread(target=self._live, name="nexo-testing")
        self._sqs: SqsApp | None = None
        self._http: HttpDoor | None = None
        self._sqs_url: str | None = None

    @overload
    def call(self, action: Callable[[Engine], Awaitable[Result]]) -> Result: ...

    @overload
    def call(self, action: Callable[[Engine], Result]) -> Result: ...

    def call(self, action: Callable[[Engine], Any]) -> Any:
        """Run `action(engine)` where the engine lives, wait for what it returns if that can be
        awaited, and hand over the result. What it raises is raised here."""

        async def act() -> Any:
            result = action(self.engine)
            return await result if inspect.isawaitable(result) else result

        if not self._thread.is_alive():
            raise NotReady("this broker is closed", "call it inside its `with` block")
        return self._wait_for(act())

    def client(self) -> Client:
        """A client of this broker. Close it yourself."""
        return connect(self.url)

    @property
    def sqs_url(self) -> str:
        """The `endpoint_url` for boto3 and other SQS clients. The port is opened at first use."""
        if self._sqs_url is None:
            self._sqs_url = self._wait_for(self._open_sqs())
        return self._sqs_url

    def __enter__(self) -> Self:
        self._loop = self._runner.get_loop()
        self._thread.start()
        try:
            self._wait_for(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            self._wait_for(self._close())
        finally:
            self._end()

    async def _open(self) -> None:
        self.engine = Engine(self._journal, new_incarnation=lambda: secrets.randbits(64))
        await self.engine.open()
        self._door = RpcDoor(self.engine, "nexo.testing")
        port = await self._door.open("127.0.0.1", 0)
        self.url = f"nexo://127.0.0.1:{port}"

    async def _open_sqs(self) -> str:
        self._sqs = SqsApp(self.engine, others=[SnsApi(self.engine)])
        self._http = HttpDoor(Front(self._sqs, {}, lambda: self.engine.trouble))
        return f"http://127.0.0.1:{await self._http.open('127.0.0.1', 0)}"

    async def _close(self) -> None:
        if self._sqs is not None and self._http is not None:
            self._sqs.close()
            await self._http.close()
        await self._door.close()
        await self.engine.close()

    def _wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        with self._runner:  # leaving it cancels what a test left behind
            self._loop.run_forever()


def broker(data: str | os.PathLike[str] | None = None) -> Broker:
    """A broker for the length of a `with` block. It keeps everything in memory, or in the directory
    or PostgreSQL URL `data`, where the next broker finds it."""
    place = IN_MEMORY if data is None else os.fspath(data)
    return Broker(journal_of(place, place if is_postgresql(place) else None))
