"""A broker that was alone comes into a cluster with everything it holds, or not at all."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.cluster import moving_in
from nexo.cluster.placement import shard_of
from nexo.engine.transplant import Transplant
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.names import is_events
from tests.cli.commands import BrokerProcess, Nexo
from tests.cluster.nodes import SHARDS, Nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

HOUR_S = 3600.0


def fill(client: nexo.Client) -> None:
    """Something of everything that a broker keeps."""
    orders = client.create_queue("orders", archive=True, max_attempts=3, visibility_timeout=HOUR_S)
    for priority in (0, 5, 2):
        orders.push_batch([f"{priority}/{n}" for n in range(40)], priority=priority)
    orders.push("coloured", attributes={"colour": "red"})
    orders.push_batch([f"later {n}" for n in range(5)], delay=HOUR_S)
    for message in orders.pop_batch(10):
        message.ack()
    for _ in range(3):  # in the end it is a dead letter
        failing = orders.pop()
        assert failing is not None
        failing.nack(delay=0, reason="no stock")
    once = orders.pop()
    assert once is not None
    once.nack(delay=HOUR_S, reason="busy")
    orders.pop_batch(7)  # these stay in flight
    fifo = client.create_queue("jobs.fifo", fifo=True, deduplication="id")
    for n in range(30):
        fifo.push(f"{n}", group_id=f"g{n % 3}", deduplication_id=f"once-{n}")
    for n in range(12):
        client.create_queue(f"queue{n}").push_batch([f"{n}.{m}" for m in range(n * 20)])
    client.create_queue("queue3.paused").push(b"\x00\xff")
    client.queue("queue3.paused").pause()
    news = client.create_topic("news")
    news.bind(queue="news.billing", where={"kind": "bill"})
    prices = client.create_topic("prices.eu", retention_messages=400)
    for n in range(20):
        news.publish(f"{n}", attributes={"kind": "bill" if n % 2 else "other"})
        prices.publish_batch([f"{n}/{m}" for m in range(30)])
    got = client.queue("news.billing").pop()
    assert got is not None
    got.ack()


def photo(client: nexo.Client) -> dict[str, Any]:
    """All that can be seen of it."""
    seen: dict[str, Any] = {}
    for info in client.queues():
        figures = msgspec.structs.asdict(info)
        for changing in ("oldest_age", "consumers"):
            del figures[changing]
        messages = [each._seen for each in client.queue(info.name).peek(1_000)]
        assert len(messages) == info.depth
        seen[f"queue {info.name}"] = figures, messages
    for topic in client.topics():
        if not is_events(topic.name):
            events = client.topic(topic.name).read(topic.start, limit=10_000)
            told = [(each.offset, each.body, each.published_at, each.attributes) for each in events]
            assert len(told) == topic.messages
            seen[f"topic {topic.name}"] = msgspec.structs.asdict(topic), told
    return seen


def move_in(url: str, folder: Path) -> moving_in.MovedIn:
    return moving_in.move_in(url, folder / "data", lambda done, total: None)


@contextlib.contextmanager
def cluster(folder: Path, url: str) -> Iterator[Nodes]:
    made = Nodes(folder, url)
    try:
        yield made
    finally:
        made.end()


def test_everything_comes_along(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    run = Nexo(tmp_path)
    run("token", "create", "web", "--allow", "orders*:*", "--data", tmp_path / "data")
    broker = BrokerProcess(tmp_path).start()
    try:
        with nexo.connect(broker.url) as client:
            fill(client)
        broker.stop(signal.SIGTERM)  # so far there are snapshots, from here on records
        broker.start()
        with nexo.connect(broker.url) as client, postgresql.database("moving_in") as url:
            client.queue("orders").push_batch(["more", "and more"], priority=5)
            client.queue("queue4").pop_batch(5, visibility_timeout=HOUR_S)
            client.queue("queue5").pop_batch(100, visibility_timeout=HOUR_S)[3].ack()
            client.queue("queue6").push("last")  # on disk with all that was delivered before it
            before = photo(client)
            with cluster(tmp_path, url) as nodes:
                with pytest.raises(NotReady, match="in use by process"):
                    move_in(url, tmp_path)
                broker.kill()
                arguments = ("cluster", "import", tmp_path / "data", "--journal", url)
                figures = run(*arguments, "--json").json()
                assert (figures["topics"], figures["tokens"]) == (3, 1)
                with pytest.raises(InvalidArgument, match="the cluster has these already"):
                    move_in(url, tmp_path)
                nodes.start("a")
                epoch = nodes.status().shards[shard_of("orders", SHARDS)].epoch
                assert epoch > 4  # the directory was opened so often: no lease has two meanings
                with pytest.raises(NotReady, match="node 'a' of the cluster is running"):
                    move_in(url, tmp_path)
                with nexo.connect(nodes["a"].url) as moved:
                    after = photo(moved)
                    assert after.keys() == before.keys()
                    for name, was in before.items():
                        assert after[name] == was, name
                    go_on(moved)
                    assert [each.name for each in moved.tokens()] == ["web"]
    finally:
        broker.kill()


def go_on(client: nexo.Client) -> None:
    """What was brought is not only seen: it works on."""
    fifo = client.queue("jobs.fifo")
    known = {each.body: each.id for each in fifo.peek(100)}
    assert fifo.push("7", group_id="g1", deduplication_id="once-7") == known[b"7"]
    assert fifo.info().depth == 30
    order: dict[str | None, list[int]] = {}
    while sum(map(len, order.values())) < 30:
        for message in fifo.pop_batch(10, wait=5):
            order.setdefault(message.group_id, []).append(int(message.body))
            message.ack()
    assert order == {f"g{n}": list(range(n, 30, 3)) for n in range(3)}
    letters = client.queue("orders_dlq")
    assert letters.redrive() == 1
    orders = client.queue("orders")
    before = orders.info().pushed
    new = orders.push("new", priority=9)
    popped = orders.pop()
    assert popped is not None
    assert popped.id == new
    popped.ack()
    assert orders.info().pushed == before + 1
    assert [each.text for each in client.topic("nexo.archive.orders").read(0, limit=2)] == [
        "0/0",
        "0/1",
    ]
    assert client.topic("news").publish("x", attributes={"kind": "bill"}) == 20
    assert client.queue("news.billing").info().depth == 10


def test_a_try_that_fails_leaves_nothing(
    tmp_path: Path, postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerProcess(tmp_path).start()
    with nexo.connect(broker.url) as client:
        for n in range(8):
            client.create_queue(f"queue{n}").push_batch([f"{n}.{m}" for m in range(50)])
    broker.stop()
    with postgresql.database("moving_in_fails") as url, cluster(tmp_path, url) as nodes:
        commit, calls = Transplant.commit, []

        def fail(self: Transplant) -> Any:
            calls.append(self)
            if len(calls) == 3:
                raise NotReady("the power is gone")
            return commit(self)

        monkeypatch.setattr(Transplant, "commit", fail)
        with pytest.raises(NexoError, match="power"):
            move_in(url, tmp_path)
        monkeypatch.undo()
        moved = move_in(url, tmp_path)
        assert (moved.queues, moved.messages) == (8, 400)
        nodes.start("a")
        with nexo.connect(nodes["a"].url) as client:
            for n in range(8):
                seen = client.queue(f"queue{n}").peek(100)
                assert [each.text for each in seen] == [f"{n}.{m}" for m in range(50)]
            rows = stored_rows(url)
            for n in range(8):
                client.queue(f"queue{n}").purge()
        assert rows == 8  # nothing of the first try is left


def stored_rows(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM nexo.payload JOIN nexo.shard ON id = shard WHERE count = 50"
        ).fetchone()
    assert found is not None
    return int(found[0])


def test_what_is_tied_together_stays_so_over_shards(
    tmp_path: Path, postgresql: PostgresqlServer
) -> None:
    others = [f"queue{n}" for n in range(20)]
    other = next(name for name in others if shard_of(name, SHARDS) != shard_of("news", SHARDS))
    broker = BrokerProcess(tmp_path).start()
    with nexo.connect(broker.url) as client:
        for topic in ("news", "news.eu"):
            client.create_topic(topic).bind(queue=other, where={"kind": "bill"})
        client.queue(other).push("before")
        client.create_queue("news.failing", max_attempts=1, dead_letter=other).push("broken")
    broker.stop()
    with postgresql.database("moving_in_tied") as url, cluster(tmp_path, url) as nodes:
        with pytest.raises(InvalidArgument, match="no broker's data"):
            move_in(url, tmp_path / "nowhere")
        assert not (tmp_path / "nowhere").exists()
        move_in(url, tmp_path)
        nodes.start("a")
        with nexo.connect(nodes["a"].url) as client:
            assert client.topic("news").info().bound_queues == [other]
            for topic in ("news", "news.eu"):
                for kind in ("bill", "other"):
                    client.topic(topic).publish(f"{topic} {kind}", attributes={"kind": kind})
            failing = client.queue("news.failing").pop()
            assert failing is not None
            failing.nack(reason="broken")
            wanted = {"before", "news bill", "news.eu bill", "broken"}
            got: set[str] = set()
            while got != wanted:
                message = client.queue(other).pop(wait=10)
                assert message is not None, got
                got.add(message.text)
                message.ack()
            client.topic("news").unbind(queue=other)
            assert client.topic("news").info().bound_queues == []
