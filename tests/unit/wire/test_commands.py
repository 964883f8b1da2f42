"""The heads of frames: there and back; what is no head is a `ProtocolError`, and one with values
out of range is refused by the name of its field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument, QueueFull
from nexo.wire import commands as c
from nexo.wire.frame import ProtocolError

HEADS: list[Any] = [
    c.Hello("NEXO", (1, 3), "me", "token", 500),
    c.Welcome(1, "nexo", 5_000, 2**63 - 1),
    c.Refusal("queue_full", "message", "hint", True),
    c.Ended(4, c.Refusal("queue_not_found", "gone", "", False)),
    c.Nack("q", [(1, 2, 3), (2**63 - 1, 0, 1)], None, "why"),
    c.Extend("q", [(1, 2, 3)], 1_000),
    c.Subscribe("q", 1, 100, "me", 30_000, True),
    c.Publish("t", "p", 9),
    c.Read("t", 5, 10, 1_000, True, 20),
    c.Read("t", 0, 10, 1_000, False, 20, 1_700_000_000_000),
    c.Follow("fleet.>", {"fleet.a": 5}, 10, 1_000, 20),
    c.Followed([c.FollowedTopic("fleet.a", 7, 80)]),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_there_and_back(head: Any) -> None:
    assert c.unpack(c.pack(head), type(head)) == head


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_what_is_no_head(head: Any) -> None:
    for wrong in (b"", b"\xc1", c.pack(head)[:-1], c.pack(head) + b"\x01"):
        with pytest.raises(ProtocolError):
            c.unpack(wrong, type(head))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
@pytest.mark.parametrize("wrong", [b"\x90", b"\x91\x05", b"\xff", b"\xa1\xff"])
def test_what_is_another_value(head: Any, wrong: bytes) -> None:
    """A client that asks for it is refused; a broker that answers so does not speak the protocol,
    nor does one that greets so."""
    is_request = isinstance(head, (c.Nack, c.Extend, c.Subscribe, c.Publish, c.Read, c.Follow))
    with pytest.raises(InvalidArgument) as caught:
        c.unpack(wrong, type(head))
    assert isinstance(caught.value, ProtocolError) != is_request


def test_a_call_keeps_its_parameters_for_its_method() -> None:
    called = c.unpack(c.pack(c.Call("purge", {"name": "q"})), c.Called)
    assert (called.method, bytes(called.params)) == ("purge", c.pack({"name": "q"}))
    assert bytes(c.unpack(c.pack(["purge"]), c.Called).params) == c.pack({})
    with pytest.raises(InvalidArgument, match="method must have 0 to 64 characters"):
        c.unpack(c.pack(["x" * 65]), c.Called)
    with pytest.raises(ProtocolError):
        c.unpack(b"\x92\xa1x" + b"\x91" * 100_000 + b"\x01", c.Called)


BEYOND = 2**64 - 1
RANGES = [[1, 2, 3]]
WRONG_FIELDS: list[tuple[type[Any], list[Any], str]] = [
    (c.Nack, ["x" * 256, RANGES], "queue"),
    (c.Nack, ["q", []], "ranges must have 1 to 100000 entries"),
    (c.Nack, ["q", RANGES * (limits.RECEIPT_RANGES_MAX + 1)], "ranges"),
    (c.Nack, ["q", [[BEYOND, 0, 1]]], r"ranges\[0\]\[0\]"),
    (c.Nack, ["q", [[1, -1, 1]]], r"ranges\[0\]\[1\]"),
    (c.Nack, ["q", RANGES, -1], "delay_ms"),
    (c.Nack, ["q", RANGES, limits.DELAY_MS_MAX + 1], "delay_ms"),
    (c.Extend, ["q", RANGES, -1], "timeout_ms"),
    (c.Extend, ["q", RANGES, BEYOND], "timeout_ms"),
    (c.Subscribe, ["x" * 256, 1, 1], "queue"),
    (c.Subscribe, ["q", 0, 1], "subscription"),
    (c.Subscribe, ["q", 2**32, 1], "subscription"),
    (c.Subscribe, ["q", 1, 0], "prefetch"),
    (c.Subscribe, ["q", 1, 100_001], "prefetch is out of range, allowed is 1 to 100000"),
    (c.Subscribe, ["q", 1, 1, "x" * 257], "consumer must have 0 to 256 characters"),
    (c.Subscribe, ["q", 1, 1, "", BEYOND], "visibility_ms"),
    (c.Subscribe, ["q", 1, 1, "", -1], "visibility_ms"),
    (c.Publish, ["x" * 256], "topic"),
    (c.Publish, ["t", "x" * 257, 1], "producer"),
    (c.Publish, ["t", "p", BEYOND], "number"),
    (c.Publish, ["t", "p", -1], "number"),
    (c.Read, ["t", -1, 1, 1], "offset"),
    (c.Read, ["t", BEYOND, 1, 1], "offset"),
    (c.Read, ["t", 0, 0, 1], "count"),
    (c.Read, ["t", 0, limits.BATCH_MESSAGES_MAX + 1, 1], "count"),
    (c.Read, ["t", 0, 1, 0], "bytes_max"),
    (c.Read, ["t", 0, 1, limits.POP_BYTES_MAX + 1], "bytes_max"),
    (c.Read, ["t", 0, 1, 1, False, -1], "wait_ms"),
    (c.Read, ["t", 0, 1, 1, False, BEYOND], "wait_ms"),
    (c.Read, ["t", 0, 1, 1, False, 0, -1], "time_ms"),
    (c.Read, ["t", 0, 1, 1, False, 0, BEYOND], "time_ms"),
    (c.Follow, ["", {}, 1, 1], "pattern"),
    (c.Follow, ["x" * 257, {}, 1, 1], "pattern"),
    (c.Follow, [">", {"t": -1}, 1, 1], "offsets"),
    (c.Follow, [">", {"t": BEYOND}, 1, 1], "offsets"),
    (c.Follow, [">", {"x" * 256: 1}, 1, 1], "a key of offsets"),
    (c.Follow, [">", {}, 0, 1], "count"),
    (c.Follow, [">", {}, 1, BEYOND], "bytes_max"),
    (c.Follow, [">", {}, 1, 1, BEYOND], "wait_ms"),
]


@pytest.mark.parametrize(("kind", "values", "said"), WRONG_FIELDS, ids=lambda each: str(each)[:40])
def test_fields_out_of_range(kind: type[Any], values: list[Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{said}") as caught:
        c.unpack(c.pack(values), kind)
    assert not isinstance(caught.value, ProtocolError)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (c.pack_push(c.Push("q", "p", BEYOND)), "number is 18446744073709551615, allowed is 0 to"),
        (c.pack_push(c.Push("q", "p" * 257, 1)), "producer has 257 characters"),
        (c.pack_push(c.Push("q", "p", 1, BEYOND)), "checksum is 18446744073709551615, allowed is"),
        (c.pack_pop(c.Pop("q", 0, 1)), "count is 0, allowed is 1 to 10000"),
        (c.pack_pop(c.Pop("q", 10_001, 1)), "count"),
        (c.pack_pop(c.Pop("q", 1, 0)), "bytes_max"),
        (c.pack_pop(c.Pop("q", 1, limits.POP_BYTES_MAX + 1)), "bytes_max"),
        (c.pack_pop(c.Pop("q", 1, 1, -1)), "wait_ms"),
        (c.pack_pop(c.Pop("q", 1, 1, 2**63 - 1)), "wait_ms"),
        (c.pack_pop(c.Pop("q", 1, 1, 0, -2)), "visibility_ms"),
        (c.pack_pop(c.Pop("q", 1, 1, 0, limits.TIMEOUT_MS_MAX + 1)), "visibility_ms"),
        (c.pack_ranges("q", [(1, 2, 1)]), "a range of lease 1 is 2 to 1"),
        (c.pack_ranges("q", [(1, 0, 2**63)]), "a range"),
        (c.pack_ranges("q", [(2**63, 0, 1)]), "a range"),
        (c.pack_ranges("q", [(1, 0, 1)] * (limits.RECEIPT_RANGES_MAX + 1)), "the number of ranges"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_fixed_heads_out_of_range(head: bytes, said: str) -> None:
    unpack = {"n": c.unpack_push, "p": c.unpack_push, "a": c.unpack_ranges, "t": c.unpack_ranges}
    unpack["c"] = c.unpack_push if said.startswith("checksum") else c.unpack_pop
    with pytest.raises(InvalidArgument, match=f"^{said}") as caught:
        unpack.get(said[0], c.unpack_pop)(head)
    assert not isinstance(caught.value, ProtocolError)


def test_hot_heads() -> None:
    for push in (
        c.Push("orders", "producer", 2**63 - 1),
        c.Push("orders", "producer", 1, checksum=2**63 - 1),
    ):
        assert c.unpack_push(c.pack_push(push)) == push
    for pop in (
        c.Pop("q", 1, 2, 3, None, one_ack=True),
        c.Pop("q", 10_000, limits.POP_BYTES_MAX, limits.WAIT_MS_MAX, limits.TIMEOUT_MS_MAX),
        c.Pop("q", 1, 2, ahead=True),
    ):
        assert c.unpack_pop(c.pack_pop(pop)) == pop
    ranges = [(2**63 - 1, 0, 1), (1, 5, 9)]
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


def test_a_greeting_is_read_by_nodes_of_the_version_before_and_the_other_way_round() -> None:
    """While a cluster is updated node by node, both are there, and so are clients of both."""

    class PassedHello(msgspec.Struct, array_like=True):
        magic: str
        versions: tuple[int, int]
        client: str
        token: str | None = None
        heartbeat_ms: int = 10_000
        software: str = ""
        passed: str = ""
        number: int = 0
        address: str = ""

    passed = c.Hello("NEXO", (1, 1), "me", None, 5_000, "s", "secret", 7, "::1", follows=True)
    read = msgspec.msgpack.decode(c.pack(passed), type=PassedHello)
    assert (read.passed, read.number, read.address) == ("secret", 7, "::1")
    before = PassedHello("NEXO", (1, 1), "me", None, 5_000, "s", "secret", 7, "::1")
    assert c.unpack(c.pack(before), c.Hello) == msgspec.structs.replace(passed, follows=False)
    plain = msgspec.msgpack.encode(["NEXO", (1, 1), "me", None, 5_000, "s"])
    assert not c.unpack(plain, c.Hello).follows
