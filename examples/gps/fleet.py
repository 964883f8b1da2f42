"""The process that sends: `python -m examples.gps.fleet`. SIGTERM ends it."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from examples.gps.by_native import NativeSender
from examples.gps.by_sqs import SqsSender
from examples.gps.by_udp import UdpSender
from examples.gps.tally import PATHS, Tally
from examples.gps.vehicle import Vehicle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.gps.position import Position

STEPS_PER_SECOND = 4  # a quarter of the vehicles reports at a time: traffic flows evenly


class Sender(Protocol):
    path: str

    def send(self, positions: Sequence[Position]) -> list[str]: ...

    def close(self) -> None: ...


class Convoy(threading.Thread):
    """The vehicles that use one way to the broker."""

    def __init__(
        self, sender: Sender, vehicles: Sequence[Vehicle], tally: Tally, over: threading.Event
    ) -> None:
        super().__init__(name=f"convoy-{sender.path}")
        self._sender = sender
        self._vehicles = vehicles
        self._tally = tally
        self._over = over

    def run(self) -> None:
        step_s = 1 / STEPS_PER_SECOND
        step, due = 0, time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            share = self._vehicles[step % STEPS_PER_SECOND :: STEPS_PER_SECOND]
            self.report(share)
            step += 1
            # After a pause it goes on from now: a vehicle does not report the past.
            due = max(due + step_s, time.monotonic())
        self._sender.close()

    def report(self, vehicles: Sequence[Vehicle]) -> None:
        """These say where they are. First the tally knows of it, then the broker: there is
        nothing in the broker that the tally has not seen."""
        now_ms = int(time.time() * 1000)
        positions = [vehicle.report(now_ms, 1.0) for vehicle in vehicles]
        self._tally.send(self._sender.path, [position.id for position in positions])
        self._tally.confirm(self._sender.path, self._sender.send(positions))


def convoys(plan: argparse.Namespace, tally: Tally, over: threading.Event) -> list[Convoy]:
    native, sqs, udp = urlsplit(plan.url), urlsplit(plan.http), urlsplit(plan.udp)
    senders: dict[str, Sender] = {
        "udp": UdpSender(str(udp.hostname), udp.port or 9326),
        "sqs": SqsSender(str(sqs.hostname), sqs.port or 9324, over),
        "native": NativeSender(native.geturl()),
    }
    found = []
    for turn, path in enumerate(PATHS):
        numbers = range(turn, plan.vehicles, len(PATHS))
        vehicles = [Vehicle(number, path, plan.seed) for number in numbers]
        found.append(Convoy(senders[path], vehicles, tally, over))
    return found


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.gps.fleet", description=__doc__)
    parser.add_argument("--url", default="nexo://127.0.0.1:9325", help="of the broker")
    parser.add_argument("--http", default="http://127.0.0.1:9324", help="of its SQS API")
    parser.add_argument("--udp", default="udp://127.0.0.1:9326", help="of its UDP door")
    parser.add_argument("--tally", type=Path, required=True, help="a file for what was confirmed")
    parser.add_argument("--vehicles", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    plan = arguments(given)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with Tally(plan.tally) as tally:
        under_way = convoys(plan, tally, over)
        for convoy in under_way:
            convoy.start()
        for convoy in under_way:
            convoy.join()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
