"""Tokens of a cluster: made at one node, they hold at all; revoked, they hold nowhere."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import boto3
import pytest

import nexo
from nexo.vocabulary.errors import Forbidden, RateLimited, Unauthorized
from tests.cli.commands import BrokerProcess, Nexo
from tests.cluster.nodes import SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.postgresql import PostgresqlServer


@pytest.fixture
def journal(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("cluster_access") as url:
        yield url


@pytest.mark.timeout(180)  # two nodes start, and each loads its console
def test_tokens(journal: str, tmp_path: Path) -> None:
    run = Nexo(tmp_path)
    run("cluster", "create", "--journal", journal, "--shards", str(SHARDS))
    made = run("token", "create", "admin", "--allow", "*:*", "--data", journal, "--json").json()
    nodes = []
    for name in "ab":
        (tmp_path / name).mkdir()
        arguments = ("--journal", journal, "--node", name, "--access", "required")
        nodes.append(BrokerProcess(tmp_path / name, *arguments))
    try:
        for node in nodes:
            node.start()
        refused = run("token", "create", "x", "--allow", "*:*", "--data", journal, status=1)
        assert "is running" in refused.err
        with pytest.raises(Unauthorized):
            nexo.connect(nodes[1].url, timeout=5).__enter__()
        with nexo.connect(nodes[1].url, token=made["token"]) as admin:
            queues = [f"queue{each}" for each in range(8)]  # of both nodes, as good as certainly
            for queue in queues:
                admin.create_queue(queue)
            shop = admin.create_token("shop", ["queue*:push"])
            keys = admin.create_token("keys", ["queue*:push,pop"], aws=True)
            assert [each.name for each in admin.queues()] == queues
            for each in queues:
                admin.create_topic(f"{each}.told").publish(each)
            watch = admin.create_token("watch", ["nexo.events:peek", "queue3.*:peek"])
        for node in nodes:
            with (
                _once_known(node.url, watch.token) as client,
                client.topic("*.told").subscribe(start="earliest") as told,
            ):
                found = [told.get(timeout=5), told.get(timeout=0.5)]
                assert [each and each.topic for each in found] == ["queue3.told", None]
            with _once_known(node.url, shop.token) as client:
                for queue in queues:
                    client.queue(queue).push(b"x")
                    with pytest.raises(Forbidden):
                        client.queue(queue).pop()
            sqs = boto3.client(
                "sqs",
                endpoint_url=f"http://127.0.0.1:{node.http_port}",
                region_name="us-east-1",
                aws_access_key_id=keys.access_key_id,
                aws_secret_access_key=keys.secret_access_key,
            )
            urls = sqs.list_queues()["QueueUrls"]
            assert [url.rpartition("/")[2] for url in urls] == queues
            for url in urls:
                assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "x"
        for node in nodes:
            _check_lists(node, made["token"], shop.token, queues)
        with nexo.connect(nodes[0].url, token=made["token"]) as admin:
            admin.revoke_token("shop")
        until = time.monotonic() + 10
        for node in nodes:
            while True:
                try:
                    with nexo.connect(node.url, token=shop.token, timeout=5) as client:
                        client.queue("queue0").info()
                except (Unauthorized, RateLimited):  # the latter after ten wrong tokens a minute
                    break
                assert time.monotonic() < until, "the token still opens a node"
                time.sleep(0.05)
        _see_events(nodes[1].url, watch.token)
    finally:
        for node in nodes:
            node.kill()


def _see_events(url: str, token: str | None) -> None:
    with (
        nexo.connect(url, token=token) as client,
        client.topic("nexo.events").subscribe(start="earliest") as events,
    ):
        first = events.get(timeout=5)
        assert first is not None
        assert first.topic.startswith("nexo.events.")


def _check_lists(node: BrokerProcess, admin: str, few: str | None, queues: list[str]) -> None:
    """A token of few rights sees only what it may, of all nodes."""

    def ask(path: str, token: str | None) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}")
        if token is not None:
            request.add_header("authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    status, told = ask("/api/v1/queues", few)
    assert status == 200
    assert [each["name"] for each in json.loads(told)["queues"]] == queues
    with nexo.connect(node.url, token=admin) as client:
        client.create_queue("secret")
    assert "secret" in ask("/api/v1/queues", admin)[1]
    assert "secret" not in ask("/api/v1/queues", few)[1]
    assert "secret" not in ask("/console/queues", few)[1]
    assert ask("/console/queues/secret", few)[0] == 403
    for path in ("overview", "connections", "definitions", "cluster", "audit", "tokens"):
        assert ask(f"/api/v1/{path}", few)[0] == 403, path
        assert ask(f"/api/v1/{path}", admin)[0] == 200, path
        assert ask(f"/api/v1/{path}", None)[0] == 401, path
    entries = json.loads(ask("/api/v1/audit?limit=1000", admin)[1])["entries"]
    assert {"create_queue", "create_token"} <= {each["action"] for each in entries}


def _once_known(url: str, token: str | None) -> nexo.Client:
    """The other nodes know of a token a moment later."""
    until = time.monotonic() + 10
    while True:
        try:
            return nexo.connect(url, token=token, timeout=10)
        except (Unauthorized, RateLimited):
            assert time.monotonic() < until
            time.sleep(0.05)
