"""What is served over HTTP: the SQS and SNS APIs at the root, other apps beside them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.access.operations import OPERATIONS
from nexo.doors.admin_http.app import AdminApp
from nexo.doors.console.history import Sampler
from nexo.doors.http.front import Front, Guarded
from nexo.doors.http.server import HttpDoor
from nexo.doors.metrics_http.app import MetricsApp
from nexo.doors.sns_http.app import SnsApi
from nexo.doors.sqs_http.app import SqsApp

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from nexo.access.guard import Guard
    from nexo.doors.console.app import ConsoleApp
    from nexo.doors.console.batches import Finished
    from nexo.doors.console.request import Surroundings as ConsoleSurroundings
    from nexo.doors.metrics_http.app import Surroundings
    from nexo.engine.engine import Engine
    from nexo.server.broker import BrokerSurroundings
    from nexo.server.configuration import Configuration
    from nexo.server.lake import LakeFolder
    from nexo.server.security import Security


class LateConsole:
    """The console, whose pages are loaded when somebody wants one: its modules are a sixth of all,
    and would take turns from the event loop just when clients come back after a start. Its lines
    begin with the broker all the same."""

    def __init__(
        self,
        engine: Engine,
        guard: Guard,
        surroundings: ConsoleSurroundings,
        lake: str | None,
        sampler: Sampler | None = None,
        secret: bytes | None = None,
        batches: Finished | None = None,
    ) -> None:
        """`secret` signs what pages carry, if several brokers are to know it."""
        self._given = engine, guard, surroundings, lake
        self._secret, self._batches = secret, batches
        self._loading: asyncio.Task[ConsoleApp] | None = None
        self._sampler = sampler or Sampler(engine)
        self._sampling = asyncio.get_running_loop().create_task(self._sampler.look_idly())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        console = await asyncio.shield(self._load())
        await console(scope, receive, send)

    def close(self) -> None:
        self._sampling.cancel()
        if self._loading is None:
            return
        if self._loading.done():
            self._loading.result().close()
        else:
            self._loading.cancel()

    def _load(self) -> asyncio.Task[ConsoleApp]:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._loaded())
        return self._loading

    async def _loaded(self) -> ConsoleApp:
        """In a thread: the event loop goes on."""
        console_app, lake_folder = await asyncio.to_thread(_modules)
        engine, guard, surroundings, lake = self._given
        folder = lake_folder(lake) if lake is not None else None
        self._sampling.cancel()  # its pages see to that
        more = self._sampler, self._secret, self._batches
        return console_app(engine, guard, surroundings, folder, *more)


def _modules() -> tuple[type[ConsoleApp], type[LakeFolder]]:
    from nexo.doors.console import pages
    from nexo.doors.console.app import ConsoleApp
    from nexo.server.lake import LakeFolder

    pages.prepare()
    return ConsoleApp, LakeFolder


class HttpService:
    """The HTTP port of a broker."""

    def __init__(self, engine: Engine, configuration: Configuration, security: Security) -> None:
        self._guard = security.guard
        place = {"account": configuration.account, "region": configuration.region}
        self._sqs = SqsApp(
            engine,
            **place,
            has_pauses=configuration.aws_pauses == "on",
            guard=security.guard,
            others=[SnsApi(engine, security.guard, **place)],
        )
        self.front = Front(
            self._sqs,
            {},
            lambda: engine.trouble,
            no_other_sites=security.is_for_this_machine,
            store="the disk" if configuration.journal is None else "PostgreSQL",
        )
        self._door = HttpDoor(self.front, security.tls)
        self._console: LateConsole | None = None
        self._lake = configuration.lake

    def show_metrics(self, engine: Engine, surroundings: Surroundings) -> None:
        app = MetricsApp(engine, surroundings)
        self.front.mount("/metrics", Guarded(app, self._guard, "metrics", OPERATIONS["metrics"]))

    def open_admin(self, engine: Engine, surroundings: BrokerSurroundings) -> None:
        app = AdminApp(engine, self._guard, surroundings)
        self.front.mount("/api", Guarded(app, self._guard, "admin"))

    def open_console(self, engine: Engine, surroundings: BrokerSurroundings) -> None:
        """It asks for the token by itself: people sign in with a form, not with a header."""
        self._console = LateConsole(engine, self._guard, surroundings, self._lake)
        self.front.mount("/console", self._console)

    @property
    def connections(self) -> int:
        return self._door.connections

    async def open(self, host: str, port: int) -> int:
        return await self._door.open(host, port)

    async def close(self) -> None:
        """Those who wait for messages are answered first."""
        self._sqs.close()
        if self._console is not None:
            self._console.close()
        await self._door.close()
