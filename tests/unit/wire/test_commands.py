"""The heads of frames: there and back, and nothing but a `ProtocolError` for what is no head."""

from __future__ import annotations

from typing import Any

import pytest

from nexo.vocabulary.errors import QueueFull
from nexo.wire import commands as c
from nexo.wire.frame import ProtocolError

HEADS: list[Any] = [
    c.Hello("NEXO", (1, 3), "me", "token", 500),
    c.Welcome(1, "nexo", 5_000, 2**63 - 1),
    c.Refusal("queue_full", "message", "hint", True),
    c.Ended(4, c.Refusal("queue_not_found", "gone", "", False)),
    c.Nack("q", [(1, 2, 3), (2**64 - 1, 0, 1)], None, "why"),
    c.Extend("q", [(1, 2, 3)], 1_000),
    c.Subscribe("q", 1, 100, "me", 30_000, True),
    c.Publish("t", "p", 9),
    c.Read("t", 5, 10, 1_000, True, 20),
    c.Read("t", 0, 10, 1_000, False, 20, 1_700_000_000_000),
    c.Follow("fleet.>", {"fleet.a": 5}, 10, 1_000, 20),
    c.Followed([c.FollowedTopic("fleet.a", 7, 80)]),
    c.Call("purge", {"name": "q"}),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_there_and_back(head: Any) -> None:
    assert c.unpack(c.pack(head), type(head)) == head


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
@pytest.mark.parametrize("wrong", [b"", b"\xc1", b"\x90", b"\x91\x05", b"\xff" * 40, b"\xa1\xff"])
def test_what_is_no_head(head: Any, wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        c.unpack(wrong, type(head))


def test_hot_heads() -> None:
    push = c.Push("orders", "producer", 2**64 - 1)
    assert c.unpack_push(c.pack_push(push)) == push
    for pop in (
        c.Pop("q", 1, 2, 3, None, one_ack=True),
        c.Pop("q", 10_000, 2**40, 0, 0),
        c.Pop("q", 1, 2, ahead=True),
    ):
        assert c.unpack_pop(c.pack_pop(pop)) == pop
    ranges = [(2**64 - 1, 0, 1), (1, 5, 9)]
    assert c.unpack_ranges(c.pack_ranges("q", ranges)) == c.Acked("q", ranges)
    assert c.unpack_credit(c.pack_credit(3, 100)) == c.Credit(3, 100)
    assert c.unpack_unsubscribe(c.pack_unsubscribe(3, keep=True)) == c.Unsubscribe(3, True)
    accepted = c.pack_accepted(2**64 - 1, 1, [1, 5, 9, 10])
    assert c.unpack_accepted(accepted) == c.AcceptedHead(2**64 - 1, 1, (1, 5, 9, 10))
    head = c.DeliveryHead(1, -2, 3, 4, 5, 6, 7)
    assert c.unpack_delivery(c.pack_delivery(head)) == head


@pytest.mark.parametrize(
    ("unpack", "good"),
    [
        (c.unpack_push, c.pack_push(c.Push("q", "p", 1))),
        (c.unpack_pop, c.pack_pop(c.Pop("q", 1, 1))),
        (c.unpack_ranges, c.pack_ranges("q", [(1, 2, 3)])),
        (c.unpack_credit, c.pack_credit(1, 2)),
        (c.unpack_unsubscribe, c.pack_unsubscribe(1, keep=False)),
        (c.unpack_accepted, c.pack_accepted(1, 0, [1, 2])),
        (c.unpack_delivery, c.pack_delivery(c.DeliveryHead(1, 2, 3, 4))),
    ],
)
def test_cut_heads(unpack: Any, good: bytes) -> None:
    unpack(good)
    for length in range(len(good)):
        # Without their ranges, the answer to a push and an ack's name are whole by themselves.
        if unpack is c.unpack_accepted and length == 12:
            continue
        with pytest.raises(ProtocolError):
            unpack(good[:length])


def test_names_that_do_not_fit() -> None:
    with pytest.raises(ProtocolError):
        c.pack_push(c.Push("x" * 256))
    with pytest.raises(ProtocolError):
        c.unpack_push(b"\x02\xff\xff" + bytes(10))


def test_a_refusal_carries_the_error() -> None:
    refusal = c.unpack(c.refusal_of(QueueFull("full", "wait")), c.Refusal)
    assert refusal == c.Refusal("queue_full", "full", "wait", True)
