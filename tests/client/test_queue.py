"""Queues through the client: every method of the contract, on both twins."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nexo
from nexo.client import requests
from nexo.client.aio import client as aio_client
from nexo.client.blocking import client as blocking_client


def test_the_life_of_a_message(client: Any) -> None:
    orders = client.create_queue("orders", visibility_timeout=30.0, max_attempts=5)
    before = datetime.now(UTC) - timedelta(seconds=1)
    pushed = orders.push({"id": 1}, priority=9, attributes={"tenant": "a"}, group_id="g")
    message = orders.pop(wait=5.0)
    assert message.id == pushed
    assert (message.body, message.text, message.json()) == (b'{"id":1}', '{"id":1}', {"id": 1})
    assert (message.priority, message.attempts, message.queue) == (9, 1, "orders")
    assert (message.attributes, message.group_id) == ({"tenant": "a"}, "g")
    assert (message.dead_letter, message.delayed_until) == (None, None)
    assert before < message.created_at < datetime.now(UTC) + timedelta(seconds=1)
    assert timedelta(seconds=25) < message.visible_at - datetime.now(UTC) < timedelta(seconds=31)
    assert message.created_at.tzinfo is UTC
    message.received()
    message.received()
    message.ack()
    assert orders.info().depth == 0
    with pytest.raises(nexo.StaleReceipt) as caught:
        message.ack()
    assert caught.value.code == "stale_receipt"
    assert caught.value.hint
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        ("grüß", "grüß".encode()),
        ([1, None, "x"], b'[1,null,"x"]'),
        (None, b"null"),
        (b"", b""),
    ],
)
def test_bodies(client: Any, body: Any, stored: bytes) -> None:
    queue = client.queue("q", create=True)
    queue.push(body)
    assert queue.pop().body == stored


def test_a_body_that_is_nothing_of_these(client: Any) -> None:
    with pytest.raises(nexo.InvalidArgument, match="cannot be encoded as JSON"):
        client.queue("q").push(object())


def test_batches(client: Any) -> None:
    queue = client.queue("q", create=True)
    ids = queue.push_batch([b"a", "b", 3], priority=2, attributes={"k": "v"})
    messages = queue.pop_batch(10)
    assert [message.id for message in messages] == ids
    assert [message.body for message in messages] == [b"a", b"b", b"3"]
    assert {message.priority for message in messages} == {2}
    assert messages[1].attributes == {"k": "v"}
    assert messages[-1].text == "3"
    assert messages.bodies() == [b"a", b"b", b"3"]
    assert [each.text for each in messages[:2]] == ["a", "b"]
    assert queue.ack_batch(messages) == []
    assert queue.ack_batch(messages) == [(each, "stale_receipt") for each in ids]
    assert queue.push_batch([]) == []
    assert queue.ack_batch([]) == []
    assert len(queue.pop_batch(5)) == 0
    assert queue.pop_batch(5) == []


def test_ack_batch_of_some(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch([str(number) for number in range(10)])
    messages = list(queue.pop_batch(10))
    messages[3].ack()
    assert queue.ack_batch(messages[::2]) == []
    assert queue.ack_batch(messages[2:5]) == [
        (messages[index].id, "stale_receipt") for index in (2, 3, 4)
    ]
    assert queue.info().in_flight == 4


def test_mixed_priorities_of_thousands(client: Any) -> None:
    queue = client.queue("q", create=True)
    for priority in range(3):
        queue.push_batch([str(priority)] * 1_200, priority=priority)
    messages = queue.pop_batch(3_600)
    assert [m.priority for m in messages] == [2] * 1_200 + [1] * 1_200 + [0] * 1_200
    scattered = list(messages)[::2]
    assert queue.ack_batch(scattered) == []
    refused = queue.ack_batch(scattered)
    assert [code for _, code in refused] == ["stale_receipt"] * 1_800


def test_pop_waits(client: Any, twin: Any, broker: Any) -> None:
    queue = client.queue("q", create=True)
    started = time.monotonic()
    assert queue.pop() is None
    assert time.monotonic() - started < 5
    assert queue.pop(wait=0.2) is None
    assert time.monotonic() - started >= 0.2
    queue.push("late", delay=0.3)
    assert queue.pop(wait=10).text == "late"


def test_two_acks(client: Any) -> None:
    queue = client.create_queue("q", retransmit_timeout=2.0)
    queue.push("x")
    message = queue.pop(auto_received=False)
    assert message.state is nexo.State.SENT
    with pytest.raises(nexo.WrongState) as caught:
        message.ack()
    assert caught.value.code == "wrong_state"
    again = queue.pop(wait=10, auto_received=False)
    assert again.attempts == 2
    again.received()
    time.sleep(2.2)
    again.ack()
    assert queue.info().depth == 0


def test_automatic_reception_holds_the_message(client: Any) -> None:
    queue = client.create_queue("q", retransmit_timeout=2.0, visibility_timeout=30.0)
    queue.push_batch(["a", "b"])
    first = queue.pop()
    second = queue.pop()  # right behind the first: its reception may travel with something else
    time.sleep(2.5)
    assert queue.pop() is None
    first.ack()
    second.ack()


def test_nack(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=3)
    queue.push("x")
    queue.pop().nack(delay=0)
    message = queue.pop()
    assert message.attempts == 2
    message.nack(delay=2.0)
    assert queue.pop() is None
    assert queue.info().scheduled == 1
    message = queue.pop(wait=10)
    message.nack(reason="no good")
    dead = client.queue("q_dlq").pop(wait=5)
    assert dead.id == message.id
    assert dead.attempts == 1
    assert (dead.dead_letter.reason, dead.dead_letter.source) == ("no good", "q")
    assert dead.dead_letter.attempts == 3
    assert dead.dead_letter.first_failed_at <= dead.dead_letter.last_failed_at
    assert queue.info().dead_lettered == 1


def test_backoff(client: Any) -> None:
    client.create_queue("dict", backoff={"initial": 60.0, "factor": 2.0})
    client.create_queue("struct", backoff=nexo.Backoff(initial=60.0, max=100.0))
    for name in ("dict", "struct"):
        queue = client.queue(name)
        queue.push("x")
        queue.pop().nack()
        (waiting,) = queue.peek()
        assert waiting.state is nexo.State.SCHEDULED
        assert timedelta(seconds=50) < waiting.delayed_until - datetime.now(UTC)
    assert client.queue("struct").info().settings.backoff == nexo.Backoff(60.0, 2.0, 100.0, 0.0)


def test_extend_and_visibility(client: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=0.4)
    queue.push("x")
    message = queue.pop(visibility_timeout=30.0)
    time.sleep(0.6)
    assert queue.pop() is None
    before = datetime.now(UTC)
    message.extend(0.3)
    assert before < message.visible_at < datetime.now(UTC) + timedelta(seconds=1)
    again = queue.pop(wait=5, visibility_timeout=2.0)
    assert again.attempts == 2
    with pytest.raises(nexo.StaleReceipt):
        message.extend(5)
    again.extend(60)
    time.sleep(2.2)
    again.ack()


def test_with_message(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push("good")
    queue.push("bad")
    with queue.pop() as message:
        assert message.text == "good"
    with pytest.raises(ValueError, match="too bad"), queue.pop():
        raise ValueError("too bad")
    assert client.queue("q_dlq").pop(wait=5).dead_letter.reason == "ValueError: too bad"
    queue.push("third")
    with queue.pop() as message:
        message.ack()  # leaving does not ack again
    assert queue.info().depth == 0


def test_peek_shows_all_states(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push("in flight")
    held = queue.pop()
    queue.push("ready", attributes={"a": "b"})
    queue.push("later", delay=60)
    states = {message.text: message.state for message in queue.peek()}
    assert states == {
        "in flight": nexo.State.RECEIVED,
        "ready": nexo.State.READY,
        "later": nexo.State.SCHEDULED,
    }
    shown = {message.text: message for message in queue.peek(1000)}
    assert shown["in flight"].id == held.id
    assert shown["in flight"].visible_at > datetime.now(UTC)
    assert shown["ready"].attributes == {"a": "b"}
    assert shown["ready"].visible_at is None
    assert shown["later"].delayed_until > datetime.now(UTC)
    assert len(queue.peek(1)) == 1
    with pytest.raises(nexo.InvalidArgument):
        queue.peek(1001)
    with pytest.raises(nexo.InvalidArgument, match="not a message that was popped"):
        queue.ack_batch(queue.peek())


def test_lists_are_asked_for_by_pages(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LIST_PAGE_MAX", 3)
    for twin in (aio_client, blocking_client):
        monkeypatch.setattr(twin, "LIST_PAGE_MAX", 3)
    for count in range(1, 8):
        client.create_queue(f"q{count}")
        client.create_topic(f"t{count}")
        assert [each.name for each in client.queues()] == [f"q{n}" for n in range(1, count + 1)]
        names = [each.name for each in client.topics() if not each.name.startswith("nexo.")]
        assert names == [f"t{n}" for n in range(1, count + 1)]


def test_info(client: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=12.5, max_depth=100)
    queue.push_batch(["x"] * 5)
    queue.pop().ack()
    queue.pop().nack(delay=60)
    queue.pop()
    info = queue.info()
    assert (info.name, info.depth, info.ready, info.scheduled, info.in_flight) == ("q", 4, 2, 1, 1)
    assert (info.pushed, info.delivered, info.acked, info.nacked) == (5, 3, 1, 1)
    assert (info.expired, info.dead_lettered, info.consumers) == (0, 0, 0)
    assert 0 <= info.oldest_age < 30
    assert info.settings.visibility_timeout == 12.5
    assert (info.settings.max_depth, info.settings.retention) == (100, 4 * 86_400)
    assert [each.name for each in client.queues()] == ["q"]


def test_operators(client: Any) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch(["x"] * 5)
    held = queue.pop()
    queue.pause()
    assert queue.pop() is None
    assert queue.info().paused
    queue.push("y")
    queue.resume()
    assert queue.pop() is not None
    assert queue.purge() == 6
    assert queue.info().depth == 0
    with pytest.raises(nexo.StaleReceipt):
        held.ack()
    assert queue.edit(visibility_timeout=1.5, max_attempts=None).settings.visibility_timeout == 1.5
    assert queue.info().settings.max_attempts is None
    queue.delete()
    with pytest.raises(nexo.QueueNotFound) as caught:
        queue.push("x")
    assert caught.value.code == "queue_not_found"
    assert client.queues() == []


def test_redrive(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    dead = client.queue("q_dlq")
    queue.push_batch([str(number) for number in range(20)])
    for message in queue.pop_batch(20):
        message.nack()
    assert dead.redrive() == 20
    again = queue.pop_batch(20)
    assert {message.attempts for message in again} == {1}
    for message in again:
        message.nack()
    client.queue("other", create=True).push("first")
    task = dead.redrive(to="other", rate=1.0, wait=False)
    progress = task.progress()
    assert progress.total == 20
    task.cancel()
    moved = client.queue("other").info().depth - 1
    deadline = time.monotonic() + 10
    while not task.progress().finished and time.monotonic() < deadline:
        time.sleep(0.02)
    assert moved <= task.progress().moved < 20
    assert dead.redrive(to="other", wait=True) == 20 - task.progress().moved
    with pytest.raises(nexo.InvalidArgument):
        dead.redrive(to="q_dlq")


def test_names_and_settings(client: Any) -> None:
    unknown = client.queue("unknown")  # no question asked
    with pytest.raises(nexo.QueueNotFound):
        unknown.pop()
    client.create_queue("q", max_attempts=3)
    client.create_queue("q", max_attempts=3)
    with pytest.raises(nexo.QueueExists) as caught:
        client.create_queue("q", max_attempts=4)
    assert caught.value.code == "queue_exists"
    client.queue("q", create=True).push("whatever its settings")
    with pytest.raises(nexo.InvalidArgument, match="visibility_timout"):
        client.create_queue("q", visibility_timout=3)
    with pytest.raises(nexo.InvalidArgument):
        client.create_queue("q", visibility_timeout=-1)
    with pytest.raises(nexo.InvalidArgument):
        client.create_queue("no spaces")
    with pytest.raises(nexo.InvalidArgument):
        client.queue("q").push("x", priority=256)
    with pytest.raises(nexo.InvalidArgument):
        client.queue("q").push("x", attributes={"a": 1})


def test_refusals_of_pushes(client: Any) -> None:
    queue = client.create_queue("q", max_depth=3, max_message_bytes=10)
    with pytest.raises(nexo.MessageTooLarge):
        queue.push(b"x" * 11)
    queue.push_batch(["x"] * 2)
    with pytest.raises(nexo.QueueFull) as caught:
        queue.push_batch(["x"] * 2)
    assert caught.value.retryable
    queue.push("fits")
    assert queue.info().depth == 3


def test_attributes_count_towards_the_size_of_a_message(client: Any) -> None:
    queue, topic = (
        create("q", max_message_bytes=1_000)
        for create in (client.create_queue, client.create_topic)
    )
    for send in (queue.push, topic.publish):
        send(b"x" * 500, attributes={"name": "v" * 496})
        with pytest.raises(nexo.MessageTooLarge, match="1001 bytes"):
            send(b"x" * 500, attributes={"name": "v" * 497})
        with pytest.raises(nexo.MessageTooLarge):
            send("x", attributes={"name": "v" * 4_000_000})
    with pytest.raises(nexo.MessageTooLarge):
        queue.push_batch(["x", "y"], attributes={"name": "v" * 1_000})
    assert queue.info().depth == 1


def test_a_pop_takes_what_fits_an_answer_with_attributes(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.client.requests.POP_BYTES_MAX", 100_000)
    queue = client.create_queue("q", visibility_timeout=60.0)
    for _ in range(20):
        queue.push("x", attributes={"name": "v" * 10_000})
    taken: list[Any] = []
    while got := queue.pop_batch(20):
        assert len(got) < 10
        taken += got
    assert len(taken) == 20
    assert {message.attempts for message in taken} == {1}
    assert queue.ack_batch(taken) == []


def test_deduplication(client: Any) -> None:
    queue = client.create_queue("q", deduplication="id")
    first = queue.push("x", deduplication_id="k")
    assert queue.push("y", deduplication_id="k") == first
    ids = queue.push_batch(["a", "b"], deduplication_ids=["k", "l"])
    assert ids[0] == first
    assert queue.info().depth == 2
    message = queue.pop()
    assert message.deduplication_id == "k"


def test_fifo_groups(client: Any) -> None:
    queue = client.create_queue("q", fifo=True)
    queue.push("a1", group_id="a")
    queue.push("a2", group_id="a")
    queue.push("b1", group_id="b")
    first, second = queue.pop(), queue.pop()
    assert (first.text, second.text) == ("a1", "b1")
    assert queue.pop() is None
    first.ack()
    assert queue.pop(wait=5).text == "a2"
