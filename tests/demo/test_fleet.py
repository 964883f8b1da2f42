"""The fleet: how vehicles move, the three ways to the broker, and the tally."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from examples.gps import names
from examples.gps.by_native import NativeSender
from examples.gps.by_sqs import SqsSender
from examples.gps.by_udp import UdpSender
from examples.gps.fleet import Convoy, Sender
from examples.gps.tally import Tally, Total, read_positions, read_totals
from examples.gps.vehicle import CALM, HASTY, WEARY, Vehicle
from tests.demo.plain_motion import distance_m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from examples.gps.position import Position
    from nexo import Client
    from tests.cli.commands import BrokerProcess


def test_a_seed_gives_the_same_fleet() -> None:
    def ways(seed: int) -> list[object]:
        fleet = [Vehicle(number, "udp", seed) for number in range(20)]
        return [each.report(1_000 * second, 1.0) for second in range(20) for each in fleet]

    assert ways(1) == ways(1)
    assert ways(1) != ways(2)


def test_every_position_has_an_id_of_its_own() -> None:
    fleet = [Vehicle(number, "udp", 1) for number in range(30)]
    ids = [each.report(second, 1.0).id for second in range(50) for each in fleet]
    assert len(set(ids)) == 1_500


def test_vehicles_have_habits_and_keep_to_them() -> None:
    fleet = [Vehicle(number, "udp", 1) for number in range(240)]
    habits = [each.habits for each in fleet]
    assert habits.count(HASTY) > 5
    assert habits.count(WEARY) > 3
    assert habits.count(CALM) > 180
    calm = next(each for each in fleet if each.habits is CALM)
    seen = [calm.report(second, 1.0) for second in range(300)]
    good = [each for each in seen if each.lat not in (0.0, 99.9)]
    steps = [
        distance_m(one.lat, one.lon, two.lat, two.lon)
        for one, two in itertools.pairwise(good)
        if two.at - one.at == 1
    ]
    usual = [step for step in steps if step < 1_000]
    assert max(usual) < CALM.speed_max / 3.6 + 1
    assert min(usual) < 1, "it stood at times"
    assert len(steps) - len(usual) < 10, "its receiver errs rarely"


@pytest.mark.parametrize("path", ["udp", "sqs", "native"])
def test_a_way_to_the_broker(
    path: str, broker: BrokerProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.gps.by_udp.CONFIRM_S", 30.0)  # this machine may be slow
    vehicle = Vehicle(1, path, 1)
    positions = [vehicle.report(second, 1.0) for second in range(25)]
    over = threading.Event()
    senders: dict[str, Callable[[], Sender]] = {
        "udp": lambda: UdpSender("127.0.0.1", broker.udp_port),
        "sqs": lambda: SqsSender("127.0.0.1", broker.http_port, over),
        "native": lambda: NativeSender(broker.url),
    }
    sender = senders[path]()
    ids = [each.id for each in positions]
    assert sorted(sender.send(positions)) == ids
    topic = client.topic(names.BY_UDP)
    kept = topic if path == "udp" else client.topic(names.POSITIONS_KEPT)
    assert sorted(event.json()["id"] for event in kept.read(0, 100)) == ids
    if path != "udp":
        sender.send(positions)
        assert client.queue(names.POSITIONS).info().pushed == 25, "sent again, and not doubled"
    sender.close()


def test_nobody_confirms_what_nobody_got() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        over = threading.Event()
        over.set()
        positions = [Vehicle(1, "udp", 1).report(0, 1.0)]
        sqs = SqsSender("127.0.0.1", port, over)
        assert sqs.send(positions) == []
        udp = UdpSender("127.0.0.1", port)
        assert udp.send(positions) == []
        udp.close()


class Half:
    """A sender that gets half of it through."""

    path = "udp"

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, positions: Sequence[Position]) -> list[str]:
        ids = [each.id for each in positions]
        self.sent += ids
        return ids[::2]

    def close(self) -> None:
        pass


def test_the_tally_knows_what_was_sent_and_what_was_confirmed(tmp_path: Path) -> None:
    file = tmp_path / "tally.db"
    assert read_totals(file) == {}
    assert read_positions(file) == {}
    half = Half()
    with Tally(file) as tally:
        vehicles = [Vehicle(number, "udp", 1) for number in range(10)]
        convoy = Convoy(half, vehicles, tally, threading.Event())
        convoy.report(vehicles)
        assert read_totals(file)["udp"] == Total(sent=10, confirmed=5)
        tally.confirm("udp", half.sent[:2])
        assert read_totals(file)["udp"] == Total(sent=10, confirmed=6), "each counts once"
    found = read_positions(file)
    assert sorted(found) == sorted(half.sent)
    assert sum(found.values()) == 6
