"""A node of a cluster as a process: the shards of `nexo.cluster` behind the doors of a broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from nexo import __version__
from nexo.cluster.audit import ClusterAudit
from nexo.cluster.batches import ClusterBatches
from nexo.cluster.connections import Clients
from nexo.cluster.far import Far
from nexo.cluster.history import ClusterSampler
from nexo.cluster.http import HttpSwitch
from nexo.cluster.node import Node
from nexo.cluster.others import Others
from nexo.cluster.questions import Answering
from nexo.cluster.rpc import RpcSwitch
from nexo.cluster.store import PostgresqlStore
from nexo.cluster.surroundings import NodeSurroundings
from nexo.cluster.udp import UdpSwitch
from nexo.cluster.whole import Whole
from nexo.server.broker import (
    Broker,
    BrokerSurroundings,
    Ports,
    events_settings,
    journal_of,
    say_goodbye,
)
from nexo.server.configuration import can_be_reached_at
from nexo.server.http import LateConsole
from nexo.server.security import Security, check_exposure
from nexo.telemetry.meters import LagTimer
from nexo.vocabulary.errors import InvalidArgument, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.engine import Engine
    from nexo.server.configuration import Configuration
    from nexo.vocabulary.errors import NexoError


class NodeBroker(Broker):
    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._node: Node | None = None
        self._security: Security | None = None
        self._doors: list[RpcSwitch | HttpSwitch | UdpSwitch] = []
        self._console: LateConsole | None = None

    @property
    def engines(self) -> list[Engine]:
        return list(self._node.engines.values()) if self._node is not None else []

    @property
    def failure(self) -> NexoError | None:
        failure = self._node.failure if self._node is not None else None
        return failure.result() if failure is not None and failure.done() else None

    async def start(self) -> Ports:
        """Open the doors, so that others can be told where they are; then join."""
        configuration = self._configuration
        assert configuration.journal is not None
        assert configuration.node is not None
        check_exposure(configuration)
        _check(configuration)
        journal_of(configuration.data, configuration.journal)  # is it a URL, and psycopg there?
        security = self._security = Security(configuration, _wall_ms, None)
        store = PostgresqlStore(configuration.journal, configuration.node)
        node = self._node = Node(
            store, configuration.memory_limit, events=events_settings(configuration)
        )
        node.tokens.guard_with(security.guard.adopt)
        await node.prepare()
        peer_tls = _peer_tls() if security.tls is not None else None
        rpc = RpcSwitch(node, f"nexo {__version__}", security.guard, security.tls, peer_tls)
        others = Others(node, rpc.links)
        audit = security.guard.audit = ClusterAudit(others)
        far = Far(others)
        own = BrokerSurroundings(None, self._counted(), configuration.region)
        surroundings = NodeSurroundings(own, node, far)
        clients = Clients(rpc, far)
        whole = rpc.whole = Whole(node, far, clients=clients, is_looked_at=True)
        here = Whole(node, clients=clients)
        batches = ClusterBatches(node, others)
        rpc.answering = Answering(here, audit, batches, lambda: surroundings.told(here))
        console = self._console = _console(
            configuration, security, node, whole, surroundings, batches
        )
        http = HttpSwitch(
            node,
            security.guard,
            whole,
            console,
            tls=security.tls,
            peer_tls=peer_tls,
            account=configuration.account,
            region=configuration.region,
            has_pauses=configuration.aws_pauses == "on",
            is_for_this_machine=security.is_for_this_machine,
            surroundings=surroundings,
        )
        self._lag = LagTimer(node.meters.loop_lag_s)
        self._doors = [rpc, http]
        udp = None
        if configuration.udp == "on":
            udp = UdpSwitch(node, here, security.guard, others)
            rpc.answering.datagrams = udp.serve
            self._doors.append(udp)
        try:
            ports = Ports(
                http=await self._open(http, configuration.http_port, "http"),
                rpc=await self._open(rpc, configuration.rpc_port, "rpc"),
                udp=None if udp is None else await self._open(udp, configuration.udp_port, "udp"),
            )
            own.rpc_port = ports.rpc
            security.begin(None)
            host = _advertised(configuration)
            await node.join(f"{host}:{ports.rpc}", f"{host}:{ports.http}", __version__)
            with contextlib.suppress(NotReady):  # it can pass calls on, and some shards may come
                await node.settled()
        except BaseException:
            await self.stop()
            raise
        return ports

    def _counted(self) -> dict[str, Callable[[], int]]:
        """Open connections by door."""

        def http() -> int:
            return sum(each.connections for each in self._doors if isinstance(each, HttpSwitch))

        def rpc() -> int:
            switches = [each for each in self._doors if isinstance(each, RpcSwitch)]
            return sum(len(each.connections) for each in switches)

        return {"http": http, "rpc": rpc}

    async def stop(self, tell: Callable[[str], None] = lambda doing: None) -> None:
        """Shards first, while answers can be given; then clients, who find the other nodes."""
        if self._node is not None:
            tell("hand over the shards")
            await self._node.leave()
        tell("say goodbye to clients")
        if self._console is not None:
            self._console.close()
        await asyncio.gather(*[say_goodbye(door) for door in self._doors])
        if self._lag is not None:
            self._lag.stop()
        if self._security is not None:
            self._security.end()
        tell("end the process")


def _console(
    configuration: Configuration,
    security: Security,
    node: Node,
    whole: Whole,
    surroundings: NodeSurroundings,
    batches: ClusterBatches,
) -> LateConsole:
    """Its pages may be answered by any node, so they carry what all of them can check."""
    assert whole.far is not None
    watched: Any = Whole(node, whole.far)
    sampler = ClusterSampler(watched, node, whole.far)
    engine: Any = whole
    secret = sha256(f"console {node.secret}".encode()).digest()
    lake = configuration.lake
    return LateConsole(engine, security.guard, surroundings, lake, sampler, secret, batches)


def _check(configuration: Configuration) -> None:
    if configuration.advertise is None and not can_be_reached_at(configuration.host):
        raise InvalidArgument(
            f"other nodes cannot reach this one at {configuration.host!r:.80}",
            "give --advertise HOST",
        )


def _advertised(configuration: Configuration) -> str:
    host = configuration.advertise or configuration.host
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _peer_tls() -> ssl.SSLContext:
    """What nodes speak to each other with, if they speak TLS."""
    return ssl.create_default_context(cafile=os.environ.get("NEXO_TLS_CA") or None)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
