"""`kill -9` of the broker under load: what was confirmed is there, once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import nexo

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest

KILLS = 3


class Process:
    """A broker that can be killed and started again on the same port and data."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.port}"

    def start(self) -> None:
        script = Path(__file__).with_name("broker_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(self._data), str(self.port)], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path / "data")
    yield running
    running.kill()


def test_no_confirmed_push_is_lost_or_doubled(process: Process) -> None:
    confirmed: list[tuple[str, str]] = []
    stop = threading.Event()
    failed: list[nexo.NexoError] = []
    with nexo.connect(process.url, timeout=40) as client:
        queue = client.queue("q", create=True)
        queue.info()

        def produce(worker: int) -> None:
            number = 0
            try:
                while not stop.is_set():
                    body = f"{worker}-{number}"
                    confirmed.append((queue.push(body), body))
                    number += 1
                    if number % 7 == 0:
                        bodies = [f"{worker}-{number}-{each}" for each in range(5)]
                        confirmed.extend(zip(queue.push_batch(bodies), bodies, strict=True))
            except nexo.NexoError as error:
                failed.append(error)

        workers = [threading.Thread(target=produce, args=(worker,)) for worker in range(6)]
        for worker in workers:
            worker.start()
        for _ in range(KILLS):
            time.sleep(0.5)
            process.kill()
            process.start()
        time.sleep(0.3)
        stop.set()
        for worker in workers:
            worker.join(40)
        assert not failed
        found: list[tuple[str, str]] = []
        while messages := queue.pop_batch(10_000, wait=0.5):
            found += [(message.id, message.text) for message in messages]
            assert queue.ack_batch(messages) == []
    twice = [body for body, count in Counter(body for _, body in found).items() if count > 1]
    assert not twice
    assert len(confirmed) > 100
    assert sorted(found) == sorted(confirmed)


def test_a_consumer_works_on_through_kills(process: Process) -> None:
    """Every message is worked on, and what was confirmed as acked does not come again."""
    with nexo.connect(process.url, timeout=40) as client:
        queue = client.create_queue("q", visibility_timeout=2.0, retransmit_timeout=2.0)
        queue.push_batch([str(number) for number in range(600)])
        acked: list[str] = []
        stale = 0
        killer = threading.Thread(target=lambda: _kill_sometimes(process))
        killer.start()
        with queue.subscribe(prefetch=20) as subscription:
            ends = time.monotonic() + 50
            while killer.is_alive() or queue.info().depth:
                assert time.monotonic() < ends, f"{queue.info().depth} never came"
                message = subscription.get(timeout=0.5)
                if message is None:  # the broker may take seconds to start
                    continue
                time.sleep(0.002)
                try:
                    message.ack()
                    acked.append(message.text)
                except nexo.StaleReceipt:
                    stale += 1
        killer.join()
    assert len(acked) == len(set(acked))
    assert len(acked) + stale >= 600


def _kill_sometimes(process: Process) -> None:
    for _ in range(KILLS):
        time.sleep(0.5)
        process.kill()
        process.start()
