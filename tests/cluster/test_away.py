"""PostgreSQL is away, and stays so: what nodes and brokers still tell, how soon, and with what
cause."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import nexo
from tests.cli.commands import BrokerProcess
from tests.cluster.nodes import Nodes, running
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = [f"queue{each}" for each in range(6)]


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
            made = Away(nodes, alone)
            _wait_until_noticed(made)
            yield made
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


def test_the_overview_is_told_without_the_size_of_the_journal(away: Away) -> None:
    status, told = _json(away.alone, "/api/v1/overview")
    assert status == 200, told
    assert told["queues"] == len(QUEUES)
    assert told["disk"]["stored_bytes"] is None
