"""What is served over HTTP: the SQS API at the root, other apps beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.admin_http.app import AdminApp
from nexo.doors.console.app import ConsoleApp
from nexo.doors.http.front import Front, Guarded, NoOtherSites
from nexo.doors.http.server import HttpDoor
from nexo.doors.metrics_http.app import MetricsApp
from nexo.doors.sqs_http.app import SqsApp
from nexo.server.lake import LakeFolder

if TYPE_CHECKING:
    from nexo.doors.metrics_http.app import Surroundings
    from nexo.engine.engine import Engine
    from nexo.server.broker import BrokerSurroundings
    from nexo.server.configuration import Configuration
    from nexo.server.security import Security

METRICS = "nexo.metrics"  # what a token must be allowed to peek at


class HttpService:
    """The HTTP port of a broker."""

    def __init__(self, engine: Engine, configuration: Configuration, security: Security) -> None:
        self._guard = security.guard
        self._sqs = SqsApp(
            engine,
            account=configuration.account,
            region=configuration.region,
            has_pauses=configuration.aws_pauses == "on",
            guard=security.guard,
        )
        self.front = Front(self._sqs, {}, lambda: engine.trouble)
        served = NoOtherSites(self.front) if security.is_for_this_machine else self.front
        self._door = HttpDoor(served, security.tls)
        self._console: ConsoleApp | None = None
        self._lake = LakeFolder(configuration.lake) if configuration.lake is not None else None

    def show_metrics(self, engine: Engine, surroundings: Surroundings) -> None:
        app = MetricsApp(engine, surroundings)
        self.front.mount("/metrics", Guarded(app, self._guard, "metrics", METRICS))

    def open_admin(self, engine: Engine, surroundings: BrokerSurroundings) -> None:
        app = AdminApp(engine, self._guard, surroundings)
        self.front.mount("/api", Guarded(app, self._guard, "admin"))

    def open_console(self, engine: Engine, surroundings: BrokerSurroundings) -> None:
        """It asks for the token by itself: people sign in with a form, not with a header."""
        self._console = ConsoleApp(engine, self._guard, surroundings, self._lake)
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
