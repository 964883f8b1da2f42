"""A subscription that lingers: at high rates messages come together, and none waits in vain."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

import nexo
from nexo.doors.rpc_tcp.deliveries import Lingering, Subscriptions
from nexo.vocabulary.limits import LINGER_AFTER, LINGER_AFTER_MAX
from nexo.wire import commands

LINGER_MS = 5


def pauses(lingering: Lingering, deliveries: list[tuple[int, int]]) -> list[int]:
    """What is said of deliveries of so many messages, each so long after the last."""
    now_ms, said = 1_000, []
    for count, after_ms in deliveries:
        now_ms += after_ms
        said.append(lingering.pause_ms(count, now_ms))
    return said


def test_it_begins_with_many_deliveries_in_close_succession() -> None:
    said = pauses(Lingering(LINGER_MS), [(1, 1_000)] + LINGER_AFTER * [(1, LINGER_MS)])
    assert said == LINGER_AFTER * [0] + [LINGER_MS]


def test_it_does_not_begin_while_they_are_further_apart() -> None:
    said = pauses(Lingering(LINGER_MS), 1_000 * [(1, LINGER_MS + 1)])
    assert not any(said)


def test_one_gap_begins_the_count_anew() -> None:
    most = (LINGER_AFTER - 1) * [(1, 1)]
    assert not any(pauses(Lingering(LINGER_MS), 100 * [(1, 50), *most]))


def test_it_goes_on_while_it_brings_several_together() -> None:
    lingering = Lingering(LINGER_MS)
    pauses(lingering, (LINGER_AFTER + 1) * [(1, 1)])
    assert pauses(lingering, [(2, 5), (3, 5), (2, 60), (1, 5), (2, 1)]) == [5, 5, 5, 0, 0]


def test_each_time_it_brings_nothing_it_is_tried_less_often() -> None:
    """As of one who sends the next when the last one is done."""
    lingering = Lingering(LINGER_MS)
    said = pauses(lingering, 20_000 * [(1, 1)])
    tried = [at for at, pause_ms in enumerate(said) if pause_ms]
    gaps = [later - earlier - 1 for earlier, later in pairwise(tried)]
    assert gaps[:3] == [2 * LINGER_AFTER, 4 * LINGER_AFTER, 8 * LINGER_AFTER]
    assert set(gaps[5:]) == {LINGER_AFTER_MAX}
    while not lingering.pause_ms(1, 0):
        pass
    assert pauses(lingering, [(2, 1), (1, 1)]) == [LINGER_MS, 0]  # it has been worth it …
    assert pauses(lingering, 2 * LINGER_AFTER * [(1, 1)])[-1] == LINGER_MS  # … and is tried soon


# -- At the door ------------------------------------------------------------------------------


class Room:
    """What a subscription is told to do, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def rest(self, waiter: Any) -> None:
        self.said.append("rest")

    def wake(self, waiter: Any) -> None:
        self.said.append("wake")


class Actor:
    def __init__(self) -> None:
        self.room = Room()
        self.waiter = SimpleNamespace(free=10, leases=set())
        self.now = 0
        self.serve: Any = None

    def subscribe(self, *_: Any, **__: Any) -> Any:
        return self.waiter

    def unsubscribe(self, waiter: Any) -> None:
        self.room.said.append("leave")

    def now_ms(self) -> int:
        self.now += 1
        return self.now


def opened(actor: Actor) -> Subscriptions:
    subscriptions = Subscriptions()
    connection: Any = SimpleNamespace(engine=SimpleNamespace(queue=lambda _: actor))
    subscriptions.open(connection, commands.Subscribe("q", 1, 10, linger_ms=LINGER_MS))
    return subscriptions


def busy() -> Lingering:
    lingering = Lingering(1)
    pauses(lingering, (LINGER_AFTER + 1) * [(1, 0)])
    return lingering


def test_after_the_pause_it_is_served() -> None:
    actor, served = Actor(), asyncio.Event()
    actor.serve = served.set

    async def linger() -> None:
        opened(actor)._linger(1, busy(), 2)
        assert actor.room.said == ["rest"]
        await asyncio.wait_for(served.wait(), 10)

    asyncio.run(linger())
    assert actor.room.said == ["rest", "wake"]


def test_who_has_no_room_left_is_not_kept_waiting() -> None:
    actor = Actor()
    subscriptions = opened(actor)
    actor.waiter.free = 0
    subscriptions._linger(1, busy(), 2)
    assert actor.room.said == []


@pytest.mark.parametrize("end", [Subscriptions.pause, Subscriptions.close])
def test_who_does_not_read_or_has_gone_is_not_woken(end: Any) -> None:
    actor = Actor()
    subscriptions = opened(actor)
    waiter: Any = actor.waiter
    end(subscriptions)
    before = list(actor.room.said)
    subscriptions._go_on(1, waiter)
    assert actor.room.said == before


def test_another_subscription_of_that_number_is_not_woken() -> None:
    actor = Actor()
    subscriptions = opened(actor)
    other: Any = SimpleNamespace()
    subscriptions._go_on(1, other)
    assert actor.room.said == []


# -- From end to end --------------------------------------------------------------------------


def test_messages_come_together_and_all_of_them_come(client: nexo.Client) -> None:
    queue = client.queue("q", create=True)
    sizes: list[int] = []
    with queue.subscribe_batches(100, linger=0.2) as batches:
        pushed = 0
        while max(sizes, default=0) < 2 and pushed < 3_000:
            for _ in range(5):  # each is a commit of its own
                queue.push(b"x")
            pushed += 5
            while sum(sizes) < pushed:
                batch = batches.get(10.0)
                assert batch is not None
                sizes.append(len(batch))
                queue.ack_batch(batch)
    assert max(sizes) > 1


def test_a_consumer_of_one_message_at_a_time_does_not_linger(client: nexo.Client) -> None:
    queue = client.queue("q", create=True)
    queue.push_batch([b"x"] * 60)
    began = time.monotonic()
    with queue.subscribe_batches(1, prefetch=1, linger=1.0) as batches:
        for _ in range(60):
            batch = batches.get(10.0)
            assert batch is not None
            queue.ack_batch(batch)
    assert time.monotonic() - began < 25  # with a pause after each it takes 50 s


@pytest.mark.parametrize("linger", [-1.0, 1.1])
def test_a_time_out_of_range_is_refused(client: nexo.Client, linger: float) -> None:
    with pytest.raises(nexo.InvalidArgument, match="linger"):
        client.queue("q").subscribe_batches(linger=linger)
