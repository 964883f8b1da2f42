"""A node that lives, but that the others cannot reach at what it advertises, is shown as such."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

import nexo
from tests.cli.commands import BrokerProcess, Nexo
from tests.client.eventually import eventually
from tests.cluster.nodes import SHARDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

pytestmark = pytest.mark.timeout(120)  # nodes start
SOON_S = 15  # it may be a failover for 5 s; and the start of a command on a busy machine


# One refuses connections, of the other nobody hears (or the system says so at once).
@pytest.mark.parametrize("advertised", ["127.0.0.9", "192.0.2.1"])
def test_it_is_named(tmp_path: Path, postgresql: PostgresqlServer, advertised: str) -> None:
    with postgresql.database("cluster_unreachable") as journal:
        Nexo(tmp_path)("cluster", "create", "--journal", journal, "--shards", str(SHARDS))
        nodes: dict[str, BrokerProcess] = {}
        try:
            for name, more in (("a", ()), ("b", ("--advertise", advertised))):
                folder = tmp_path / name
                folder.mkdir()
                nodes[name] = BrokerProcess(folder, "--journal", journal, "--node", name, *more)
                nodes[name].start()
            _look(Nexo(tmp_path, nodes["a"].url), f"{advertised}:{nodes['b'].port}")
            _look_at_the_console(nodes["a"], f"{advertised}:{nodes['b'].port}")
        finally:
            for node in nodes.values():
                node.kill()


def _look(run: Nexo, address: str) -> None:
    eventually(lambda: _is_missed(run), 30)
    shown = run("cluster", "status", "--json").json()
    assert address in shown["nodes"][1]["reason"]
    status = run("cluster", "status", environment={"COLUMNS": "200"}).out
    assert "unreachable" in status
    assert "--advertise" in status
    doctor = run("doctor", environment={"COLUMNS": "200"}).out
    assert f"node 'b' at {address}" in doctor
    began = time.monotonic()
    refused = run("queue", "list", status=3)
    assert f"node 'b' at {address} cannot be reached" in refused.err
    assert time.monotonic() - began < SOON_S


def _is_missed(run: Nexo) -> bool:
    """Node a learns of b in its own time, gives it its shards, and then asks it in vain."""
    shown = run("cluster", "status", "--json").json()
    states = {each["name"]: each["state"] for each in shown["nodes"]}
    owners = {each["node"] for each in shown["shards"]}
    return states == {"a": "up", "b": "unreachable"} and "b" in owners


def _look_at_the_console(node: BrokerProcess, address: str) -> None:
    url = f"http://127.0.0.1:{node.http_port}/console/cluster"
    with urllib.request.urlopen(url) as answer:
        page = answer.read().decode()
    assert "unreachable" in page
    assert f"at {address}" in page


def test_one_that_is_reached_again(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    with postgresql.database("cluster_unreachable") as journal:
        Nexo(tmp_path)("cluster", "create", "--journal", journal, "--shards", str(SHARDS))
        first, second = tmp_path / "a", tmp_path / "b"
        for folder in (first, second):
            folder.mkdir()
        a = BrokerProcess(first, "--journal", journal, "--node", "a").start()
        away = ("--journal", journal, "--node", "b", "--advertise", "127.0.0.9")
        b = BrokerProcess(second, *away).start()
        try:
            eventually(lambda: _state_of_b(a) == "unreachable")
            b.stop()
            b = BrokerProcess(second, *away[:-2]).start()
            eventually(lambda: _state_of_b(a) == "up")
        finally:
            a.kill()
            b.kill()


def _state_of_b(node: BrokerProcess) -> str:
    """As another node sees it, which takes a moment."""
    with nexo.connect(node.url) as client:
        states = {each.name: each.state for each in client.cluster().nodes}
    return states.get("b", "unknown")
