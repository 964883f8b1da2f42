"""Three nodes under load while nodes are killed and put to sleep: every confirmed push is delivered
or there, and what was acked never comes again."""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import CLUSTER_LEASE_S
from tests.cluster.nodes import Nodes, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

QUEUES = [f"queue{each}" for each in range(6)]
NAMES = ("a", "b", "c")


class Load:
    """Producers and consumers, and what they were told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.pushed: set[str] = set()  # confirmed
        self.acked: set[str] = set()  # confirmed
        self.seen: set[str] = set()
        self.back: list[str] = []  # they came again after their ack was confirmed
        self.errors: list[str] = []

    def begin(self) -> None:
        for queue in QUEUES:
            for work in (self._produce, self._consume):
                thread = threading.Thread(target=self._guarded, args=(work, queue), daemon=True)
                thread.start()
                self._threads.append(thread)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _guarded(self, work, queue: str) -> None:
        with nexo.connect(self._url, timeout=40) as client:
            while not self._stop.is_set():
                try:
                    work(client.queue(queue))
                except NexoError as error:  # a client sees time pass, and nothing else
                    self.errors.append(f"{type(error).__name__}: {error}")

    def _produce(self, queue: nexo.Queue) -> None:
        self.pushed.update(queue.push_batch([b"x"] * 5))
        time.sleep(0.02)

    def _consume(self, queue: nexo.Queue) -> None:
        messages = queue.pop_batch(20, wait=0.5)
        self.back += [message.id for message in messages if message.id in self.acked]
        self.seen.update(message.id for message in messages)
        refused = {message_id for message_id, _ in queue.ack_batch(messages)}
        self.acked.update(message.id for message in messages if message.id not in refused)


def account(load: Load, url: str) -> None:
    """What is left is taken once the visibility timeout is over."""
    until = time.monotonic() + 40
    with nexo.connect(url, timeout=40) as client:
        for name in QUEUES:
            queue = client.queue(name)
            while queue.info().depth:
                assert time.monotonic() < until, queue.info()
                load._consume(queue)
    assert load.back == []
    # An ack whose answer was lost may have been applied: then its second try is refused. So what
    # was seen once and is gone is no loss; what nobody ever saw is.
    assert load.pushed - load.seen == set(), "confirmed, and lost"


def one_round(nodes: Nodes, chance: random.Random) -> None:
    name = chance.choice([each for each in NAMES if each in nodes.processes])
    if chance.random() < 0.5:
        nodes.kill(name)
        time.sleep(CLUSTER_LEASE_S + 1)
        nodes.start(name)
    else:
        nodes.send(name, signal.SIGSTOP)
        time.sleep(CLUSTER_LEASE_S + 1 + chance.random())
        nodes.send(name, signal.SIGCONT)
        time.sleep(1)


def play(folder: Path, postgresql: PostgresqlServer, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    with (
        postgresql.database(f"cluster_rounds_{rounds}") as journal,
        running(folder, journal, *NAMES) as nodes,
    ):
        url = "nexo://" + ",".join(f"127.0.0.1:{nodes[name].port}" for name in NAMES)
        with nexo.connect(url) as client:
            for queue in QUEUES:
                client.create_queue(queue, visibility_timeout=10.0, max_attempts=None)
        load = Load(url)
        load.begin()
        try:
            for _ in range(rounds):
                one_round(nodes, chance)
        finally:
            load.end()
        assert load.errors == [], f"seed {seed}"
        assert len(load.pushed) > 100
        account(load, url)


def test_one_round(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    play(tmp_path, postgresql, rounds=1, seed=random.randrange(1 << 30))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_fifty_rounds(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    play(tmp_path, postgresql, rounds=50, seed=random.randrange(1 << 30))
