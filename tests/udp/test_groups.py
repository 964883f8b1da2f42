"""Groups: a queue bound to the topic, taken from by `get` and finished by `ack`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.running import RunningBroker
    from tests.udp.peer import Peer

GROUP = {"group": "workers"}


def take(peer: Peer, **fields: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = peer.ask("get", **GROUP, **fields)["messages"]
    return messages


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in messages]


def test_each_message_goes_to_one_and_is_gone_once_acked(
    new_peer: Callable[[], Peer], native: Any
) -> None:
    one, two = new_peer(), new_peer()
    for each in (one, two):
        assert each.raw({"action": "subscribe", "topic": "news", **GROUP}) == (
            b'{"status": "success", "action": "subscribe", "topic": "news"}'
        )
    one.publish(range(6))
    ours, theirs = take(one, limit=4), take(two)
    assert [each["payload"] for each in ours + theirs] == list(range(6))
    assert (len(ours), len(theirs)) == (4, 2)
    assert list(ours[0]) == ["payload", "timestamp", "id", "attempts"]
    assert ours[0]["attempts"] == 1
    assert len(set(ids(ours + theirs))) == 6
    assert take(one) == []
    for peer, held in ((one, ours), (two, theirs)):
        assert peer.raw({"action": "ack", "topic": "news", **GROUP, "ids": ids(held)}) == (
            b'{"status": "success", "action": "ack", "topic": "news"}'
        )
    assert native.queue("news.workers").info().depth == 0
    one.ask("subscribe")
    assert one.payloads() == list(range(6))  # the topic keeps them


def test_what_is_not_acked_comes_again(new_peer: Callable[[], Peer]) -> None:
    one, two = new_peer(), new_peer()
    for each in (one, two):
        each.ask("subscribe", **GROUP)
    one.publish(["work"])
    (first,) = take(one, visibility_timeout=2.0)
    assert take(two) == []
    again: list[dict[str, Any]] = []

    def is_there() -> bool:
        again.extend(take(two))
        return bool(again)

    eventually(is_there)
    (second,) = again
    assert (second["id"], second["payload"], second["attempts"]) == (first["id"], "work", 2)
    # It is the other's now: the first one's ack is outdated.
    assert one.ask("ack", **GROUP, ids=[first["id"]])["refused"] == [
        {"id": first["id"], "code": "stale_receipt"}
    ]
    assert "refused" not in two.ask("ack", **GROUP, ids=[second["id"]])
    assert "refused" in two.ask("ack", **GROUP, ids=[second["id"]])


def test_the_timeout_is_that_of_the_queue(peer: Peer, native: Any) -> None:
    peer.ask("subscribe", **GROUP)
    native.queue("news.workers").edit(visibility_timeout=0.2)
    peer.publish(["work"])
    assert len(take(peer)) == 1
    eventually(lambda: take(peer) != [])


def test_acks_of_some_and_of_nonsense(peer: Peer, native: Any) -> None:
    peer.ask("subscribe", **GROUP)
    peer.publish(range(5))
    held = ids(take(peer))
    wanted = [held[3], "nonsense", held[1], held[1], "0" * 32, held[3].upper()]
    refused = peer.ask("ack", **GROUP, ids=wanted)["refused"]
    assert [each["id"] for each in refused] == ["nonsense", "0" * 32, held[3].upper()]
    info = native.queue("news.workers").info()
    assert (info.depth, info.in_flight) == (3, 3)
    assert peer.ask("ack", "news", group="others", ids=["a"])["code"] == "queue_not_found"


def test_a_get_needs_a_subscription(peer: Peer, native: Any) -> None:
    assert take(peer) == []
    peer.publish(["a"])
    assert take(peer) == []
    assert native.queues() == []


def test_a_group_begins_with_what_is_kept(peer: Peer) -> None:
    peer.publish(range(3))
    peer.ask("subscribe")
    assert [each["payload"] for each in take(peer)] == [0, 1, 2]
    peer.publish([3])
    assert [each["payload"] for each in take(peer)] == [3]


def test_groups_are_apart_from_each_other(peer: Peer) -> None:
    for group in ("a", "b", "perché no?", "x" * 256):
        peer.ask("subscribe", group=group)
    peer.publish(["each"])
    for group in ("a", "b", "perché no?", "x" * 256):
        assert peer.payloads(group=group) == ["each"]
        assert peer.payloads(group=group) == []


def test_a_group_is_that_of_the_native_client(peer: Peer, native: Any) -> None:
    peer.ask("subscribe", **GROUP)
    peer.publish([{"n": 1}, {"n": 2}])
    (first,) = take(peer, limit=1)
    with native.topic("news").subscribe(group="workers") as subscription:
        message = subscription.get(timeout=10)
        assert (message.json(), message.id != first["id"]) == ({"n": 2}, True)
        message.ack()
    peer.ask("ack", **GROUP, ids=[first["id"]])
    assert native.queue("news.workers").info().depth == 0


def test_a_queue_that_only_has_the_name_is_not_touched(peer: Peer, native: Any) -> None:
    native.create_queue("news.workers").push("mine")
    peer.publish(["x"])
    reply = peer.ask("subscribe", **GROUP)
    assert (reply["status"], reply["code"]) == ("error", "invalid_argument")
    peer.ask("subscribe")
    assert peer.ask("get", **GROUP)["status"] == "error"
    assert peer.ask("ack", **GROUP, ids=["a"])["code"] == "queue_not_found"
    assert native.queue("news.workers").info().ready == 1


@pytest.mark.parametrize(
    ("count", "filling"),
    [
        (7, "x" * 20_000),  # the queue gives no more than fit
        (99, "y" * 620),  # they fit, but not with what stands around them
        (12, "è\n" * 3_000),  # nor as JSON
    ],
)
def test_what_does_not_fit_the_datagram_is_given_back(
    peer: Peer, native: Any, count: int, filling: str
) -> None:
    peer.ask("subscribe", **GROUP)
    native.topic("news").publish_batch([f"{number} {filling}" for number in range(count)])
    seen: list[int] = []
    while messages := (reply := peer.ask("get", **GROUP))["messages"]:
        assert all(each["attempts"] == 1 for each in messages)
        assert ("truncated" in reply) == (len(seen) + len(messages) < count)
        assert "next" not in reply
        seen += [int(each["payload"].split()[0]) for each in messages]
        peer.ask("ack", **GROUP, ids=ids(messages))
    assert seen == list(range(count))


def test_a_message_that_fits_no_datagram_can_be_acked(peer: Peer, native: Any) -> None:
    peer.ask("subscribe", **GROUP)
    native.topic("news").publish("x" * 100_000)
    (message,) = take(peer)
    assert (message["payload"], message["code"]) == (None, "message_too_large")
    assert "refused" not in peer.ask("ack", **GROUP, ids=[message["id"]])
    assert native.queue("news.workers").info().depth == 0


def test_dead_letters_and_redrive(peer: Peer, native: Any) -> None:
    """What comes back from the dead-letter queue has the id that it had, and can be acked by it."""
    peer.ask("subscribe", **GROUP)
    native.queue("news.workers").edit(max_attempts=1)
    peer.publish(["poison", "other"])
    (first,) = take(peer, limit=1, visibility_timeout=0.05)
    graves = native.queue("news.workers_dlq")
    eventually(lambda: any(each.name == "news.workers_dlq" for each in native.queues()))
    eventually(lambda: len(graves.peek(10)) == 1)  # only what is on disk can be moved
    assert graves.redrive() == 1
    both = take(peer)
    assert {each["payload"] for each in both} == {"poison", "other"}
    assert first["id"] in ids(both)
    assert "refused" not in peer.ask("ack", **GROUP, ids=ids(both))
    assert native.queue("news.workers").info().depth == 0


def test_a_lease_survives_a_restart(broker: RunningBroker, peer: Peer, native: Any) -> None:
    peer.ask("subscribe", **GROUP)
    peer.publish(["work"])
    (message,) = take(peer)
    time.sleep(0.2)  # the delivery itself is written a little later, and waits for nothing
    broker.restart()
    assert "refused" not in peer.ask("ack", **GROUP, ids=[message["id"]])
    assert native.queue("news.workers").info().depth == 0
