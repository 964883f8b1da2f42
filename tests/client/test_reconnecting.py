"""Broken connections and restarts: nothing that was confirmed is lost, nothing is doubled."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import nexo
from nexo.wire.frame import Kind
from tests.client.eventually import eventually
from tests.client.relay import Relay


def _once(kind: Kind, verdict: str) -> Any:
    """Do that with the first frame of a kind."""
    seen: list[Any] = []

    def decide(frame: Any) -> str:
        if frame.kind is kind and not seen:
            seen.append(frame)
            return verdict
        return Relay.PASS

    return decide


def test_a_restart_between_calls(client: Any, broker: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push("before")
    message = queue.pop()
    broker.restart()
    queue.push("after")
    assert queue.info().depth == 2
    message.ack()
    assert queue.pop(wait=5).text == "after"


def test_calls_wait_for_a_broker_that_is_away(client: Any, broker: Any) -> None:
    queue = client.queue("q", create=True)
    broker.stop()
    coming = threading.Timer(1.0, broker.start)
    coming.start()
    queue.push("x")
    assert queue.pop().text == "x"
    coming.join()  # else it may be stopped before it has started


def test_unreachable_after_the_timeout(twin: Any, broker: Any) -> None:
    client = twin.connect(broker.url, timeout=2.5)
    queue = client.queue("q", create=True)
    queue.push("x")
    broker.stop()
    started = time.monotonic()
    with pytest.raises(nexo.Unreachable, match="no broker could be reached within"):
        queue.push("y")
    assert 2.0 < time.monotonic() - started < 15
    broker.start()
    queue.push("z")  # it is not broken for good
    assert sorted(m.text for m in queue.pop_batch(9, wait=5)) == ["x", "z"]


def test_a_push_whose_answer_was_lost_is_not_doubled(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.queue("q", create=True)
    queue.info()
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    first = queue.push("one")
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    ids = queue.push_batch(["two", "three"])
    messages = queue.pop_batch(10)
    assert [message.text for message in messages] == ["one", "two", "three"]
    assert [message.id for message in messages] == [first, *ids]
    assert relay.connections == 3


def test_a_publish_whose_answer_was_lost_is_not_doubled(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    topic = client.create_topic("t")
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    assert topic.publish("one") == 0
    assert topic.publish("two") == 1


def test_a_pop_whose_answer_was_lost(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.create_queue("q", retransmit_timeout=2.0)
    queue.push("x")
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    message = queue.pop(wait=10)
    assert (message.text, message.attempts) == ("x", 2)
    message.ack()


def test_an_ack_whose_answer_was_lost_is_done(twin: Any, relay: Any) -> None:
    """The broker is the same run and the deadline has not passed: the first try ended the lease."""
    client = twin.connect(relay.url, timeout=20)
    queue = client.queue("q", create=True)
    queue.push_batch(["x", "y"])
    first, second = queue.pop(), queue.pop()
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    first.ack()
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    second.nack(delay=60)
    assert (queue.info().depth, queue.info().scheduled) == (1, 1)
    with pytest.raises(nexo.StaleReceipt):
        first.ack()


def test_an_ack_over_a_restart_is_told_if_it_cannot_be_known(
    twin: Any, relay: Any, broker: Any
) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.queue("q", create=True)
    queue.push("x")
    message = queue.pop()

    swallowed: list[Any] = []

    def swallow_ack(frame: Any) -> str:
        if frame.kind is not Kind.OK:
            return Relay.PASS
        swallowed.append(frame)
        return Relay.SWALLOW

    relay.on_answer = swallow_ack
    caught = []

    def ack() -> None:
        try:
            message.ack()
        except nexo.StaleReceipt as error:
            caught.append(error)

    acking = threading.Thread(target=ack)
    acking.start()
    eventually(lambda: bool(swallowed))
    relay.on_answer = lambda _: Relay.PASS
    broker.restart()
    relay.cut()
    acking.join(20)
    assert len(caught) == 1
    assert queue.info().depth == 0


def test_an_ack_that_never_arrived(twin: Any, relay: Any) -> None:
    """Its reception may have been lost as well: both are said on the next connection."""
    client = twin.connect(relay.url, timeout=20)
    queue = client.queue("q", create=True)
    queue.push("x")
    queue.pop().nack(delay=0)
    relay.on_request = lambda frame: Relay.SWALLOW if frame.kind is Kind.RECEIVED else Relay.PASS
    message = queue.pop()
    eventually(lambda: relay.requests[Kind.RECEIVED] >= 2)
    relay.on_request = _once(Kind.ACK, Relay.CUT)
    message.ack()
    assert queue.info().depth == 0


def test_a_lost_reception_is_said_again(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.create_queue("q", retransmit_timeout=1.5)
    queue.push("x")
    relay.on_request = _once(Kind.RECEIVED, Relay.CUT)
    message = queue.pop()
    assert queue.info().in_flight == 1
    time.sleep(2.0)
    assert queue.pop() is None
    message.ack()


def test_a_deletion_whose_answer_was_lost(twin: Any, relay: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.create_queue("q")
    relay.on_answer = _once(Kind.OK, Relay.CUT)
    queue.delete()
    assert client.queues() == []


def test_a_subscription_goes_on_through_everything(twin: Any, relay: Any, broker: Any) -> None:
    client = twin.connect(relay.url, timeout=20)
    queue = client.queue("q", create=True)
    queue.push_batch([str(number) for number in range(30)])
    seen = []
    for message in queue.subscribe(prefetch=4):
        with message:
            seen.append(message.text)
            if len(seen) == 5:
                relay.cut()
            if len(seen) == 12:
                broker.restart()
        if len(set(seen)) == 30:
            break
    assert set(seen) == {str(number) for number in range(30)}
    assert queue.info().depth <= 2  # what was in hand at a break may come again
    assert relay.connections >= 3


def test_an_idle_subscription_is_there_after_a_restart(client: Any, broker: Any) -> None:
    queue = client.queue("q", create=True)
    with queue.subscribe() as subscription:
        assert subscription.get(timeout=0.1) is None
        broker.restart()  # nobody reads while this happens
        other = nexo.connect(broker.url, timeout=20)
        eventually(lambda: other.queue("q").info().consumers == 1)
        other.queue("q").push("x")
        assert subscription.get(timeout=10).text == "x"
        other.close()


def test_a_topic_subscription_goes_on(client: Any, broker: Any) -> None:
    topic = client.create_topic("t")
    with topic.subscribe(start="earliest") as subscription:
        topic.publish("one")
        assert subscription.get(timeout=10).text == "one"
        broker.restart()
        topic.publish("two")
        assert subscription.get(timeout=20).text == "two"


def test_many_pushes_through_many_breaks(twin: Any, relay: Any) -> None:
    """Every push is confirmed once and stored once, however often the connection breaks."""
    client = twin.connect(relay.url, timeout=30)
    queue = client.queue("q", create=True)
    queue.info()
    ids: list[str] = []
    ended = threading.Event()

    def push(worker: int) -> None:
        for number in range(40):
            ids.append(queue.push(f"{worker}-{number}"))  # noqa: PERF401 - one by one

    def cut() -> None:
        while not ended.wait(0.05):
            before = len(ids)
            relay.cut()
            while len(ids) == before and not ended.wait(0.01):
                continue  # on a slow machine 50 ms are too few to come back and push

    workers = [threading.Thread(target=push, args=(worker,)) for worker in range(8)]
    breaker = threading.Thread(target=cut)
    for thread in (*workers, breaker):
        thread.start()
    for thread in workers:
        thread.join(50)
    ended.set()
    breaker.join()
    assert len(ids) == len(set(ids)) == 320
    messages = queue.pop_batch(1_000)
    assert sorted(m.text for m in messages) == sorted(
        f"{worker}-{number}" for worker in range(8) for number in range(40)
    )
    assert {m.id for m in messages} == set(ids)
