"""PostgreSQL is away, and stays so: what nodes and brokers still tell, how soon, and with what
cause."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import nexo
from nexo.vocabulary.limits import CLUSTER_ROUTE_S
from tests.cli.commands import BrokerProcess, Nexo
from tests.cluster.nodes import Nodes, running
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = [f"queue{each}" for each in range(6)]
SOON_S = CLUSTER_ROUTE_S - 3  # who waits for PostgreSQL waits for longer


class Away:
    """Two nodes, and a broker that is alone with another database of the same server."""

    def __init__(self, nodes: Nodes, alone: BrokerProcess) -> None:
        self.nodes, self.alone = nodes, alone

    @property
    def all(self) -> list[BrokerProcess]:
        return [*self.nodes.processes.values(), self.alone]


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    folder = tmp_path_factory.mktemp("away")
    with (
        postgresql_server() as server,
        server.database("nodes") as of_nodes,
        server.database("alone") as of_one,
        running(folder, of_nodes, "a", "b") as nodes,
    ):
        alone = BrokerProcess(folder, "--journal", of_one, log=folder / "log").start()
        try:
            for made in (nodes["a"], alone):
                with nexo.connect(made.url) as client:
                    for name in QUEUES:
                        client.create_queue(name).push(b"before")
            server.kill()
            found = Away(nodes, alone)
            _wait_until_noticed(found)
            yield found
        finally:
            alone.kill()
            server.start()  # for the databases to be dropped


def _wait_until_noticed(away: Away) -> None:
    until = time.monotonic() + 20
    while not all(_has_noticed(made) for made in away.all):
        assert time.monotonic() < until, "nobody noticed"
        time.sleep(0.1)


def _has_noticed(made: BrokerProcess) -> bool:
    status, told = _json(made, "/health")
    return status == 503 and told.get("lease_seconds", 0) == 0


def _get(made: BrokerProcess, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{made.http_port}{path}") as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _json(made: BrokerProcess, path: str) -> tuple[int, Any]:
    status, body = _get(made, path)
    return status, json.loads(body)


def test_metrics_tell_what_is_known(away: Away) -> None:
    depths: list[str] = []
    for made in away.all:
        status, body = _get(made, "/metrics")
        assert status == 200, body
        families = {each.name: each for each in text_string_to_metric_families(body.decode())}
        assert "nexo_stored_bytes" not in families, "nobody can know it"
        depths += [each.labels["queue"] for each in families["nexo_queue_depth"].samples]
        if made is not away.alone:
            assert families["nexo_node_up"].samples[0].value == 0
            assert families["nexo_node_lease_seconds"].samples[0].value == 0
    assert sorted(depths) == sorted(2 * QUEUES)


def test_health_names_postgresql(away: Away) -> None:
    for made in away.all:
        status, told = _json(made, "/health")
        assert status == 503
        assert "PostgreSQL" in told["reason"]
        assert "disk" not in told["reason"]


def test_the_overview_is_told_without_the_size_of_the_journal(away: Away) -> None:
    status, told = _json(away.alone, "/api/v1/overview")
    assert status == 200, told
    assert told["queues"] == len(QUEUES)
    assert told["disk"]["stored_bytes"] is None


# -- The command line -------------------------------------------------------------------------


def test_the_status_of_the_cluster_is_told_at_once(away: Away, tmp_path: Path) -> None:
    run = Nexo(tmp_path, away.nodes["b"].url)
    began = time.monotonic()
    told = run("cluster", "status")
    assert "Node b has had no answer from PostgreSQL for " in told.out.replace("\n", " ")
    figures = run("cluster", "status", "--json").json()
    assert time.monotonic() - began < SOON_S
    assert figures["told_by"] == "b"
    assert figures["postgresql_away_s"] > 4
    assert {node["name"] for node in figures["nodes"]} == {"a", "b"}
    assert {shard["node"] for shard in figures["shards"]} == {"a", "b"}
    status, same = _json(away.nodes["b"], "/api/v1/cluster")
    assert (status, same["told_by"]) == (200, "b")


@pytest.mark.parametrize("command", ["consumers", "token list", "audit", "export"])
def test_what_only_looks_fails_soon_and_names_the_cause(
    away: Away, tmp_path: Path, command: str
) -> None:
    began = time.monotonic()
    told = Nexo(tmp_path, away.nodes["a"].url)(*command.split(), status=3)
    assert time.monotonic() - began < SOON_S
    assert "node 'a' has had no answer from PostgreSQL for " in told.err, told.err


def test_queues_are_listed_from_memory(away: Away, tmp_path: Path) -> None:
    for made in away.all:
        found = Nexo(tmp_path, made.url)("queue", "list", "--json").json()
        assert [each["name"] for each in found] == QUEUES


def test_a_call_whose_time_is_over_names_the_cause(away: Away) -> None:
    """It is tried until then: PostgreSQL may come back."""
    failed: list[tuple[float, nexo.NexoError]] = []

    def push(url: str, queue: str) -> None:
        began = time.monotonic()
        client = nexo.Client(url, timeout=CLUSTER_ROUTE_S + 6)  # so that it hears of the cause
        with client, pytest.raises(nexo.NexoError) as raised:
            client.queue(queue).push(b"during")
        failed.append((time.monotonic() - began, raised.value))

    calls = [(away.nodes["a"].url, name) for name in QUEUES[:3]] + [(away.alone.url, QUEUES[0])]
    threads = [threading.Thread(target=push, args=each) for each in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(failed) == len(calls)
    for took_s, error in failed:
        assert took_s > CLUSTER_ROUTE_S
        assert isinstance(error, nexo.Timeout | nexo.Unreachable)
        assert "PostgreSQL" in error.message, error
        assert "timeout" not in error.hint
