"""Acks that nobody waits for: those of a moment are one call, and none is lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.integrations import acks as module
from nexo.integrations.acks import Acks
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_S = 600.0
MANY = 1_000  # more than any test has: half of it never waits


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes because it has waited for long enough."""
    monkeypatch.setattr(module, "GATHER_S", LONG_S)


@pytest.fixture
def queue(client: nexo.Client, name: str) -> nexo.Queue:
    queue = client.queue(name, create=True)
    queue.push_batch([b"x"] * 20)
    return queue


@pytest.fixture
def sent(client: nexo.Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each frame acks that nobody waits for."""
    begin, counts = client._connection.begin, []

    def counted(operation: Any) -> None:
        counts.append(sum(end - first for _, first, end in operation.ranges))
        begin(operation)

    monkeypatch.setattr(client._connection, "begin", counted)
    return counts


@pytest.fixture
def acks(client: nexo.Client) -> Iterator[Acks]:
    acks = Acks(client)
    yield acks
    acks.stop()


@pytest.mark.usefixtures("patient")
def test_half_of_what_a_consumer_may_hold_is_acked_together(
    acks: Acks, sent: list[int], queue: nexo.Queue
) -> None:
    for message in queue.pop_batch(19):
        acks.add(message, prefetch=20)
    eventually(lambda: queue.info().in_flight == 9)
    assert sent == [10]


@pytest.mark.usefixtures("patient")
def test_less_than_half_waits_for_others(acks: Acks, sent: list[int], queue: nexo.Queue) -> None:
    for message in queue.pop_batch(9):
        acks.add(message, prefetch=20)
    time.sleep(0.05)
    assert not sent
    acks.flush()
    assert sent == [9]


@pytest.mark.usefixtures("patient")
def test_a_consumer_of_one_message_is_not_kept_waiting(acks: Acks, queue: nexo.Queue) -> None:
    for _ in range(3):
        message = queue.pop(wait=5.0)
        assert message is not None
        acks.add(message, prefetch=1)
        eventually(lambda: not queue.info().in_flight)


def test_none_waits_for_long(acks: Acks, queue: nexo.Queue) -> None:
    for message in queue.pop_batch(5):
        acks.add(message, prefetch=MANY)
    eventually(lambda: queue.info().depth == 15)
    eventually(lambda: not acks._is_watched)
    for message in queue.pop_batch(5):  # also when there was nothing to do in between
        acks.add(message, prefetch=MANY)
    eventually(lambda: queue.info().depth == 10)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("end", [Acks.flush, Acks.stop])
def test_whoever_ends_waits_for_all_of_them(acks: Acks, queue: nexo.Queue, end: Any) -> None:
    for message in queue.pop_batch(20):
        acks.add(message, prefetch=MANY)
    end(acks)
    assert queue.info().depth == 0


def test_every_one_of_many_threads_arrives(acks: Acks, client: nexo.Client, name: str) -> None:
    queue = client.queue(name, create=True)
    queue.push_batch([b"x"] * 3_000)
    taken = list(queue.pop_batch(3_000))

    def ack(messages: list[nexo.Message]) -> None:
        for message in messages:
            acks.add(message, prefetch=16)

    threads = [threading.Thread(target=ack, args=(taken[begin::8],)) for begin in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    acks.flush()
    assert queue.info().depth == 0


def test_what_was_refused_is_told(
    acks: Acks, queue: nexo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    message = queue.pop()
    assert message is not None
    queue.purge()
    with caplog.at_level(logging.WARNING, "nexo.integrations"):
        acks.add(message, prefetch=1)
        acks.flush()
    assert "will be delivered again" in "".join(caplog.messages)


def test_it_is_told_while_the_worker_works(
    acks: Acks, queue: nexo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    message = queue.pop()
    assert message is not None
    queue.purge()
    with caplog.at_level(logging.WARNING, "nexo.integrations"):
        acks.add(message, prefetch=1)
        queue.info()  # whoever reads hears the answer
        eventually(lambda: "will be delivered again" in "".join(caplog.messages))


def test_of_a_closed_client_they_are_lost_and_told(
    broker: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = nexo.connect(broker.url)
    queue = client.queue(name, create=True)
    queue.push(b"x")
    message = queue.pop()
    assert message is not None
    acks = Acks(client)
    client.close()
    with caplog.at_level(logging.WARNING, "nexo.integrations"):
        acks.add(message, prefetch=1)
        acks.stop()
    assert "will be delivered again" in "".join(caplog.messages)


def test_of_a_deleted_queue_nothing_is_told(
    acks: Acks, queue: nexo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """As Celery's queues of remote control are, right after their last message."""
    message = queue.pop()
    assert message is not None
    queue.delete()
    acks.add(message, prefetch=1)
    acks.flush()
    assert not caplog.messages
