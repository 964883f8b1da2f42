"""What was confirmed is there after the broker ended, in order or by `kill -9`."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from tests.cli.commands import BrokerProcess
from tests.client.eventually import eventually
from tests.udp.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.client.running import RunningBroker

LIVES = 3
SENDERS = 3
WINDOW = 50
CONFIRMED_A_LIFE = 1_500


def test_messages_survive_and_subscriptions_do_not(broker: RunningBroker, peer: Peer) -> None:
    peer.ask("subscribe")
    peer.publish(range(150))
    broker.restart()
    assert peer.payloads() == []
    peer.ask("subscribe")
    assert peer.payloads() == list(range(50, 150))
    peer.publish([150])
    assert peer.payloads() == list(range(51, 151))


class Sender(threading.Thread):
    """Publishes with a window of unanswered datagrams until the broker is gone. If nothing is on
    its way to it any more, the network does not say so: then `gone` does."""

    def __init__(self, port: int, mark: str) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._mark = mark
        self.confirmed: list[str] = []
        self.refused: list[Any] = []
        self.gone = threading.Event()

    def run(self) -> None:
        with Peer(self._port) as peer:
            peer.socket.settimeout(0.5)
            number = waiting = 0
            try:
                while not self.refused:
                    while waiting < WINDOW:
                        name = f"{self._mark}-{number}"
                        peer.send(
                            {"action": "publish", "topic": "load", "payload": name, "ref": name}
                        )
                        number, waiting = number + 1, waiting + 1
                    try:
                        self._note(peer.socket.recv(65_536))
                        waiting -= 1
                    except TimeoutError:
                        if self.gone.is_set():
                            self._take_the_rest(peer)
                            return
            except ConnectionError:
                self._take_the_rest(peer)

    def _take_the_rest(self, peer: Peer) -> None:
        """The broker is gone; its last replies may lie behind the news of that."""
        peer.socket.setblocking(False)
        while True:
            try:
                self._note(peer.socket.recv(65_536))
            except BlockingIOError:
                return
            except ConnectionError:
                continue

    def _note(self, data: bytes) -> None:
        reply = json.loads(data)
        if reply["status"] == "success":
            self.confirmed.append(reply["ref"])
        else:
            self.refused.append(reply)


def everything_in(client: Any, topic: str) -> list[Any]:
    kept: list[Any] = []
    while events := client.topic(topic).read(len(kept), 10_000):
        kept += [event.json() for event in events]
    return kept


def test_a_stop_in_order_answers_what_it_took(broker: RunningBroker, native: Any) -> None:
    """Datagrams come while the broker stops: what it read, it answers."""
    native.create_topic("load")  # it keeps everything
    sender = Sender(broker.udp_port, "a")
    sender.start()
    eventually(lambda: len(sender.confirmed) > 500)
    broker.stop()
    sender.gone.set()
    sender.join()
    assert not sender.refused
    broker.start()
    with nexo.connect(broker.url) as client:
        assert everything_in(client, "load") == sender.confirmed


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    yield running
    running.kill()


@pytest.mark.timeout(120)
def test_kill_under_load(process: BrokerProcess) -> None:
    confirmed: list[str] = []
    process.start()
    with nexo.connect(process.url) as client:
        client.create_topic("load")  # it keeps everything
    for life in range(LIVES):
        if life:
            process.start()
        senders = [Sender(process.udp_port, f"{life}-{each}") for each in range(SENDERS)]
        for sender in senders:
            sender.start()

        def count(senders: list[Sender] = senders) -> int:
            return sum(len(sender.confirmed) for sender in senders)

        eventually(lambda count=count: count() > CONFIRMED_A_LIFE, 30)  # type: ignore[misc]
        process.kill()
        for sender in senders:
            sender.gone.set()
            sender.join()
            assert not sender.refused
            assert sender.confirmed, "every sender must have been served"
            confirmed += sender.confirmed
    process.start()
    with nexo.connect(process.url) as client:
        kept = everything_in(client, "load")
    lost = set(confirmed) - set(kept)
    assert not lost, f"{len(lost)} of {len(confirmed)} were confirmed and are gone"
    assert not [name for name, times in Counter(kept).items() if times > 1]
    for life in range(LIVES):
        for each in range(SENDERS):
            numbers = [int(n.rpartition("-")[2]) for n in kept if n.startswith(f"{life}-{each}-")]
            assert numbers == sorted(numbers), "a sender's messages are in its order"
