"""A running broker: journal, engine and doors, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from nexo import __version__
from nexo.doors.admin_http.app import api_document
from nexo.doors.json_udp.door import UdpDoor
from nexo.doors.rpc_tcp.door import RpcDoor
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal
from nexo.journal.sqlite import SqliteJournal
from nexo.server.http import HttpService
from nexo.server.listeners import listener
from nexo.server.security import Security, check_exposure, warn_of_directory
from nexo.telemetry.meters import LagTimer
from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.vocabulary.limits import GOODBYE_S
from nexo.vocabulary.settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.desk import Runner
    from nexo.journal.port import Journal
    from nexo.server.configuration import Configuration
    from nexo.vocabulary.errors import NexoError

IN_MEMORY = ":memory:"
_STATM = Path("/proc/self/statm")


class Door(Protocol):
    """What listens."""

    async def open(self, host: str, port: int) -> int: ...

    async def close(self) -> None: ...


class Ports(msgspec.Struct, frozen=True):
    """Where the doors listen; None: that door is switched off."""

    http: int
    rpc: int
    udp: int | None


def events_settings(configuration: Configuration) -> TopicSettings:
    """What is kept of the life of messages."""
    return TopicSettings(
        retention_ms=round(configuration.events_retention * 1000),
        retention_bytes=configuration.events_retention_bytes,
    )


class Broker:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._engine: Engine | None = None
        self._security: Security | None = None
        self._http: HttpService | None = None
        self._rpc: RpcDoor | None = None
        self._udp: UdpDoor | None = None
        self._lag: LagTimer | None = None
        self._surroundings: BrokerSurroundings | None = None

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "the broker is not started"
        return self._engine

    @property
    def engines(self) -> list[Engine]:
        """One; a node of a cluster has one for each of its shards."""
        return [self.engine]

    @property
    def failure(self) -> NexoError | None:
        """Why it cannot go on."""
        return None

    async def start(self) -> Ports:
        """Recover what the journal holds, then open the doors."""
        configuration = self._configuration
        check_exposure(configuration)
        draw = random.SystemRandom()
        engine = self._engine = Engine(
            journal_of(configuration.data, configuration.journal),
            runner=runner_of(configuration.journal),
            memory_limit_bytes=configuration.memory_limit,
            events=events_settings(configuration),
            new_incarnation=lambda: draw.getrandbits(64),
        )
        data = data_directory(configuration)
        security = self._security = Security(configuration, engine.wall_ms, data)
        await engine.open()
        warn_of_directory(data)
        security.begin(engine.tokens)
        self._http = HttpService(engine, configuration, security)
        self._rpc = RpcDoor(engine, f"nexo {__version__}", security.guard, security.tls)
        self._mount_apps(engine, data)
        self._udp = UdpDoor(engine, security.guard) if configuration.udp == "on" else None
        try:
            ports = Ports(
                http=await self._open(self._http, configuration.http_port, "http"),
                rpc=await self._open(self._rpc, configuration.rpc_port, "rpc"),
                udp=await self._open(self._udp, configuration.udp_port, "udp")
                if self._udp is not None
                else None,
            )
            assert self._surroundings is not None
            self._surroundings.rpc_port = ports.rpc
            return ports
        except BaseException:
            await self.stop()
            raise

    async def stop(self, tell: Callable[[str], None] = lambda doing: None) -> None:
        """Say goodbye to clients first, then write what waits. `tell` hears what is being done."""
        tell("say goodbye to clients")
        doors = [door for door in (self._http, self._rpc, self._udp) if door is not None]
        await asyncio.gather(*[say_goodbye(door) for door in doors])
        if self._lag is not None:
            self._lag.stop()
        if self._security is not None:
            self._security.end()
        if self._engine is not None:
            tell("write what waits, and close the journal")
            await self._engine.close()
        tell("end the process")

    def _mount_apps(self, engine: Engine, data: Path | None) -> None:
        http, rpc = self._http, self._rpc
        assert http is not None
        assert rpc is not None
        counted = {"http": lambda: http.connections, "rpc": lambda: len(rpc.connections)}
        surroundings = BrokerSurroundings(data, counted, self._configuration.region)
        self._surroundings = surroundings
        http.show_metrics(engine, surroundings)
        http.open_admin(engine, surroundings)
        http.open_console(engine, surroundings)
        self._lag = LagTimer(engine.meters.loop_lag_s)

    async def _open(self, door: Door, port: int, kind: str) -> int:
        host = self._configuration.host
        try:
            return await door.open(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                protocol = "udp" if kind == "udp" else "tcp"
                who = await asyncio.to_thread(listener, port, protocol)
                raise NotReady(
                    f"port {port} on {host} is taken by {who or 'another process'}",
                    f"stop it, or choose another port with --{kind}-port (0 means any free port)",
                ) from error
            if isinstance(error, socket.gaierror):
                raise InvalidArgument(
                    f"unknown host {host!r:.80}", "check --host: a host name or an IP address"
                ) from error
            reason = os.strerror(error.errno or 0)
            raise NotReady(
                f"cannot listen on {host}:{port}: {reason}", f"check --host and --{kind}-port"
            ) from error


async def say_goodbye(door: Door) -> None:
    """A client that does not read its goodbye must not keep the broker from stopping."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_S):
            await door.close()


