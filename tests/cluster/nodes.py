"""Real nodes as processes, over a PostgreSQL that tests share."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import nexo
from tests.cli.commands import BrokerProcess, Nexo
from tests.client.eventually import eventually
from tests.postgresql import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from nexo.wire.answers import ClusterFigures
    from tests.cluster.network import Link, Network

SHARDS = 8


class Nodes:
    """A cluster of eight shards, and the nodes of it that were started."""

    def __init__(self, folder: Path, url: str, network: Network | None = None) -> None:
        """With a `network`, everything between the nodes, and between them and PostgreSQL, goes
        through links that can be cut."""
        self._folder = folder
        self.journal = url
        self._network = network
        self.processes: dict[str, BrokerProcess] = {}
        self._arguments: dict[str, tuple[str, ...]] = {}
        self.to_store: dict[str, list[Link]] = {}  # from a node to PostgreSQL
        self.to_node: dict[str, list[Link]] = {}  # from the others to a node
        Nexo(folder)("cluster", "create", "--journal", url, "--shards", str(SHARDS))

    def launch(self, name: str) -> None:
        """Start a node."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        if name not in self._arguments:
            self._arguments[name] = self._placed(name)
        arguments = self._arguments[name]
        made = BrokerProcess(folder, *arguments, "--node", name, log=folder / "log")
        self.processes[name] = made.start()

    def start(self, *names: str) -> None:
        """Start nodes, and wait until they have their shards."""
        for name in names:
            self.launch(name)
        self.settle()

    def settle(self) -> None:
        """Wait until every node that was started knows who has which shard, and its own are open:
        each learns it in its own time."""
        for name in self.processes:
            found = self.wait_until(self._is_spread, name)
            count = sum(shard.node == name for shard in found.shards)
            eventually(partial(self._has_open, name, count), 30)

    def _has_open(self, name: str, count: int) -> bool:
        url = f"http://127.0.0.1:{self.processes[name].http_port}/health"
        try:
            with urllib.request.urlopen(url) as answer:
                return bool(json.loads(answer.read())["shards"] == count)
        except urllib.error.HTTPError as error:  # it has no lease at this moment
            error.close()
            return False

    def log(self, name: str) -> str:
        return (self._folder / name / "log").read_text()

    def _placed(self, name: str) -> tuple[str, ...]:
        """Where a node is, also after a restart: clients know it by then."""
        ports = [free_port(), free_port()]
        linked = self._network and self._linked(self._network, name, ports)
        return (
            *(linked or ("--journal", self.journal)),
            *("--rpc-port", str(ports[0]), "--http-port", str(ports[1])),
        )

    def _linked(self, network: Network, name: str, ports: list[int]) -> tuple[str, ...]:
        """Links of a node of its own: others reach it at another address of this machine."""
        parts = urlsplit(self.journal)
        assert parts.port is not None
        store = network.link(("127.0.0.1", 0), ("127.0.0.1", parts.port))
        host = f"127.0.1.{len(self.to_node) + 1}"
        self.to_store[name] = [store]
        self.to_node[name] = [network.link((host, port), ("127.0.0.1", port)) for port in ports]
        journal = self.journal.replace(f":{parts.port}/", f":{store.port}/")
        return ("--journal", journal, "--advertise", host)

    def __getitem__(self, name: str) -> BrokerProcess:
        return self.processes[name]

    def kill(self, name: str) -> None:
        self.processes.pop(name).kill()

    def send(self, name: str, number: signal.Signals) -> None:
        process = self.processes[name].process
        assert process is not None
        process.send_signal(number)

    def end(self) -> None:
        for made in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                if made.process is not None:
                    made.process.send_signal(signal.SIGCONT)
            made.kill()

    def status(self, name: str | None = None) -> ClusterFigures:
        made = self.processes[name or next(iter(self.processes))]
        with nexo.connect(made.url) as client:
            return client.cluster()

    def wait_until(
        self, is_so: Callable[[ClusterFigures], bool], name: str | None = None
    ) -> ClusterFigures:
        give_up = time.monotonic() + 30
        while True:
            found = self.status(name)
            if is_so(found):
                return found
            assert time.monotonic() < give_up, found
            time.sleep(0.05)

    def owner_of(self, queue: str) -> str:
        """The node that has a queue."""
        from nexo.cluster.placement import shard_of

        owner = self.status().shards[shard_of(queue, SHARDS)].node
        assert owner is not None
        return owner

    def other_than(self, name: str) -> str:
        return next(each for each in self.processes if each != name)

    def _is_spread(self, found: ClusterFigures) -> bool:
        return is_spread(found, self.processes)


def is_spread(found: ClusterFigures, names: Iterable[str]) -> bool:
    """Whether these nodes are up, and each shard is where it stays as long as they are."""
    from nexo.cluster.placement import wanted_owner

    up = [node.name for node in found.nodes if node.state == "up"]
    return set(up) == set(names) and all(
        shard.node == wanted_owner(shard.shard, up) for shard in found.shards
    )


@contextlib.contextmanager
def running(folder: Path, url: str, *names: str, network: Network | None = None) -> Iterator[Nodes]:
    made = Nodes(folder, url, network)
    try:
        made.start(*names)
        yield made
    finally:
        made.end()
