"""Clients and nodes find nodes by names with certificates, and by IPv6 addresses."""

from __future__ import annotations

import contextlib
import json
import logging
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import nexo
from nexo.client.address import Untrusted
from nexo.cluster.placement import shard_of
from tests.cli.commands import BrokerProcess, Nexo
from tests.cluster.nodes import SHARDS, is_spread
from tests.cluster.test_redirects import NAMES, place, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

pytestmark = pytest.mark.timeout(180)  # nodes start


@pytest.fixture
def journal(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("cluster_addresses") as url:
        yield url


@contextlib.contextmanager
def started(
    folder: Path,
    journal: str,
    each: Mapping[str, tuple[str, ...]],
    environment: dict[str, str] | None = None,
) -> Iterator[dict[str, BrokerProcess]]:
    """Nodes by name, with the arguments of each."""
    Nexo(folder)("cluster", "create", "--journal", journal, "--shards", str(SHARDS))
    nodes: dict[str, BrokerProcess] = {}
    try:
        for name, arguments in each.items():
            (folder / name).mkdir()
            more = ("--journal", journal, "--node", name, *arguments)
            nodes[name] = BrokerProcess(folder / name, *more, environment=environment).start()
        yield nodes
    finally:
        for node in nodes.values():
            node.kill()


def queues_of(client: nexo.Client, count: int) -> dict[str, str]:
    """The name of a queue of each node, once each has the shards that it keeps: what is on its
    way from one to the next would be somewhere else a moment later."""
    ends = time.monotonic() + 30
    while True:
        figures = client.cluster()
        if is_spread(figures, "abc"[:count]):
            return {str(figures.shards[shard_of(name, SHARDS)].node): name for name in NAMES}
        assert time.monotonic() < ends, figures
        time.sleep(0.05)


def push_until(client: nexo.Client, name: str, url: str) -> None:
    """Until the client is at a node; nothing is lost or doubled on its way."""
    queue = client.create_queue(name)
    pushed: list[bytes] = []

    def push() -> None:
        pushed.append(b"%d" % len(pushed))
        queue.push(pushed[-1])

    until(lambda: place(client) == url, push)
    for _ in range(20):
        push()
    assert [message.body for message in queue.pop_batch(len(pushed) + 1)] == pushed


def test_redirects_over_tls(tmp_path: Path, journal: str, caplog: pytest.LogCaptureFixture) -> None:
    """The certificate of a node is checked by the name that the node advertises. If the client does
    not trust it, it stays where it is."""
    caplog.set_level(logging.INFO, "nexo.client")
    ours, theirs = trustme.CA(), trustme.CA()
    ca, both = tmp_path / "ca.pem", tmp_path / "both.pem"
    ours.cert_pem.write_to_path(ca)
    both.write_bytes(ours.cert_pem.bytes() + theirs.cert_pem.bytes())
    each = {}
    for name, issuer in (("a", ours), ("b", ours), ("c", theirs)):
        issued = issuer.issue_cert("localhost")
        certificate, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        issued.private_key_pem.write_to_path(key)
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        each[name] = (
            *("--advertise", "localhost"),
            *("--tls-cert", str(certificate), "--tls-key", str(key)),
        )
    with started(tmp_path, journal, each, {"NEXO_TLS_CA": str(both)}) as nodes:
        url = f"nexos://localhost:{nodes['a'].port}"
        with nexo.connect(url, tls_ca=str(ca)) as client:
            names = queues_of(client, 3)
            push_until(client, names["b"], f"nexo://localhost:{nodes['b'].port}")
            _look_over_http(nodes, names, both)
        with pytest.raises(Untrusted):  # it is valid for a name, not for this address
            nexo.connect(f"nexos://127.0.0.1:{nodes['b'].port}", tls_ca=str(ca)).__enter__()
        with nexo.connect(url, tls_ca=str(ca)) as client:
            queue = client.create_queue(names["c"])
            pushed = 0
            caplog.clear()

            def push() -> None:
                nonlocal pushed
                queue.push(b"x")
                pushed += 1

            until(lambda: "cannot be reached at localhost" in caplog.text, push)
            for _ in range(20):
                push()
            assert "certificate" in caplog.text
            assert place(client) == f"nexo://localhost:{nodes['a'].port}"
            assert queue.info().pushed == pushed


def _look_over_http(nodes: dict[str, BrokerProcess], names: dict[str, str], ca: Path) -> None:
    """A node passes a request on to another, over TLS too."""
    for name in (names["a"], names["b"]):
        with nexo.connect(f"nexos://localhost:{nodes['a'].port}", tls_ca=str(ca)) as client:
            client.create_queue(name)
        url = f"https://localhost:{nodes['a'].http_port}/api/v1/queues/{name}"
        context = ssl.create_default_context(cafile=str(ca))
        with urllib.request.urlopen(url, context=context) as answer:
            assert json.loads(answer.read())["name"] == name


def test_ipv6(tmp_path: Path, journal: str) -> None:
    each = dict.fromkeys("ab", ("--host", "::1"))
    with started(tmp_path, journal, each) as nodes:
        with nexo.connect(f"nexo://[::1]:{nodes['a'].port}") as client:
            names = queues_of(client, 2)
            assert [node.rpc for node in client.cluster().nodes] == [
                f"[::1]:{nodes[name].port}" for name in "ab"
            ]
            push_until(client, names["b"], f"nexo://[::1]:{nodes['b'].port}")
            client.create_queue(names["a"])
        for name in names.values():
            for node in nodes.values():
                url = f"http://[::1]:{node.http_port}/api/v1/queues/{name}"
                with urllib.request.urlopen(url) as answer:
                    told: Any = json.loads(answer.read())
                assert told["name"] == name
