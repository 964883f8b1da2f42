"""Tokens of a cluster: made at one node, they hold at all; revoked, they hold nowhere."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest

import nexo
from nexo.cluster.placement import shard_of
from nexo.vocabulary.errors import Forbidden, Unauthorized
from tests.cli.commands import BrokerProcess, Nexo
from tests.client.eventually import eventually
from tests.cluster.network import Network
from tests.cluster.nodes import SHARDS, is_spread

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
            nexo.connect(nodes[1].url, timeout=20).__enter__()
        with nexo.connect(nodes[1].url, token=made["token"]) as admin:
            eventually(lambda: is_spread(admin.cluster(), "ab"), 30)
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
                nexo.connect(node.url, token=watch.token) as client,
                client.topic("*.told").subscribe(start="earliest") as told,
            ):
                found = [told.get(timeout=20), told.get(timeout=0.5)]
                assert [each and each.topic for each in found] == ["queue3.told", None]
            with nexo.connect(node.url, token=shop.token) as client:
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
        for node in nodes:
            with pytest.raises(Unauthorized):
                nexo.connect(node.url, token=shop.token, timeout=20).__enter__()
        _see_events(nodes[1].url, watch.token)
    finally:
        for node in nodes:
            node.kill()


def _see_events(url: str, token: str | None) -> None:
    with (
        nexo.connect(url, token=token) as client,
        client.topic("nexo.events").subscribe(start="earliest") as events,
    ):
        first = events.get(timeout=20)
        assert first is not None
        assert first.topic.startswith("nexo.events.")


def ask(node: BrokerProcess, path: str, token: str | None, timeout: float = 30) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}")
    if token is not None:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _check_lists(node: BrokerProcess, admin: str, few: str | None, queues: list[str]) -> None:
    """A token of few rights sees only what it may, of all nodes."""

    status, told = ask(node, "/api/v1/queues", few)
    assert status == 200
    assert [each["name"] for each in json.loads(told)["queues"]] == queues
    with nexo.connect(node.url, token=admin) as client:
        client.create_queue("secret")
    assert "secret" in ask(node, "/api/v1/queues", admin)[1]
    assert "secret" not in ask(node, "/api/v1/queues", few)[1]
    assert "secret" not in ask(node, "/console/queues", few)[1]
    assert ask(node, "/console/queues/secret", few)[0] == 403
    for path in ("overview", "connections", "definitions", "cluster", "audit", "tokens"):
        assert ask(node, f"/api/v1/{path}", few)[0] == 403, path
        assert ask(node, f"/api/v1/{path}", admin)[0] == 200, path
        assert ask(node, f"/api/v1/{path}", None)[0] == 401, path
    entries = json.loads(ask(node, "/api/v1/audit?limit=1000", admin)[1])["entries"]
    assert {"create_queue", "create_token"} <= {each["action"] for each in entries}


@pytest.mark.timeout(180)
def test_at_once(journal: str, tmp_path: Path) -> None:
    """Whichever node is asked: a token that was made opens all of them, one that was revoked none,
    without a moment between. A node that does not answer is waited for as long as it has a lease;
    what it knew before is worth nothing when it wakes up."""
    with _guarded(journal, tmp_path) as (nodes, admin_token):
        admins = [nexo.connect(node.url, token=admin_token) for node in nodes]
        for turn in range(12):
            made, there = admins[turn % 3], nodes[(turn + 1) % 3]
            token = made.create_token(f"t{turn}", ["*:*"]).token
            for node in nodes:
                with nexo.connect(node.url, token=token) as client:
                    client.create_queue("q")
            with nexo.connect(there.url, token=token, timeout=20) as client:
                client.queue("q").push(b"x")
                admins[(turn + 2) % 3].revoke_token(f"t{turn}")
                with pytest.raises(Unauthorized):
                    client.queue("q").push(b"y")
            if turn < 3:  # after ten failures an address is told another error
                for node in nodes:
                    with pytest.raises(Unauthorized):
                        nexo.connect(node.url, token=token, timeout=20).__enter__()

        token = admins[0].create_token("last", ["*:*"]).token
        owner = next(at for at in (0, 1, 2) if _has_tokens(nodes[at], admin_token))
        asleep, awake = nodes[(owner + 1) % 3], nodes[(owner + 2) % 3]
        assert asleep.process is not None
        asleep.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            with nexo.connect(awake.url, token=admin_token) as admin:
                admin.revoke_token("last")
            assert time.monotonic() - began > 1, "nobody waited for the node that sleeps"
        finally:
            asleep.process.send_signal(signal.SIGCONT)
        status, _ = ask(asleep, "/api/v1/queues", token)
        assert status == 401
        with pytest.raises(Unauthorized), nexo.connect(asleep.url, token=token) as client:
            client.queue("q").push(b"x")
        for admin in admins:
            admin.close()


@pytest.mark.timeout(180)
def test_a_node_that_is_cut_off_tells_nothing(journal: str, tmp_path: Path) -> None:
    """It cannot know who was shut out, so it shows nobody what it and others have."""
    network = Network()
    port = urlsplit(journal).port
    assert port is not None
    link = network.link(("127.0.0.1", 0), ("127.0.0.1", port))
    linked = journal.replace(f":{port}/", f":{link.port}/")
    try:
        with _guarded(journal, tmp_path, last=linked) as (nodes, admin_token):
            with nexo.connect(nodes[0].url, token=admin_token) as admin:
                token = admin.create_token("gone", ["*:*"]).token
                cut_off = nodes[2]
                with nexo.connect(cut_off.url, token=token) as client:
                    client.create_queue("q")
                    assert ask(cut_off, "/api/v1/connections", token)[0] == 200
                    link.cut(is_silent=True)
                    admin.revoke_token("gone")
                    for path in ("connections", "overview"):
                        with pytest.raises(TimeoutError):
                            ask(cut_off, f"/api/v1/{path}", token, timeout=2)
                    with pytest.raises(TimeoutError):
                        ask(cut_off, "/console/queues", token, timeout=2)
                with (
                    pytest.raises(nexo.NexoError),
                    nexo.connect(cut_off.url, token=token, timeout=2) as client,
                ):
                    client.connections()
                link.mend()
            _until_401(cut_off, token)
    finally:
        network.close()


@pytest.mark.timeout(180)
def test_a_letter_goes_back_only_to_where_one_may_push(journal: str, tmp_path: Path) -> None:
    """Its source is in another shard; which it is, only the letter says."""
    here = "orders"
    names = [f"letters{number}" for number in range(30)]
    there = next(each for each in names if shard_of(each, SHARDS) != shard_of(here, SHARDS))
    with _guarded(journal, tmp_path) as (nodes, admin_token):
        with nexo.connect(nodes[0].url, token=admin_token) as admin:
            may = admin.create_token("may", [f"{there}:manage,peek", f"{here}:push"]).token
            may_not = admin.create_token("may-not", [f"{there}:manage,peek,push"]).token
            queue = admin.create_queue(here, max_attempts=1, dead_letter=there)
            admin.create_queue(there)
            queue.push(b"x")
            message = queue.pop()
            assert message is not None
            message.nack(reason="broken")
            letters: list[Any] = []
            until = time.monotonic() + 20
            while not letters:
                assert time.monotonic() < until
                letters = admin.queue(there).peek()
        with nexo.connect(nodes[1].url, token=may_not) as client:
            with pytest.raises(Forbidden, match=here):
                client.queue(there).resend(letters[0].id, body=b"y")
            assert len(client.queue(there).peek()) == 1
        with nexo.connect(nodes[2].url, token=may) as client:
            client.queue(there).resend(letters[0].id, body=b"y")
            assert client.queue(there).peek() == []
        with nexo.connect(nodes[0].url, token=admin_token) as admin:
            found = admin.queue(here).pop(wait=10)
            assert found is not None
            assert found.body == b"y"


class Datagrams:
    """Each with its answer."""

    def __init__(self, node: BrokerProcess) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(10)
        self._socket.connect(("127.0.0.1", node.udp_port))

    def __enter__(self) -> Datagrams:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()

    def __call__(self, **fields: Any) -> Any:
        self._socket.send(json.dumps(fields).encode())
        return json.loads(self._socket.recv(65536))


@pytest.mark.timeout(180)
def test_datagrams_show_their_token(journal: str, tmp_path: Path) -> None:
    """At any node, for a topic of any: the token goes along to the owner."""
    with _guarded(journal, tmp_path) as (nodes, admin_token):
        with nexo.connect(nodes[0].url, token=admin_token) as admin:
            token = admin.create_token("sensor", ["t*:push,pop,peek,manage"]).token
            few = admin.create_token("few", ["t*:peek"]).token
            topics = [f"t{number}" for number in range(6)]  # of all nodes, as good as certainly
            owners = admin.cluster().shards
            assert len({owners[shard_of(topic, SHARDS)].node for topic in topics}) > 1
        for node in nodes:
            with Datagrams(node) as say:
                for topic in topics:
                    publish: Any = {"action": "publish", "topic": topic, "payload": node.udp_port}
                    for wrong in ({}, {"token": "nexo_wrong_token"}, {"token": few}):
                        assert "Non autorizzato" in say(**publish, **wrong)["error"]
                    assert say(**publish, token=token)["status"] == "success"
                    assert say(action="subscribe", topic=topic, token=few)["status"] == "success"
                    got = say(action="get", topic=topic, token=few)["messages"]
                    assert node.udp_port in [each["payload"] for each in got]
                    group: Any = {"topic": topic, "group": "g", "token": token}
                    assert say(action="subscribe", **group)["status"] == "success"
                    taken = say(action="get", **group)["messages"]
                    ids = [each["id"] for each in taken]
                    assert say(action="ack", **group, ids=ids)["status"] == "success"
                    group["token"] = few
                    assert "Non autorizzato" in say(action="get", **group)["error"]
        with nexo.connect(nodes[0].url, token=admin_token) as admin:
            admin.revoke_token("sensor")
            for topic in topics:
                events = admin.topic(topic).read()
                assert [event.json() for event in events] == [node.udp_port for node in nodes]
        for node in nodes:
            with Datagrams(node) as say:
                for topic in topics:
                    told = say(action="publish", topic=topic, payload=1, token=token)
                    assert "Non autorizzato" in told["error"]


def _until_401(node: BrokerProcess, token: str | None) -> None:
    """Once it has a lease again it knows."""
    until = time.monotonic() + 20
    while (status := ask(node, "/api/v1/connections", token)[0]) != 401:
        assert status == 503
        assert time.monotonic() < until


def _has_tokens(node: BrokerProcess, token: str) -> bool:
    """Whether it is the owner of the shard that they are in."""
    with nexo.connect(node.url, token=token) as client:
        owner = client.cluster().shards[0].node
    status, health = ask(node, "/health", None)
    assert status == 200
    return bool(json.loads(health)["node"] == owner)


@contextlib.contextmanager
def _guarded(
    journal: str, folder: Path, last: str | None = None
) -> Iterator[tuple[list[BrokerProcess], str]]:
    """Three nodes that ask for tokens, and one of an admin. `last` is the journal as the last of
    them reaches it."""
    run = Nexo(folder)
    run("cluster", "create", "--journal", journal, "--shards", str(SHARDS))
    made = run("token", "create", "admin", "--allow", "*:*", "--data", journal, "--json").json()
    nodes = []
    for name in "abc":
        (folder / name).mkdir()
        url = last if last is not None and name == "c" else journal
        arguments = ("--journal", url, "--node", name, "--access", "required")
        nodes.append(BrokerProcess(folder / name, *arguments))
    try:
        for node in nodes:
            node.start()
        with nexo.connect(nodes[0].url, token=made["token"]) as admin:
            eventually(lambda: is_spread(admin.cluster(), "abc"), 30)
        yield nodes, made["token"]
    finally:
        for node in nodes:
            node.kill()
