"""Subscriptions: for ever, within their prefetch, giving back what was not looked at."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import nexo
from nexo.wire.frame import Kind
from tests.client.eventually import eventually


def test_iteration(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch([str(number) for number in range(250)])
    seen = []
    for message in queue.subscribe(prefetch=10):
        with message:
            seen.append(message.text)
        if len(seen) == 250:
            break
    assert seen == [str(number) for number in range(250)]
    assert queue.info().depth == 0


def test_leaving_gives_back_what_was_prefetched(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch(["x"] * 50)
    held = None
    for message in queue.subscribe(prefetch=20):
        held = message
        break
    assert held is not None
    eventually(lambda: queue.info().ready == 49)
    info = queue.info()
    assert (info.in_flight, info.consumers) == (1, 0)
    held.ack()  # what was handed out is still ours
    assert queue.info().depth == 49
    assert all(message.attempts == 1 for message in queue.pop_batch(50))


def test_close_and_with(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch(["x"] * 10)
    with queue.subscribe() as subscription:
        assert subscription.get(timeout=5).text == "x"
        eventually(lambda: queue.info().consumers == 1)
    eventually(lambda: queue.info().ready == 9)
    subscription = queue.subscribe()
    assert subscription.get(timeout=5) is not None
    subscription.close()
    eventually(lambda: queue.info().ready == 8)
    assert subscription.get(timeout=5) is not None  # it begins again
    subscription.close()


def test_get_with_a_timeout(client: Any) -> None:
    queue = client.queue("q", create=True)
    with queue.subscribe() as subscription:
        started = time.monotonic()
        assert subscription.get(timeout=0.3) is None
        assert 0.25 < time.monotonic() - started < 10
        queue.push("x")
        assert subscription.get(timeout=10).text == "x"


def test_prefetch_bounds_what_is_unfinished(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch(["x"] * 100)
    with queue.subscribe(prefetch=7) as subscription:
        messages = [subscription.get(timeout=5) for _ in range(7)]
        assert queue.info().in_flight == 7
        assert subscription.get(timeout=0.2) is None
        messages[0].ack()
        messages[1].nack(delay=60)
        assert subscription.get(timeout=5) is not None
        assert subscription.get(timeout=5) is not None
        assert subscription.get(timeout=0.2) is None
    with pytest.raises(nexo.InvalidArgument, match="prefetch"):
        queue.subscribe(prefetch=0).get(timeout=5)


def test_batches(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch([str(number) for number in range(5_000)])
    seen: list[bytes] = []
    for messages in queue.subscribe_batches(1_000):
        assert len(messages) <= 1_000
        seen += messages.bodies()
        assert queue.ack_batch(messages) == []
        if len(seen) == 5_000:
            break
    assert seen == [str(number).encode() for number in range(5_000)]
    eventually(lambda: queue.info().depth == 0)


def test_two_acks(client: Any) -> None:
    queue = client.create_queue("q", retransmit_timeout=30.0)
    queue.push("x")
    with queue.subscribe(auto_received=False) as subscription:
        message = subscription.get(timeout=5)
        with pytest.raises(nexo.WrongState):
            message.ack()
    queue.purge()
    queue.push("y")
    with queue.subscribe(auto_received=False) as subscription, subscription.get(timeout=5):
        assert queue.peek()[0].state is nexo.State.RECEIVED  # entering said so
    assert queue.info().depth == 0


def test_prefetched_messages_keep_their_lease(client: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=3.0)
    queue.push_batch(["x"] * 3)
    with queue.subscribe() as subscription:
        subscription.get(timeout=5).ack()
        time.sleep(4.0)
        message = subscription.get(timeout=5)
        assert message.attempts == 1
        message.ack()
        subscription.get(timeout=5).ack()
    assert queue.info().depth == 0


def test_auto_extend(client: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=3.0)
    queue.push("x")
    with queue.subscribe(auto_extend=True) as subscription:
        message = subscription.get(timeout=5)
        time.sleep(4.0)
        message.ack()
    assert queue.info().depth == 0
    queue.edit(visibility_timeout=0.6)
    queue.push("y")
    with queue.subscribe() as subscription:
        message = subscription.get(timeout=5)
        time.sleep(1.2)
        with pytest.raises(nexo.StaleReceipt):
            message.ack()


def test_auto_extend_after_closing(twin: Any, relay: Any) -> None:
    """What was handed out stays ours, for longer than the visibility timeout."""
    client = twin.connect(relay.url, timeout=20)
    queue = client.create_queue("q", visibility_timeout=3.0)
    queue.push("x")
    with queue.subscribe(auto_extend=True) as subscription:
        message = subscription.get(timeout=5)
    before = relay.requests[Kind.EXTEND]
    eventually(lambda: relay.requests[Kind.EXTEND] >= before + 4)  # one a second
    message.ack()
    assert queue.info().depth == 0


def test_a_loop_that_was_closed_meanwhile_ends(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch(["x"] * 5)
    seen = []
    subscription = queue.subscribe()
    for message in subscription:
        seen.append(message)
        message.ack()
        subscription.close()
    assert len(seen) == 1
    assert queue.info().consumers == 0
    assert subscription.get(timeout=5) is not None  # asked for, it begins again
    subscription.close()


def test_a_careless_consumer_is_not_starved(client: Any) -> None:
    """Messages that nobody finishes come back, and so does the room that they took."""
    queue = client.create_queue("q", visibility_timeout=0.3, max_attempts=None)
    queue.push_batch(["x"] * 4)
    with queue.subscribe(prefetch=2) as subscription:
        for _ in range(8):
            assert subscription.get(timeout=10) is not None


def test_a_deleted_queue_ends_it(client: Any) -> None:
    queue = client.queue("q", create=True)
    subscription = queue.subscribe()
    assert subscription.get(timeout=0.05) is None
    queue.delete()
    with pytest.raises(nexo.QueueNotFound):
        subscription.get(timeout=10)
    with pytest.raises(nexo.QueueNotFound):
        client.queue("never").subscribe().get(timeout=10)


def test_closing_the_client_ends_the_loop(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push("x")
    seen = []

    def consume() -> None:
        for message in queue.subscribe():
            message.ack()
            seen.append(message)

    consumer = threading.Thread(target=consume)
    consumer.start()
    eventually(lambda: len(seen) == 1)
    client.close()
    consumer.join(10)
    assert not consumer.is_alive()


def test_consume(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch(["good", "bad", "good"])
    done = []

    def handle(message: Any) -> None:
        done.append(message.text)
        if message.text == "bad":
            raise ValueError("what a pity")

    consumer = threading.Thread(target=lambda: _ignore_closing(queue.consume, handle, 2))
    consumer.start()
    eventually(lambda: len(done) == 3 and queue.info().depth == 0)
    dead = client.queue("q_dlq").pop(wait=5)
    assert dead.dead_letter.reason == "ValueError: what a pity"
    client.close()
    consumer.join(10)
    assert not consumer.is_alive()


def test_consume_leaves_nobody_behind(broker: Any) -> None:
    with nexo.connect(broker.url, timeout=20) as client:
        queue = client.queue("q", create=True)
        queue.push_batch(["x"] * 20)
        begun, interrupted, go_on = threading.Barrier(3), threading.Event(), threading.Event()

        def handle(_: Any) -> None:
            if not go_on.is_set():
                begun.wait(20)
                if threading.current_thread() is consumer:
                    interrupted.set()
                    raise KeyboardInterrupt
                go_on.wait(20)

        def consume() -> None:
            with pytest.raises(KeyboardInterrupt):
                queue.consume(handle, 3)

        consumer = threading.Thread(target=consume)
        consumer.start()
        assert interrupted.wait(20)
        eventually(lambda: queue.info().consumers == 0)
        go_on.set()
        consumer.join(20)
        assert not consumer.is_alive()
        assert not [each for each in threading.enumerate() if each.name == "nexo-consumer"]
        info = queue.info()
        assert (info.consumers, info.in_flight, info.ready) == (0, 0, 18)


def _ignore_closing(consume: Any, *arguments: Any) -> None:
    try:
        consume(*arguments)
    except nexo.NexoError:
        return
