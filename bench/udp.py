"""Publishes over UDP: one sender, the broker in a process of its own, everything fsynced.

The sender keeps a window of datagrams unanswered. Every one has a reference, so it is known which
were confirmed; afterwards they are all looked for in the topic.
"""

from __future__ import annotations

import json
import select
import shutil
import socket
from time import perf_counter
from typing import TYPE_CHECKING

import nexo
from bench.result import Result
from bench.rpc import ROUNDS, SECONDS, running_broker, together

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 1_000
PATIENCE_S = 0.5  # a datagram that is not answered by then is given up
_REPLY_BYTES = 4_096


def run(directory: Path) -> list[Result]:
    rounds = [_round(directory) for _ in range(ROUNDS)]
    shutil.rmtree(directory, ignore_errors=True)
    rate = max(each[0] for each in rounds)
    name = f"publishes over UDP, one sender, {WINDOW:,} in flight"
    return [
        Result(f"{name}: confirmed", rate, "msg/s", 20e3),
        Result("confirmed and not in the topic", sum(each[1] for each in rounds), "", 0, "most"),
        Result("sent and not confirmed", sum(each[2] for each in rounds), "datagrams"),
        Result("CPU of the broker", min(each[3] for each in rounds), "us/msg"),
    ]


def _round(directory: Path) -> tuple[float, int, int, float]:
    """Confirmed a second, confirmed but lost, not confirmed, and CPU for each."""
    with running_broker(directory) as broker, nexo.connect(broker.url) as client:
        topic = client.create_topic("bench")  # without a limit: everything stays to be looked for
        before_s, _ = broker.usage()
        assert broker.ports.udp is not None
        ((confirmed, sent, seconds),) = together((_publish, (broker.ports.udp,)))
        after_s, _ = broker.usage()
        kept: set[int] = set()
        offset = 0
        while events := topic.read(offset, 10_000):
            kept.update(event.json()["number"] for event in events)
            offset = events[-1].offset + 1
    cpu_us = (after_s - before_s) / len(confirmed) * 1e6
    return len(confirmed) / seconds, len(confirmed - kept), sent - len(confirmed), cpu_us


def _publish(port: int) -> tuple[set[int], int, float]:
    """Publish for a while; which numbers were confirmed, how many were sent, and how long."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        sender.connect(("127.0.0.1", port))
        sender.setblocking(False)
        confirmed: set[int] = set()
        sent = given_up = 0
        started = perf_counter()
        while perf_counter() - started < SECONDS:
            while sent - len(confirmed) - given_up < WINDOW:
                sender.send(_datagram(sent))
                sent += 1
            if not _take_replies(sender, confirmed):
                given_up = sent - len(confirmed)
        seconds = perf_counter() - started
        while len(confirmed) < sent and _take_replies(sender, confirmed):
            pass
        return confirmed, sent, seconds


def _datagram(number: int) -> bytes:
    return (
        b'{"action": "publish", "topic": "bench", "ref": %d, '
        b'"payload": {"number": %d, "text": "a message of some length"}}' % (number, number)
    )


def _take_replies(sender: socket.socket, confirmed: set[int]) -> bool:
    """All that is there; False if nothing comes for a while."""
    if not select.select([sender], [], [], PATIENCE_S)[0]:
        return False
    while True:
        try:
            reply = json.loads(sender.recv(_REPLY_BYTES))
        except BlockingIOError:
            return True
        if reply["status"] == "success":
            confirmed.add(reply["ref"])
