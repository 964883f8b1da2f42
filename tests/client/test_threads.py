"""The blocking client in many threads, and across a fork."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import nexo
from nexo.client.blocking import connection
from nexo.client.blocking.sockets import send_all
from tests.client.eventually import eventually

if TYPE_CHECKING:
    import pytest

    from tests.client.running import RunningBroker


def test_sixteen_threads_on_one_client(broker: Any) -> None:
    with nexo.connect(broker.url, timeout=30) as client:
        queue = client.queue("q", create=True)
        queue.info()
        pushed: list[str] = []
        taken: list[str] = []
        failed: list[BaseException] = []

        def produce(worker: int) -> None:
            for number in range(60):
                pushed.append(queue.push(f"{worker}-{number}"))
                if number % 10 == 0:
                    queue.info()

        def consume() -> None:
            while len(taken) < 480:
                message = queue.pop(wait=0.2)
                if message is not None:
                    message.ack()
                    taken.append(message.id)

        def guarded(work: Any, *arguments: Any) -> None:
            try:
                work(*arguments)
            except nexo.NexoError as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(produce, each)) for each in range(8)]
        threads += [threading.Thread(target=guarded, args=(consume,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert not failed
        assert len(taken) == len(set(taken)) == 480
        assert set(taken) == set(pushed)
        assert queue.info().depth == 0


def test_subscription_shared_by_threads(broker: Any) -> None:
    with nexo.connect(broker.url, timeout=30) as client:
        queue = client.queue("q", create=True)
        queue.push_batch([str(number) for number in range(400)])
        seen: list[str] = []
        subscription = queue.subscribe(prefetch=50)

        ends = time.monotonic() + 40

        def consume() -> None:
            while len(seen) < 400 and time.monotonic() < ends:
                message = subscription.get(timeout=0.5)
                if message is not None:
                    with message:
                        seen.append(message.text)

        threads = [threading.Thread(target=consume) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        subscription.close()
        assert sorted(seen, key=int) == [str(number) for number in range(400)]


def test_a_fork_has_a_connection_of_its_own(broker: Any) -> None:
    with nexo.connect(broker.url, timeout=20) as client:
        queue = client.queue("q", create=True)
        queue.push("parent")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, queue.push("child").encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            from_child = pipe.read()
        queue.push("parent again")
        messages = queue.pop_batch(10)
        assert {m.text for m in messages} == {"parent", "child", "parent again"}
        assert from_child in {m.id for m in messages}


def test_handles_outlive_their_client_object(broker: Any) -> None:
    queue = nexo.connect(broker.url, timeout=20).queue("q", create=True)
    queue.push("x")
    message = queue.pop()
    assert message is not None
    message.ack()


def test_closing_waits_for_what_another_thread_writes(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Often that is the word of a message that it was received, and the keeper writes it."""
    honest, begun = send_all, threading.Event()

    def slow(sock: Any, data: bytes) -> Any:
        begun.set()
        time.sleep(0.3)
        return honest(sock, data)

    with nexo.connect(broker.url) as other:
        orders = other.create_queue("orders")
        client = nexo.connect(broker.url)
        client.queue("orders").info()
        monkeypatch.setattr(connection, "send_all", slow)

        def push() -> None:
            with contextlib.suppress(nexo.NexoError):  # the client is closed before the answer
                client.queue("orders").push("in time")

        pushing = threading.Thread(target=push)
        pushing.start()
        assert begun.wait(20)
        client.close()
        pushing.join(20)
        eventually(lambda: orders.info().depth == 1)
