"""A cluster and clients of several versions, as while everything is updated one after the other."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.client import requests
from nexo.cluster import tokens
from nexo.cluster.tokens import KNOWN, ClusterTokens
from nexo.vocabulary.errors import InvalidArgument, NotReady, VersionMismatch
from nexo.vocabulary.limits import CLUSTER_REDIRECT_FRAMES, CLUSTER_REDIRECT_WINDOW_S
from nexo.wire import calls, commands
from nexo.wire.frame import Kind
from tests.cli.commands import BrokerProcess, Nexo
from tests.client.eventually import eventually
from tests.cluster.nodes import SHARDS, is_spread
from tests.cluster.speaker import FOLLOWS, HELLO, Speaker
from tests.cluster.test_redirects import name_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.nodes import Nodes
    from tests.postgresql import PostgresqlServer

pytestmark = pytest.mark.timeout(180)  # nodes start


@pytest.mark.parametrize("fields", [3, 4, 5, 6], ids=lambda each: f"{each} fields")
def test_an_older_client(nodes: Nodes, fields: int) -> None:
    """It says less in its greeting. It is served at any node, and never told what it does not
    know."""
    name = name_at(nodes, "b", f"older{fields}")
    hello = (*HELLO, None, 10_000, "old client 0.1")[:fields]
    with Speaker(nodes["a"].url, hello) as client, nexo.connect(nodes["b"].url) as other:
        other.create_queue(name)
        welcome = client.until(lambda each: each.kind is Kind.WELCOME)
        # A client that knows three fields of it reads those and leaves the rest.
        told = msgspec.msgpack.decode(welcome.head)
        assert told[0] == commands.PROTOCOL_VERSION
        asked = requests.call(calls.DescribeQueue(name))
        ends, count = time.monotonic() + 1.5 * CLUSTER_REDIRECT_WINDOW_S, 0
        while time.monotonic() < ends or count < 2 * CLUSTER_REDIRECT_FRAMES:
            assert client.ask(asked).kind is Kind.OK
            count += 1
        known = {Kind.WELCOME, Kind.OK, Kind.HEARTBEAT}
        assert {each.kind for each in client.frames} <= known
        other.queue(name).delete()


def test_a_newer_client(nodes: Nodes) -> None:
    """It says more than this version knows, which is passed on to the owner all the same."""
    name = name_at(nodes, "b", "newer")
    hello = (*FOLLOWS, "something new", {"and": ["more"]})
    versions = (1, commands.PROTOCOL_VERSION + 5)
    with Speaker(nodes["a"].url, (hello[0], versions, *hello[2:])) as client:
        assert client.ask(requests.call(calls.CreateQueue(name))).kind is Kind.OK
        assert client.ask(requests.call(calls.DeleteQueue(name))).kind is Kind.OK


def test_a_client_of_another_protocol(nodes: Nodes) -> None:
    later = commands.PROTOCOL_VERSION + 1
    with Speaker(nodes["a"].url, (HELLO[0], (later, later), "x")) as client:
        goodbye = client.until(lambda each: each.kind is Kind.GOODBYE)
        told: commands.Refusal = commands.unpack(goodbye.head, commands.Refusal)
        assert told.code == VersionMismatch.code
        assert "upgrade the older of the two" in told.hint


# What a node of the version before does not know. It is run before anything else.
_OLDER = """
import nexo
nexo.__version__ = "0.1.9"
from nexo.cluster import post, questions
post.METHODS = post.METHODS - {"tokens_known"}
import msgspec
questions._decoder = msgspec.msgpack.Decoder(
    questions.AskQueues | questions.AskTopics | questions.AskNode | questions.AskConnections
)
"""


def test_an_older_node(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    """Everything works but what only the newer one knows, and nobody waits for that."""
    older = tmp_path / "older"
    older.mkdir()
    (older / "sitecustomize.py").write_text(_OLDER)
    path = os.pathsep.join([str(older), *filter(None, [os.environ.get("PYTHONPATH")])])
    nodes: list[BrokerProcess] = []
    with postgresql.database("cluster_versions") as url:
        Nexo(tmp_path)("cluster", "create", "--journal", url, "--shards", str(SHARDS))
        try:
            for name, environment in (("a", None), ("b", {"PYTHONPATH": path})):
                (tmp_path / name).mkdir()
                arguments = ("--journal", url, "--node", name)
                made = BrokerProcess(tmp_path / name, *arguments, environment=environment)
                nodes.append(made.start())
            _use(nodes)
        finally:
            for node in nodes:
                node.kill()


def _use(nodes: list[BrokerProcess]) -> None:
    for at, node in enumerate(nodes):
        with nexo.connect(node.url) as client:
            # A list that is asked for while a shard is on its way may lack what is in it.
            eventually(lambda client=client: is_spread(client.cluster(), "ab"), 30)  # type: ignore[misc]
            assert [each.version for each in client.cluster().nodes] == [nexo.__version__, "0.1.9"]
            for number in range(8):
                queue = client.create_queue(f"queue{number}.{at}")
                queue.push(b"x")
                message = queue.pop()
                assert message is not None
                message.ack()
            began = time.monotonic()
            token = client.create_token(f"t{at}", ["*:*"])
            assert token.token
            assert time.monotonic() - began < 5, "it waits for what the other does not know"
            client.revoke_token(f"t{at}")
            assert len(list(client.queues())) == 8 * (at + 1)
        for page in ("spark", "queues", "cluster", "queues/queue0.0"):
            url = f"http://127.0.0.1:{node.http_port}/console/{page}"
            with urllib.request.urlopen(url) as answer:
                assert b"</html>" in answer.read()


def test_whom_a_new_token_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows it, one that says so at the second time, one of an older version, and one
    whose lease ends."""
    monkeypatch.setattr(tokens, "_AGAIN_S", 0.001)
    asyncio.run(_waits())


async def _waits() -> None:
    asked: list[str] = []
    living = {name: SimpleNamespace(name=name, is_living=True) for name in "abcde"}

    async def call(node: Any, method: str, params: bytes) -> bytes:
        assert (method, msgspec.msgpack.decode(params)) == (KNOWN, 7)
        asked.append(node.name)
        if node.name == "c" and asked.count("c") == 1:
            raise NotReady("it is at version 6")
        if node.name == "d":
            raise InvalidArgument("there is no such call")
        if node.name == "e":
            if asked.count("e") == 5:
                living["e"] = SimpleNamespace(name="e", is_living=False)
            raise NotReady("it does not answer")
        return b""

    async def publish(work: Any) -> Any:
        return work(SimpleNamespace(publish_tokens=lambda data, expected: (7, data)))

    node: Any = SimpleNamespace(
        name="a",
        state=SimpleNamespace(nodes=living, living=lambda: list("abcde")),
        post=SimpleNamespace(call=call),
        owns=lambda shard: True,
    )
    hands: Any = SimpleNamespace(call=publish)
    spread = ClusterTokens(node, hands)
    spread.publish({})
    async with asyncio.timeout(5):
        await spread.spread()
    assert sorted(asked) == ["b", "c", "c", "d", "e", "e", "e", "e", "e"]
