"""Beside others: one call at a time, the other broker and this one in turns on the same machine.

Every peer confirms what is synchronized to disk, as this broker does. Whoever is on the path is
measured, with its Python client if that is installed (`pip install pika redis greenstalk`). On a
noisy machine only the ratio of one run says something.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bench import rpc
from bench.result import Result
from bench.rpc import BODY, NAIVE_BACKLOG, SECONDS
from bench.servers import Server, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 5


class Peer(NamedTuple):
    """What stands in arguments and environment, `servers.running` says."""

    name: str
    program: str
    client: str  # the module
    talk: Callable[[int], Talk]
    arguments: str = ""
    environment: str = ""


class Talk(Protocol):
    """One client's connection to a peer. Each call returns when the broker has confirmed it."""

    def push(self) -> bool: ...

    def pop_and_ack(self) -> bool:
        """False: there was nothing."""


class RabbitTalk:
    def __init__(self, port: int) -> None:
        pika: Any = import_module("pika")
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        self._channel = connection.channel()
        self._channel.queue_declare("bench", durable=True)
        self._channel.confirm_delivery()
        self._durable = pika.BasicProperties(delivery_mode=2)

    def push(self) -> bool:
        self._channel.basic_publish("", "bench", BODY, self._durable, mandatory=True)
        return True

    def pop_and_ack(self) -> bool:
        method, _, _ = self._channel.basic_get("bench")
        if method is not None:
            self._channel.basic_ack(method.delivery_tag)
        return method is not None


class RedisTalk:
    def __init__(self, port: int) -> None:
        redis: Any = import_module("redis")
        self._redis = redis.Redis(port=port)
        with contextlib.suppress(redis.ResponseError):  # it is there already
            self._redis.xgroup_create("bench", "group", "0", mkstream=True)

    def push(self) -> bool:
        self._redis.xadd("bench", {"body": BODY})
        return True

    def pop_and_ack(self) -> bool:
        for _, [(number, _)] in self._redis.xreadgroup("group", "one", {"bench": ">"}, count=1):
            both = self._redis.pipeline(transaction=False)  # an acked entry would stay for ever
            both.xack("bench", "group", number).xdel("bench", number).execute()
            return True
        return False


class BeanstalkTalk:
    def __init__(self, port: int) -> None:
        greenstalk: Any = import_module("greenstalk")
        self._client = greenstalk.Client(("127.0.0.1", port))

    def push(self) -> bool:
        self._client.put(BODY.decode())
        return True

    def pop_and_ack(self) -> bool:
        self._client.delete(self._client.reserve())
        return True


PEERS = (
    Peer(
        "RabbitMQ, durable queue (pika)",
        # Debian's command on the path is for root alone, and changes the user.
        "/usr/lib/rabbitmq/bin/rabbitmq-server",
        "pika",
        RabbitTalk,
        environment="RABBITMQ_NODENAME=bench@localhost RABBITMQ_NODE_PORT={port} HOME={directory}"
        " RABBITMQ_MNESIA_BASE={directory} RABBITMQ_LOG_BASE={directory}"
        " ERL_CRASH_DUMP={directory}/crash.dump"
        " RABBITMQ_DIST_PORT={below}",  # its own choice is 20,000 above, and may be none at all
    ),
    Peer(
        "Redis streams, appendfsync always (redis-py)",
        "redis-server",
        "redis",
        RedisTalk,
        "--port {port} --dir {directory} --appendonly yes --appendfsync always",
    ),
    Peer(
        "beanstalkd -f0 (greenstalk)",
        "beanstalkd",
        "greenstalk",
        BeanstalkTalk,
        "-l 127.0.0.1 -p {port} -b {directory} -f0",
    ),
)


def run(directory: Path) -> Iterator[Result]:
    for index, peer in enumerate(PEERS):
        missing = None if find_spec(peer.client) else f"pip install {peer.client}"
        if shutil.which(peer.program) is None:
            missing = f"{Path(peer.program).name} is not installed"
        if missing is not None:
            print(f"      {peer.name}: not measured ({missing})", file=sys.stderr)
            continue
        theirs, ours = [], []
        with running_peer(peer, directory / peer.client) as server:
            for _ in range(ROUNDS):
                theirs.append(min(_turn(index, server.port)))
                ours.append(min(rpc.naive(directory / "nexo")))
        yield Result(f"one call at a time, {peer.name}", median(theirs), "msg/s")
        yield Result("… and this broker, in turns", median(ours), "msg/s")
        ratio = median(mine / its for mine, its in zip(ours, theirs, strict=True))
        yield Result("… ratio", ratio, "x")
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running_peer(peer: Peer, directory: Path) -> Iterator[Server]:
    """The peer with an empty directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with running(f"{peer.program} {peer.arguments}", peer.environment, directory) as server:
        yield server


def _turn(index: int, port: int) -> tuple[float, float]:
    """Messages a second of a producer and of a consumer that both work at the same time."""
    talk = PEERS[index].talk(port)
    for _ in range(NAIVE_BACKLOG):
        talk.push()
    pushed, popped = rpc.together((_repeat, (index, port, "push")), (_repeat, (index, port, "pop")))
    return pushed, popped


def _repeat(index: int, port: int, what: str) -> float:
    """Calls a second that had something to do."""
    talk = PEERS[index].talk(port)
    call = talk.push if what == "push" else talk.pop_and_ack
    count, started = 0, perf_counter()
    while perf_counter() - started < SECONDS:
        count += call()
    return count / (perf_counter() - started)
