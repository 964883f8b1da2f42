"""Clients go to the node that has what they use, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import nexo
from nexo.client import requests
from nexo.vocabulary.errors import QueueNotFound, StaleReceipt
from nexo.vocabulary.limits import CLUSTER_REDIRECT_FRAMES, CLUSTER_REDIRECT_WINDOW_S
from nexo.wire import calls, commands
from nexo.wire.frame import Kind
from tests.cluster.speaker import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.wire.frame import Frame
    from tests.cluster.nodes import Nodes


NAMES = [f"queue{each}" for each in range(24)]
PATIENCE_S = 20.0


def name_at(nodes: Nodes, node: str, suffix: str) -> str:
    """Of a queue that this node has."""
    return next(f"{each}.{suffix}" for each in NAMES if nodes.owner_of(each) == node)


def place(client: Any) -> str:
    """Where a client is connected."""
    return f"nexo://{client._connection._address}"


def until(is_so: Callable[[], bool], step: Callable[[], Any] = lambda: time.sleep(0.01)) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < ends, "it did not come to pass"
        step()


def test_a_blocking_client_goes_to_the_owner(nodes: Nodes) -> None:
    name = name_at(nodes, "b", "blocking")
    with nexo.connect(nodes["a"].url) as client:
        queue = client.create_queue(name)
        pushed: list[bytes] = []

        def push() -> None:
            pushed.append(b"%d" % len(pushed))
            queue.push(pushed[-1])

        until(lambda: place(client) == nodes["b"].url, push)
        for _ in range(50):
            push()
        assert client._connection._address.others == (("127.0.0.1", nodes["a"].port),)
        found = [message.body for message in queue.pop_batch(len(pushed) + 10)]
        assert found == pushed
        queue.delete()


def test_threads_push_and_consume_while_the_client_moves(nodes: Nodes) -> None:
    """With a subscription, pops that wait, and messages that are worked on for a while."""
    name = name_at(nodes, "b", "threads")
    other = name_at(nodes, "b", "popped")
    with nexo.connect(nodes["a"].url) as client:
        queue = client.create_queue(name, visibility_timeout=60.0)
        popped = client.create_queue(other, visibility_timeout=60.0)
        stop = threading.Event()
        pushed: dict[str, list[bytes]] = {name: [], other: []}
        got: dict[str, list[tuple[bytes, int]]] = {name: [], other: []}
        wrong: list[str] = []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except nexo.NexoError as error:
                    wrong.append(repr(error))

            return run

        def produce() -> None:
            while not stop.is_set():
                for each in (queue, popped):
                    body = b"%d" % len(pushed[each.name])
                    each.push(body)
                    pushed[each.name].append(body)

        def consume() -> None:
            with queue.subscribe(prefetch=20) as subscription:
                for message in subscription:
                    if message.body == b"last":
                        message.ack()
                        return
                    got[name].append((message.body, message.attempts))
                    time.sleep(0.002)
                    message.ack()

        def pop() -> None:
            while True:
                message = popped.pop(wait=5.0)
                if message is None:
                    continue
                if message.body != b"last":
                    got[other].append((message.body, message.attempts))
                message.ack()
                if message.body == b"last":
                    return

        threads = [threading.Thread(target=guarded(each)) for each in (produce, consume, pop)]
        for thread in threads:
            thread.start()
        until(lambda: place(client) == nodes["b"].url or bool(wrong))
        time.sleep(0.5)
        stop.set()
        threads[0].join(PATIENCE_S)
        queue.push(b"last")
        popped.push(b"last")
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert wrong == []
        for each in (name, other):
            assert got[each] == [(body, 1) for body in pushed[each]], each
        queue.delete()
        popped.delete()


def test_what_is_worked_on_stays_with_its_consumer(nodes: Nodes) -> None:
    """It is acked at the other node, and nobody gets it meanwhile."""
    name = name_at(nodes, "b", "worked")
    with nexo.connect(nodes["a"].url) as client, nexo.connect(nodes["b"].url) as other:
        queue = client.create_queue(name, visibility_timeout=60.0)
        queue.push_batch([b"%d" % each for each in range(10)])
        with queue.subscribe(prefetch=3) as subscription:
            messages = iter(subscription)
            held = [next(messages) for _ in range(2)]
            until(lambda: place(client) == nodes["b"].url, client.queue(name).info)
            assert other.queue(name).info().in_flight == 3
            for message in held:
                message.ack()
            rest = []
            for message in messages:
                rest.append((message.body, message.attempts))
                message.ack()
                if len(rest) == 8:
                    break
        assert rest == [(b"%d" % each, 1) for each in range(2, 10)]
        queue.delete()


def test_an_asyncio_client_goes_to_the_owner(nodes: Nodes) -> None:
    asyncio.run(_asyncio_client(nodes))


async def _asyncio_client(nodes: Nodes) -> None:
    name = name_at(nodes, "b", "asyncio")
    async with nexo.connect_async(nodes["a"].url) as client:
        queue = await client.create_queue(name, visibility_timeout=60.0)
        stop = False
        pushed: list[bytes] = []
        got: list[tuple[bytes, int]] = []

        async def produce() -> None:
            while not stop:
                bodies = [b"%d" % (len(pushed) + each) for each in range(10)]
                pushed.extend(bodies)
                await asyncio.gather(*[queue.push(body) for body in bodies])

        async def consume() -> None:
            async with queue.subscribe(prefetch=20) as subscription:
                async for message in subscription:
                    await message.ack()
                    if message.body == b"last":
                        return
                    got.append((message.body, message.attempts))

        tasks = [asyncio.create_task(produce()), asyncio.create_task(consume())]
        ends = time.monotonic() + PATIENCE_S
        while place(client) != nodes["b"].url:
            assert time.monotonic() < ends
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        stop = True
        await tasks[0]
        await queue.push(b"last")
        async with asyncio.timeout(PATIENCE_S):
            await tasks[1]
        assert got == [(body, 1) for body in pushed]
        await queue.delete()


def test_a_worker_goes_along(nodes: Nodes) -> None:
    """Functions that take a while, on threads: none is called twice for a message."""
    name = name_at(nodes, "b", "worker")
    seen: list[tuple[bytes, int]] = []
    with nexo.connect(nodes["a"].url) as client, nexo.connect(nodes["b"].url) as other:
        queue = client.create_queue(name, visibility_timeout=60.0)

        def handle(message: nexo.Message) -> None:
            time.sleep(0.05)
            seen.append((message.body, message.attempts))

        def consume() -> None:
            with contextlib.suppress(QueueNotFound):
                queue.consume(handle, concurrency=4, signals=False)

        def push() -> None:
            other.queue(name).push(b"x")
            time.sleep(0.01)

        worker = threading.Thread(target=consume)
        worker.start()
        until(lambda: place(client) == nodes["b"].url, push)
        for _ in range(20):
            push()
        info = other.queue(name).info
        pushed = info().pushed
        until(lambda: info().acked == pushed)
        assert [attempts for _, attempts in seen] == [1] * pushed
        queue.delete()
        worker.join(PATIENCE_S)
        assert not worker.is_alive()


def test_one_that_uses_both_nodes_alike_stays(nodes: Nodes) -> None:
    here, there = name_at(nodes, "a", "even"), name_at(nodes, "b", "even")
    with nexo.connect(nodes["a"].url) as client:
        queues = [client.create_queue(here), client.create_queue(there)]
        ends = time.monotonic() + 2.5
        while time.monotonic() < ends:
            for queue in queues:
                queue.push(b"x")
        assert place(client) == nodes["a"].url
        for queue in queues:
            queue.delete()


def test_one_that_is_only_sent_messages_is_told_where_they_come_from(nodes: Nodes) -> None:
    """It asks for nothing, so deliveries are all that tells where it belongs."""
    name = name_at(nodes, "b", "silent")
    with nexo.connect(nodes["b"].url) as other, Speaker(nodes["a"].url) as client:
        queue = other.create_queue(name)
        client.send(Kind.SUBSCRIBE, 2, commands.pack(commands.Subscribe(name, 1, 5_000)))
        client.until(lambda each: each.correlation == 2)

        def push() -> None:
            queue.push(b"x")
            client.send(Kind.HEARTBEAT, 0, b"")

        _until_moved(client, nodes["b"].url, push)
        queue.delete()


def test_messages_from_here_keep_a_client_here(nodes: Nodes) -> None:
    """Though all that it asks for is for another node: one of three frames."""
    here, there = name_at(nodes, "a", "given"), name_at(nodes, "b", "asked")
    asked = requests.call(calls.DescribeQueue(there))
    with nexo.connect(nodes["a"].url) as other, Speaker(nodes["a"].url) as client:
        given = other.create_queue(here)
        other.create_queue(there)
        client.send(Kind.SUBSCRIBE, 2, commands.pack(commands.Subscribe(here, 1, 50_000)))
        client.until(lambda each: each.correlation == 2)
        ends, turns = time.monotonic() + 2 * CLUSTER_REDIRECT_WINDOW_S, 0
        while time.monotonic() < ends or turns < 4 * CLUSTER_REDIRECT_FRAMES:
            for _ in range(2):
                given.push(b"x")
            client.ask(asked)
            turns += 1
        assert client.look(lambda each: each.kind is Kind.MOVED, 0.1) is None
        given.delete()
        # Without those messages it would be told.
        _until_moved(client, nodes["b"].url, lambda: client.ask(asked))
        other.queue(there).delete()


def _until_moved(client: Speaker, url: str, step: Callable[[], Any]) -> None:
    def is_moved(each: Frame) -> bool:
        return each.kind is Kind.MOVED

    until(lambda: client.look(is_moved, 0.01) is not None, step)
    moved: commands.Moved = commands.unpack(client.until(is_moved).head, commands.Moved)
    assert f"nexo://{moved.address}" == url


def test_one_that_does_not_follow_is_passed_on(nodes: Nodes) -> None:
    name = name_at(nodes, "b", "stays")
    before, before_b = metrics(nodes, "a"), metrics(nodes, "b")
    with nexo.connect(nodes["a"].url, follow_redirects=False) as client:
        queue = client.create_queue(name)
        ends = time.monotonic() + 1.5
        count = 0
        while time.monotonic() < ends or count < 40:
            queue.push(b"x")
            count += 1
        assert place(client) == nodes["a"].url
        queue.delete()
    after = metrics(nodes, "a")
    passed = after["nexo_cluster_passed_frames_total"] - before["nexo_cluster_passed_frames_total"]
    assert passed == count + 2
    assert after["nexo_cluster_redirects_total"] == before["nexo_cluster_redirects_total"]
    assert metrics(nodes, "b") == before_b  # what was passed on to it is not passed on


def test_sent_to_a_node_that_has_not_got_it(nodes: Nodes) -> None:
    """As by a node that does not know of a move yet: it costs a hop, and the next word is right."""
    name = name_at(nodes, "a", "stale")
    with nexo.connect(nodes["a"].url) as client:
        queue = client.create_queue(name)
        wrong = nodes["b"].url.removeprefix("nexo://")
        client._connection.session.redirect = wrong
        bodies: list[bytes] = []

        def push() -> None:
            bodies.append(b"%d" % len(bodies))
            queue.push(bodies[-1])

        until(lambda: place(client) == nodes["b"].url, push)
        for _ in range(20):
            push()
        client._connection._redirects._moved_at = float("-inf")  # ten seconds later
        until(lambda: place(client) == nodes["a"].url, push)
        assert [message.body for message in queue.pop_batch(10_000)] == bodies
        queue.delete()


def metrics(nodes: Nodes, node: str) -> dict[str, float]:
    url = f"http://127.0.0.1:{nodes[node].http_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.split() for line in lines if line.startswith("nexo_cluster_")]
    return {name: float(value) for name, value in found}


def test_after_a_kill_and_moves_it_comes_back(moving: Nodes) -> None:
    """The owner that it went to hands its shards over, gets them back, and is killed."""
    name = name_at(moving, "b", "killed")
    with nexo.connect(moving["a"].url, timeout=40) as client:
        queue = client.create_queue(name, visibility_timeout=60.0)
        bodies: list[bytes] = []
        got: list[bytes] = []

        def push() -> None:
            bodies.append(b"%d" % len(bodies))
            queue.push(bodies[-1])
            message = queue.pop()
            if message is not None:
                with contextlib.suppress(StaleReceipt):  # its shard has moved
                    message.ack()
                got.append(message.body)

        def is_at(node: str) -> bool:
            return place(client) == moving[node].url

        def is_owned(node: str) -> bool:
            return moving.owner_of(name) == node

        until(partial(is_at, "b"), push)
        for to in "ab":
            (client.rebalance if to == "b" else partial(client.drain_node, "b"))()
            until(partial(is_owned, to), push)
            client._connection._redirects._moved_at = float("-inf")  # ten seconds later
            until(partial(is_at, to), push)
        moving.kill("b")
        push()
        assert place(client) == moving["a"].url
        while message := queue.pop(wait=0.5):
            got.append(message.body)
            message.ack()
        assert set(got) == set(bodies)
