"""Who is connected and who consumes what, and closing one: on both twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.engine.connections import AckTally, state_of
from tests.access.guarded import GuardedBroker
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from tests.client.running import RunningBroker


def test_a_consumer_is_shown_and_closed(client: Any, broker: RunningBroker) -> None:
    client.create_queue("orders").push_batch([b"x"] * 5)
    with nexo.connect(broker.url, name="worker-1") as other:
        subscription = other.queue("orders").subscribe(prefetch=3)
        messages = iter(subscription)
        message = next(messages)
        (mine,) = [each for each in client.connections() if each.name == "worker-1"]
        assert mine.address == "127.0.0.1"
        assert mine.software == f"nexo-python {nexo.__version__}"
        (consumer,) = mine.consumers
        assert (consumer.queue, consumer.prefetch, consumer.unacked) == ("orders", 3, 3)
        assert (consumer.state, consumer.acked, consumer.last_ack_at) == ("working", 0, None)
        message.ack()

        def acked() -> bool:
            (now,) = [each for each in client.connections() if each.name == "worker-1"]
            return [each.acked for each in now.consumers] == [1]

        eventually(acked)
        client.close_connection(mine.number)
        # What it held is given to whoever comes back: itself, on another connection.
        eventually(
            lambda: [each.number > mine.number for each in client.connections()
                     if each.name == "worker-1"] == [True]
        )  # fmt: skip
        subscription.close()
    with pytest.raises(nexo.ConnectionNotFound):
        client.close_connection(mine.number)


def test_only_admins_see_and_close_connections() -> None:
    broker = GuardedBroker()
    try:
        token = broker.token("*:push,pop,peek,manage")
        with nexo.connect(broker.url, token=token) as client:
            for call in (client.connections, lambda: client.close_connection(1)):
                with pytest.raises(nexo.Forbidden):
                    call()
        with nexo.connect(broker.url, token=broker.token("*:admin"), name="me") as admin:
            (me,) = [each for each in admin.connections() if each.name == "me"]
            assert me.token.startswith("token-")
        told = {(each.action, each.outcome, each.resource) for each in broker.audit()}
        assert ("close_connection", "forbidden", "connection 1") in told
    finally:
        broker.stop()


def test_a_rate_follows_and_fades() -> None:
    tally = AckTally(0)
    for second in range(1, 31):
        tally.add(100, second * 1000)
    assert 80 < tally.rate(30_000) < 120
    assert tally.rate(60_000) < tally.rate(35_000) < 100
    assert tally.count == 3_000


@pytest.mark.parametrize(
    ("unacked", "is_reading", "held_ms", "silent_ms", "expected"),
    [
        (0, True, 0, 10**12, "idle"),
        (0, True, 0, 100, "working"),
        (5, True, 1_000, 10**12, "working"),  # it was given something just now
        (5, True, 100_000, 1_000, "working"),  # it has held one for long, and acks others
        (5, True, 100_000, 100_000, "stuck"),
        (0, False, 0, 0, "not reading"),
    ],
)
def test_states(
    unacked: int, is_reading: bool, held_ms: int, silent_ms: int, expected: str
) -> None:
    assert state_of(unacked, is_reading, held_ms, silent_ms) == expected
