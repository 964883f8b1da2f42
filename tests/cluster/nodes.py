"""Real nodes as processes, over a PostgreSQL that tests share."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import nexo
from tests.cli.commands import BrokerProcess, Nexo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nexo.wire.answers import ClusterFigures

SHARDS = 8


class Nodes:
    """A cluster of eight shards, and the nodes of it that were started."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.journal = url
        self.processes: dict[str, BrokerProcess] = {}
        self._ports: dict[str, tuple[str, ...]] = {}
        Nexo(folder)("cluster", "create", "--journal", url, "--shards", str(SHARDS))

    def start(self, *names: str) -> None:
        """Start nodes, and wait until they have their shards."""
        for name in names:
            folder = self._folder / name
            folder.mkdir(exist_ok=True)
            ports = self._ports.get(name, ())  # clients know where it was
            arguments = ("--journal", self.journal, "--node", name, *ports)
            made = self.processes[name] = BrokerProcess(folder, *arguments).start()
            self._ports[name] = (
                *("--rpc-port", str(made.port)),
                *("--http-port", str(made.http_port)),
            )
        self.wait_until(lambda found: self._is_spread(found))

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
        from nexo.cluster.placement import wanted_owner

        up = [node.name for node in found.nodes if node.state == "up"]
        return set(up) == set(self.processes) and all(
            shard.node == wanted_owner(shard.shard, up) for shard in found.shards
        )


@contextlib.contextmanager
def running(folder: Path, url: str, *names: str) -> Iterator[Nodes]:
    made = Nodes(folder, url)
    try:
        made.start(*names)
        yield made
    finally:
        made.end()
