"""The nodes of the demo: `nexo serve --node`, as processes that can be killed and started again."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import nexo
from examples.failover.postgresql import free_port
from examples.gps.demo.process import Process

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "b", "c")
SHARDS = 24
START_S = 60.0
NEXO = ("-c", "from nexo.cli.main import main; main()")


class Broken(Exception):
    """A part did not start."""


class Nodes:
    """Three nodes of a new cluster; `addresses` are theirs for clients."""

    def __init__(self, folder: Path, journal: str) -> None:
        self._folder, self._journal = folder, journal
        self._processes: dict[str, Process] = {}
        self._ports = {name: free_port() for name in NAMES}
        self.kills = 0

    def create(self) -> None:
        create = ("cluster", "create", "--shards", str(SHARDS), "--journal", self._journal)
        made = subprocess.run(
            [sys.executable, *NEXO, *create],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise Broken(made.stderr)
        for name in NAMES:
            self.start(name)
        until_s = time.monotonic() + START_S
        while set(self.shards().values()) != set(NAMES):  # each has some
            if time.monotonic() > until_s:
                raise Broken("the nodes did not share out their shards")
            time.sleep(0.1)

    def start(self, name: str) -> None:
        """Start a node where it was before, and wait until it takes calls."""
        ports = self._folder / f"{name}.ports"
        ports.unlink(missing_ok=True)
        port = self._ports[name]
        arguments = [*NEXO, "serve", "--journal", self._journal, "--node", name]
        arguments += ["--rpc-port", str(port), "--http-port", "0", "--udp-port", "0"]
        arguments += ["--ports-file", str(ports)]
        made = self._processes[name] = Process(
            name, f"node {name}", arguments, self._folder / f"{name}.log"
        )
        made.start()
        until_s = time.monotonic() + START_S
        while not ports.exists():
            if not made.is_running or time.monotonic() > until_s:
                raise Broken(f"node {name} did not start: {made.last_words()}")
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self.kills += 1

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()

    @property
    def address(self) -> str:
        """All nodes in one URL: a client goes on to the next when one does not answer."""
        return "nexo://" + ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def pid(self, name: str) -> int:
        return self._processes[name].number

    def is_running(self, name: str) -> bool:
        return self._processes[name].is_running

    def shards(self) -> dict[int, str | None]:
        """The node of each shard, as a living node tells it; none if nobody does."""
        for name in NAMES:
            if not self.is_running(name):
                continue
            try:
                with nexo.connect(f"nexo://127.0.0.1:{self._ports[name]}", timeout=2) as client:
                    return {each.shard: each.node for each in client.cluster().shards}
            except nexo.NexoError:
                continue
        return {}
