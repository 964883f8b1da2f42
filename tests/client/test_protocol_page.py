"""The page about the protocol: it leaves nothing out, and its example is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from nexo.vocabulary import errors, limits
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import FRAME_BYTES_MAX
from nexo.wire import commands as c
from nexo.wire.calls import CALLS
from nexo.wire.columns import decode_batch, decode_parts
from nexo.wire.frame import FrameReader, Kind

PAGE = (Path(__file__).parents[2] / "docs/reference/rpc-protocol.md").read_text(encoding="utf-8")
EXAMPLE = [
    frame
    for block in re.findall(r"```hex\n(.*?)```", PAGE, flags=re.DOTALL)
    for frame in FrameReader().feed(bytes.fromhex(block))
]
OF_THE_CLIENT = ("unreachable", "timeout", "invalid_body")  # they never travel


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_every_kind_has_a_row(kind: Kind) -> None:
    assert re.search(
        rf"^\| {kind.name} \| {int(kind)} \| (client|broker|both) \|", PAGE, re.MULTILINE
    )


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_a_row_with_its_parameters(name: str) -> None:
    row = re.search(rf"^\| `{name}` \|([^|]*)\|", PAGE, re.MULTILINE)
    assert row is not None
    for parameter in CALLS[name].request.__struct_fields__:
        assert re.search(rf"\b{parameter}\b", row[1]), parameter


def test_every_code_is_listed() -> None:
    for kind in vars(errors).values():
        is_told = isinstance(kind, type) and issubclass(kind, errors.NexoError)
        if is_told and kind.code not in ("error", *OF_THE_CLIENT):
            assert f"`{kind.code}`{'*' if kind.retryable else ''}" in PAGE, kind.code


def test_limits_are_those_of_the_code() -> None:
    mib = 1024 * 1024
    for text in (
        f"8 to {FRAME_BYTES_MAX:,}",
        f"leaves {limits.RPC_UNREAD_BYTES_MAX // mib} MiB of answers unread",
        f"{limits.RPC_REQUESTS_MAX:,} requests unanswered",
        f"prefetch is 1 to {limits.PREFETCH_MAX:,}",
        f"at most {limits.SUBSCRIPTIONS_MAX:,} subscriptions",
        f"about {limits.RPC_DELIVERY_BYTES_MAX // mib} MiB",
        f"sends HELLO within {limits.RPC_GREETING_MS // 1_000} s",
        f"in a frame of at most {limits.RPC_GREETING_BYTES_MAX:,} bytes",
        f"is cut off after {limits.RPC_CLOSING_MS // 1_000} s",
        f"**ranges** are 1 to {limits.RECEIPT_RANGES_MAX:,} of",
        (
            f"| 0 to {limits.FULL_NAME_CHARS_MAX} characters; what is created has 1 to "
            f"{limits.NAME_CHARS_MAX} of"
        ),
        f"| consumer, client, producer | 0 to {limits.CONSUMER_CHARS_MAX} characters",
        f"any text; {limits.REASON_CHARS_MAX:,} characters of it",
        f"| pattern | 1 to {limits.PATTERN_CHARS_MAX} characters",
        f"| group, deduplication id | 1 to {limits.GROUP_ID_CHARS_MAX} characters",
        (
            f"| where | {limits.FILTER_ATTRIBUTES_MAX} attributes, names and values of "
            f"{limits.FILTER_CHARS_MAX:,}"
        ),
        f"| count of POP | 1 to {limits.POP_MESSAGES_MAX:,} |",
        f"`snapshot_read` | 1 to {limits.BATCH_MESSAGES_MAX:,} |",
        f"| bytes_max | 1 to {limits.POP_BYTES_MAX:,};",
        f"| offsets of FOLLOW | {limits.FOLLOWED_TOPICS_MAX:,} topics |",
        f"| wait_ms | 0 to {limits.WAIT_MS_MAX:,} (a day)",
        f"| visibility_ms, timeout_ms | 0 to {limits.TIMEOUT_MS_MAX:,} (30 days)",
        f"| delay_ms | 0 to {limits.DELAY_MS_MAX:,} (ten years)",
        f"| expires_after_ms | 1 to {limits.RETENTION_MS_MAX:,} (20 years)",
        f"| rate | above 0, to {limits.RECEIVE_RATE_MAX:,} |",
        f"| parameters of a call | {limits.RPC_CALL_BYTES_MAX // mib} MiB together",
    ):
        assert text in PAGE, text


def test_the_example_decodes() -> None:
    hello, welcome, call, push, accepted, pop, delivered, received, ack, acked, again, refused = (
        EXAMPLE
    )
    assert c.unpack(hello.head, c.Hello) == c.Hello("NEXO", (1, 1), "demo", None, 5_000)
    assert c.unpack(welcome.head, c.Welcome) == c.Welcome(1, "nexo 0.1.0", 5_000, 42)
    called = c.unpack(call.body, c.Called)
    assert called.method == "create_queue"
    assert bytes(called.params) == c.pack({"name": "orders", "exist_ok": True})
    assert c.unpack_push(push.head) == c.Push("orders", "p1", 1)
    batch, end = decode_batch(push.body)
    assert (batch.bodies(), end) == ([b"hello", b"world!"], len(push.body))
    incarnation = 0x0123456789ABCDEF
    assert c.unpack_accepted(accepted.head) == c.AcceptedHead(incarnation, 0, (0, 2))
    assert c.unpack_pop(pop.head) == c.Pop("orders", 10, 2**20, 1_000)
    head = c.unpack_delivery(delivered.head)
    assert (head.lease, head.state, head.visibility_ms) == (0x100000001, 2, 30_000)
    (part,) = decode_parts(delivered.body)
    assert (part.first, part.attempts, part.batch) == (0, 1, batch)
    ranges = [(0x100000001, 0, 2)]
    assert (received.correlation, c.unpack_ranges(received.head).ranges) == (0, ranges)
    assert c.unpack_ranges(ack.head) == c.Acked("orders", ranges)
    assert msgspec.msgpack.decode(acked.head) == []
    assert c.unpack_ranges(again.head).ranges == [(0x100000001, 0, 1)]
    assert msgspec.msgpack.decode(refused.head) == [[0x100000001, 0, 1, "stale_receipt"]]
    kinds = "HELLO WELCOME CALL PUSH OK POP OK RECEIVED ACK OK ACK OK"
    assert [each.kind.name for each in EXAMPLE] == kinds.split()


def test_the_ids_of_the_page() -> None:
    incarnation = 0x0123456789ABCDEF
    for seq in (1, 9 << 48 | 5):
        assert message_id(incarnation, seq) in PAGE
