"""`nack_batch`, `extend_batch` and `give_back`: many messages at once, on both clients."""

from __future__ import annotations

from typing import Any

import pytest

import nexo
from tests.client.eventually import eventually


def test_nack_batch(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=2)
    queue.push_batch(["a", "b", "c", "d"])
    messages = queue.pop_batch(4)
    assert queue.nack_batch([messages[0], messages[1], messages[3]], reason="no luck") == []
    assert queue.info().ready == 3
    again = queue.pop_batch(10)
    assert [(each.text, each.attempts) for each in again] == [("a", 2), ("b", 2), ("d", 2)]
    assert queue.nack_batch(again, reason="x" * 5_000) == []
    letters = _dead_letters(client, queue, 3)
    assert [each.dead_letter.reason for each in letters] == ["x" * 1_024] * 3
    assert queue.info().nacked == 6


def test_nack_batch_with_a_delay(client: Any) -> None:
    queue = client.create_queue("q")
    queue.push_batch(["a", "b"])
    queue.nack_batch(queue.pop_batch(2), delay=60.0)
    assert (queue.info().scheduled, queue.info().ready) == (2, 0)


def test_extend_batch(client: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=2.0)
    ids = list(queue.push_batch(["a", "b", "c"]))
    messages = queue.pop_batch(3)
    messages[2].ack()
    assert queue.extend_batch(messages, 30.0) == [(ids[2], "stale_receipt")]
    assert queue.pop(wait=2.5) is None
    assert queue.ack_batch([messages[0], messages[1]]) == []
    assert queue.extend_batch([], 1.0) == []


def test_what_is_given_back_was_never_delivered(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch(["a", "b", "c"])
    for _ in range(3):
        messages = queue.pop_batch(3)
        assert [each.attempts for each in messages] == [1, 1, 1]
        assert queue.give_back(messages) == []
    info = queue.info()
    assert (info.ready, info.nacked, info.dead_lettered) == (3, 0, 0)


def test_what_was_done_is_refused(client: Any) -> None:
    queue = client.create_queue("q")
    ids = list(queue.push_batch(["a", "b", "c"]))
    messages = queue.pop_batch(3)
    messages[1].ack()
    assert queue.nack_batch(messages) == [(ids[1], "stale_receipt")]
    assert queue.give_back(messages) == [(each, "stale_receipt") for each in ids]
    assert queue.nack_batch([]) == []
    assert queue.give_back([]) == []


def test_both_free_the_prefetch(client: Any) -> None:
    queue = client.create_queue("q", max_attempts=None)
    queue.push_batch([str(number) for number in range(4)])
    with queue.subscribe(prefetch=2) as subscription:
        for finish in (queue.nack_batch, queue.give_back):
            for _ in range(3):
                pair = [subscription.get(10), subscription.get(10)]
                assert None not in pair
                assert finish(pair) == []


def test_only_messages_of_this_queue(client: Any) -> None:
    client.create_queue("q").push("a")
    other = client.create_queue("other")
    messages = client.queue("q").pop_batch(1)
    with pytest.raises(nexo.InvalidArgument):
        other.nack_batch(messages)
    with pytest.raises(nexo.InvalidArgument):
        other.give_back([messages[0]])


def _dead_letters(client: Any, queue: Any, count: int) -> list[Any]:
    eventually(lambda: queue.info().dead_lettered == count)
    eventually(lambda: len(client.queue("q_dlq").peek(count)) == count)
    return list(client.queue("q_dlq").pop_batch(count))
