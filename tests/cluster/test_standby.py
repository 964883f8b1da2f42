"""The PostgreSQL primary is killed and its synchronous standby promoted, under load: the nodes find
it by themselves, and nothing that was confirmed is lost."""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.load import Load
from tests.cluster.nodes import Nodes, running
from tests.postgresql import PostgresqlServer

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("tests.rounds")  # seen with --log-cli-level INFO

NAMES = ("a", "b", "c")
ROUNDS = 10


class Pair:
    """Two servers: a primary, and a standby that has every commit before it is confirmed."""

    def __init__(self, folder: Path) -> None:
        self._servers = [PostgresqlServer(_made(folder / each), durable=True) for each in "12"]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._servers)
        self.url = f"postgresql://postgres@{hosts}/postgres"
        self._servers[0].create()
        self.replicate()

    def replicate(self) -> None:
        primary, standby = self._servers
        standby.follow(primary)
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        give_up = time.monotonic() + 30
        while primary.execute("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            assert time.monotonic() < give_up, "the standby does not follow"
            time.sleep(0.05)

    def kill(self) -> None:
        self._servers[0].kill()

    def promote(self) -> None:
        """As a manager of PostgreSQL does: the standby is alone, until it has another."""
        primary, standby = self._servers
        standby.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        standby.execute("SELECT pg_promote()")
        standby.execute("SELECT pg_reload_conf()")
        self._servers = [standby, primary]

    def stop(self) -> None:
        for server in self._servers:
            server.stop()


def _made(folder: Path) -> Path:
    folder.mkdir()
    folder.parent.chmod(0o755)
    return folder


@pytest.fixture
def pair() -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="nexo-postgresql-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made = Pair(folder)
        stack.callback(made.stop)
        yield made


def play(nodes: Nodes, pair: Pair, rounds: int) -> None:
    url = "nexo://" + ",".join(f"127.0.0.1:{nodes[name].port}" for name in NAMES)
    load = Load(url, [nodes[name].http_port for name in NAMES])
    load.create()
    load.begin()
    try:
        for number in range(rounds):
            time.sleep(random.uniform(1, 3))
            began = time.monotonic()
            pair.kill()
            before = load.counts["confirmed pushes"]
            pair.promote()
            while load.counts["confirmed pushes"] == before:
                assert time.monotonic() < began + 60, load.errors
                time.sleep(0.05)
            took_s = time.monotonic() - began
            pair.replicate()
            nodes.settle()
            logger.info("round %d: %.1f s; %s", number + 1, took_s, load.counts)
    finally:
        load.end()
    assert load.wrong == []
    load.account()
    logger.info("%s", load.counts)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_primaries_are_killed(tmp_path: Path, pair: Pair) -> None:
    with running(tmp_path, pair.url, *NAMES) as nodes:
        play(nodes, pair, ROUNDS)
