"""Three nodes under load while nodes are killed, put to sleep and cut off: every confirmed push is
delivered or there, and what was acked never comes again."""

from __future__ import annotations

import logging
import random
import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from nexo.vocabulary.limits import CLUSTER_LEASE_S
from tests.cluster.load import Load
from tests.cluster.network import Network
from tests.cluster.nodes import Nodes, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.network import Link
    from tests.postgresql import PostgresqlServer

logger = logging.getLogger("tests.rounds")  # seen with --log-cli-level INFO

NAMES = ("a", "b", "c")
FAULTS = ("kill", "sleep", "no store", "no peers", "alone")


def one_round(nodes: Nodes, chance: random.Random) -> str:
    """One node has a fault for a while: shorter or longer than its lease."""
    name, fault = chance.choice(NAMES), chance.choice(FAULTS)
    lasts_s = chance.uniform(0.5, CLUSTER_LEASE_S + 2)
    told = f"{fault} of {name} for {lasts_s:.1f} s"
    if fault == "kill":
        nodes.kill(name)
        time.sleep(lasts_s)
        nodes.launch(name)
    elif fault == "sleep":
        nodes.send(name, signal.SIGSTOP)
        time.sleep(lasts_s)
        nodes.send(name, signal.SIGCONT)
    else:
        links: list[Link] = []
        if fault != "no peers":
            links += nodes.to_store[name]
        if fault != "no store":
            links += nodes.to_node[name]
        is_silent = chance.random() < 0.5
        for link in links:
            link.cut(is_silent=is_silent)
        time.sleep(lasts_s)
        for link in links:
            link.mend()
        told += ", silently" if is_silent else ""
    time.sleep(chance.uniform(0, 2))
    return told


def play(folder: Path, postgresql: PostgresqlServer, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    with (
        closing_network() as network,
        postgresql.database(f"cluster_rounds_{rounds}") as journal,
        running(folder, journal, *NAMES, network=network) as nodes,
    ):
        url = "nexo://" + ",".join(f"127.0.0.1:{nodes[name].port}" for name in NAMES)
        load = Load(url, [nodes[name].http_port for name in NAMES])
        load.create()
        load.begin()
        told = []
        try:
            for number in range(rounds):
                told.append(one_round(nodes, chance))
                logger.info("round %d: %s; %s", number + 1, told[-1], load.counts)
                assert load.wrong == [], f"seed {seed}: {told}"
            nodes.settle()
        finally:
            load.end()
        assert load.wrong == [], f"seed {seed}: {told}"
        load.account()
        logger.info("seed %d: %s", seed, load.counts)
        assert load.counts["confirmed pushes"] > 100 * rounds


def closing_network() -> closing[Network]:
    return closing(Network())


@pytest.mark.timeout(180)
def test_five_rounds(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    play(tmp_path, postgresql, rounds=5, seed=random.randrange(1 << 30))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_fifty_rounds(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    play(tmp_path, postgresql, rounds=50, seed=random.randrange(1 << 30))