def data_directory(configuration: Configuration) -> Path | None:
    """Where the broker has files of its own; None: nowhere."""
    if configuration.journal is not None or configuration.data == IN_MEMORY:
        return None
    return Path(configuration.data)


def is_postgresql(place: str) -> bool:
    """Whether it is the URL of a database, not a data directory."""
    return place.startswith(("postgresql://", "postgres://"))


def journal_of(data: str, url: str | None = None) -> Journal:
    if url is None:
        return MemoryJournal() if data == IN_MEMORY else SqliteJournal(data)
    if not is_postgresql(url):  # which may hold a password: it is not repeated
        raise InvalidArgument(
            "--journal takes the URL of a PostgreSQL database",
            "write postgresql://USER@HOST:PORT/DATABASE",
        )
    try:
        from nexo.journal.postgresql import PostgresqlJournal
    except ImportError:
        raise NotReady(
            "a journal in PostgreSQL needs the package psycopg",
            "pip install 'nexo-broker[postgresql]'",
        ) from None
    return PostgresqlJournal(url)


def runner_of(url: str | None) -> Runner | None:
    """What runs the calls to the journal; None: what the engine takes by itself. Only after
    `journal_of`, which checks the URL."""
    if url is None:
        return None
    from nexo.journal.postgresql_connection import connect
    from nexo.journal.postgresql_writer import Writer

    return Writer(lambda: connect(url, "nexo"))


class BrokerSurroundings:
    """What is known of a broker outside of its engine: its version, its connections, its disk."""

    def __init__(
        self,
        data: Path | None,
        connections: dict[str, Callable[[], int]],
        region: str,
    ) -> None:
        self.version = __version__
        self.region = region
        self.cluster: Any = None  # that this broker is a node of
        self.rpc_port = 0  # where native clients connect, once it is open
        self._data = data
        self._connections = connections

    def api_document(self) -> bytes:
        """The OpenAPI document of the admin API."""
        return api_document(__version__)

    def connections(self) -> dict[str, int]:
        """Open connections by door."""
        return {door: count() for door, count in self._connections.items()}

    def resident_bytes(self) -> int:
        """The memory of the process: now where Linux tells it, else the most it ever was."""
        try:
            pages = int(_STATM.read_text(encoding="ascii").split()[1])
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return pages * resource.getpagesize()

    def disk_free_bytes(self) -> int | None:
        if self._data is None:
            return None
        try:
            return shutil.disk_usage(self._data).free
        except OSError:
            return None
