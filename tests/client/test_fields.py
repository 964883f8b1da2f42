"""Every field of every request with values that no client of ours would send: each is answered, and
right after it somebody else's push is confirmed."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.doors.rpc_tcp import calls, handlers
from nexo.engine import receipts
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of
from nexo.wire import commands as c
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Kind
from tests.access.speaker import Speaker, code_of
from tests.access.test_rpc_table import CALL_ROWS, FRAMES, KNOWING_CALLS, OWN_FRAMES
from tests.client.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

BEYOND = 2**64 - 1
STRANGE: list[Any] = [
    -1,
    0,
    1,
    2**31 - 1,
    2**32,
    2**63 - 1,
    2**63,
    BEYOND,
    -(2**63),
    1.5,
    math.nan,
    math.inf,
    True,
    None,
    "",
    "orders",
    "x" * 100_000,
    "\x00\ud7ff",
    b"",
    b"\xff" * 100,
    [],
    [[1, 0, BEYOND]],
    [[1, -1, 1]],
    [["x"]],
    {},
    {"x": BEYOND},
    {"delay_ms": BEYOND, "dead_letter": "{name}" * 10_000},
    msgspec.Raw(b"\x91" * 50 + b"\x01"),
    msgspec.Raw(b"\xd6\xff\xff\xff\xff\xff"),  # a time
    msgspec.Raw(b"\xa2\xff\xff"),  # a text that is not UTF-8
]


class Witness:
    """Two connections: one that asks for strange things, one that must not notice."""

    def __init__(self, running: RunningBroker) -> None:
        self._running = running
        self._client = nexo.connect(running.url, timeout=10)
        self._pushed = self._client.queue("witness", create=True)
        self._keeper = Speaker(running.port, None)
        self._speaker = Speaker(running.port, None)
        self.stock()

    def stock(self) -> None:
        """What the requests are about, if one of them took it away."""
        for name in ("orders", "bound"):
            self._keeper.call("create_queue", name=name, exist_ok=True)
        self._keeper.call("create_topic", name="news", exist_ok=True)
        self._keeper.call("bind", topic="news", queue="bound", where={"a": "b"})
        self._keeper.ask(Kind.PUSH, *FRAMES[Kind.PUSH][:2])

    def ask(self, what: object, kind: Kind, head: bytes, body: list[Any] | None = None) -> str:
        """The code of the answer. Only what cannot be read at all may end the connection."""
        if kind is Kind.CREDIT:
            self._speaker.tell(kind, head, body)
            answer = self._speaker.call("list_topics")
        else:
            answer = self._speaker.ask(kind, head, body)
        code = code_of(answer)
        if answer is None or answer.kind is Kind.GOODBYE:
            assert code == "invalid_argument", what
            self._speaker.close()
            self._speaker = Speaker(self._running.port, None)
            code = "goodbye"
        assert code != "error", f"a defect: {what}"
        self._pushed.push("confirmed")
        return code

    def close(self) -> None:
        self._speaker.close()
        self._keeper.close()
        self._client.close()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    broker = RunningBroker(":memory:").start()
    yield broker
    tasks: Any = broker.broker.engine.tasks
    broker.call(lambda: [task.cancel() for task in tasks._tasks.values()])
    broker.stop()


@pytest.fixture
def witness(running: RunningBroker) -> Iterator[Witness]:
    each = Witness(running)
    yield each
    each.close()


def variants(values: list[Any] | dict[str, Any]) -> Iterator[tuple[Any, Any, bytes]]:
    """With one of the values replaced by each strange one."""
    for at in range(len(values)) if isinstance(values, list) else list(values):
        for strange in STRANGE:
            changed: Any = values.copy()
            changed[at] = strange
            yield at, strange, msgspec.msgpack.encode(changed)


PACKED = [
    kind
    for kind in (*FRAMES, *OWN_FRAMES)
    if kind in (Kind.NACK, Kind.EXTEND, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.READ, Kind.FOLLOW)
]


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_heads_that_are_msgpack(witness: Witness, kind: Kind) -> None:
    body: list[Any] = FRAMES[kind][1] if kind in FRAMES else []
    whole = {
        Kind.NACK: c.Nack("orders", [(1, 0, 1)], 5, "why"),
        Kind.EXTEND: c.Extend("orders", [(1, 0, 1)], 5),
        Kind.SUBSCRIBE: c.Subscribe("orders", 7, 5, "me", 1_000, False),
        Kind.PUBLISH: c.Publish("news", "p", 5),
        Kind.READ: c.Read("news", 0, 5, 1_000, False, 0, 0),
        Kind.FOLLOW: c.Follow("*", {"news": 0}, 5, 1_000, 0),
    }[kind]
    values = msgspec.msgpack.decode(c.pack(whole))
    assert witness.ask("as it is", kind, c.pack(whole), body) == "ok"
    for at, strange, packed in variants(values):
        code = witness.ask((kind.name, at, strange), kind, packed, body)
        assert code != "goodbye" or isinstance(strange, msgspec.Raw)
        if kind is Kind.SUBSCRIBE:
            for number in (7, 1, 2**31 - 1):
                witness.ask("close", Kind.UNSUBSCRIBE, c.pack_unsubscribe(number, False))


FIXED: dict[Kind, tuple[str, list[int]]] = {
    Kind.PUSH: ("<QH", [1, 0]),
    Kind.POP: ("<IQqqB", [1, 1_000, 0, -1, 0]),
    Kind.ACK: ("<QQQ", [1, 0, 1]),
    Kind.RECEIVED: ("<QQQ", [1, 0, 1]),
    Kind.GIVE_BACK: ("<QQQ", [1, 0, 1]),
    Kind.CREDIT: ("<II", [1, 1]),
    Kind.UNSUBSCRIBE: ("<II", [1, 1]),
}


@pytest.mark.parametrize("kind", FIXED, ids=lambda kind: kind.name)
def test_heads_that_are_fixed(witness: Witness, kind: Kind) -> None:
    layout, values = FIXED[kind]
    name = b"" if kind in (Kind.CREDIT, Kind.UNSUBSCRIBE) else b"\x06orders"
    body: list[Any] = encode_batch(batch_of([b"x"])) if kind is Kind.PUSH else []
    witness.ask("a subscription", Kind.SUBSCRIBE, c.pack(c.Subscribe("bound", 1, 5)))
    for at in range(len(values)):
        for strange in (0, 1, -1, -2, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63), BEYOND):
            changed = [*values]
            changed[at] = strange
            try:
                head = name + struct.pack(layout, *changed)
            except struct.error:
                continue  # it does not fit the field
            witness.ask((kind.name, at, strange), kind, head, body)


def test_very_many_ranges_are_applied_in_steps(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are done, in the order in which they came, and what was refused is told of each."""
    monkeypatch.setattr(handlers, "RECEIPT_RANGES_STEP", 10)
    steps: list[int] = []
    apply_each = receipts.refused_of

    def counting(ranges: Any, *more: Any) -> Any:
        steps.append(len(ranges))
        return apply_each(ranges, *more)

    monkeypatch.setattr(receipts, "refused_of", counting)
    with Speaker(running.port, None) as speaker:
        speaker.call("create_queue", name="many", exist_ok=True)
        speaker.ask(Kind.PUSH, c.pack_push(c.Push("many")), encode_batch(batch_of([b"x"] * 25)))
        popped = speaker.ask(Kind.POP, c.pack_pop(c.Pop("many", 25, 1_000)))
        assert popped is not None
        lease = c.unpack_delivery(popped.head).lease
        ranges = [(lease, seq, seq + 1) for seq in range(25)]
        packed = c.pack_ranges("many", ranges)
        for kind, head, refused in (
            (Kind.RECEIVED, packed, 0),
            (Kind.EXTEND, c.pack(c.Extend("many", ranges, 5_000)), 0),
            (Kind.ACK, packed, 0),
            (Kind.ACK, packed, 25),
            (Kind.NACK, c.pack(c.Nack("many", ranges)), 25),
            (Kind.GIVE_BACK, packed, 25),
        ):
            steps.clear()
            answer = speaker.ask(kind, head)
            assert answer is not None
            told = msgspec.msgpack.decode(answer.head)
            expected = [[*each, "stale_receipt"] for each in ranges]
            assert told == (expected if refused else []), kind
            assert steps == [10, 10, 5]


def test_a_call_has_a_size(running: RunningBroker) -> None:
    with Speaker(running.port, None) as speaker:
        answer = speaker.call("queue_info", name="x", more="x" * limits.RPC_CALL_BYTES_MAX)
        assert answer is not None
        refusal = c.unpack(answer.head, c.Refusal)
        assert "bytes of parameters, allowed are 1048576" in refusal.message
        seqs, bodies = [1, 2], [bytes(limits.RPC_CALL_BYTES_MAX)] * 2
        large = {"name": "none", "incarnation": 1, "seqs": seqs, "bodies": bodies}
        assert code_of(speaker.call("redrive_chosen", **large)) == "queue_not_found"


def test_a_defect_of_ours_fails_one_request(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("not foreseen")

    monkeypatch.setitem(calls.CALLS, "queue_info", broken)
    with Speaker(running.port, None) as speaker:
        assert code_of(speaker.call("queue_info", name="orders")) == "error"
        assert code_of(speaker.call("list_topics")) == "ok"
    assert "not foreseen" in caplog.text


def test_the_table_of_requests_is_whole() -> None:
    assert {*PACKED, *FIXED, Kind.CALL} == {*FRAMES, *OWN_FRAMES}


@pytest.mark.parametrize("method", [*CALL_ROWS, *KNOWING_CALLS])
def test_parameters_of_calls(witness: Witness, method: str) -> None:
    params = {**CALL_ROWS[method][0]} if method in CALL_ROWS else {**KNOWING_CALLS[method]}
    params |= MORE.get(method, {})
    for at, strange, packed in variants(params):
        called = b"\x92" + msgspec.msgpack.encode(method) + packed
        code = witness.ask((method, at, strange), Kind.CALL, b"", [called])
        assert code != "goodbye" or isinstance(strange, msgspec.Raw)
        if code == "ok":
            witness.stock()


# Parameters that may be left out, and are in the table of access.
MORE: dict[str, dict[str, Any]] = {
    "create_queue": {"exist_ok": True, "settings": {"delay_ms": 1}},
    "peek": {"limit": 1},
    "redrive": {"to": "bound", "rate": 1.0, "choice": {"reason": "x", "source": "orders"}},
    "discard": {"incarnation": 1, "seqs": None},
    "search": {"choice": {"text": "x", "ids": ["y"]}, "limit": 1, "after": 0, "whole": True},
    "list_connections": {"after": 0},
    "reasons": {"choice": {"source": "x"}, "after": 0},
    "resend": {"body": b"x", "attributes": {"a": "b", "c": None}},
    "redrive_chosen": {"to": "bound", "bodies": [b"x"]},
    "redrive_progress": {"wait_ms": 0},
    "release": {"dead_letter": False},
    "create_topic": {"exist_ok": True, "settings": {"retention_ms": 1_000}},
    "bind": {"where": {"a": "b"}, "start": {"offset": 0}, "create": True},
    "starts": {"pattern": "*", "start": {"time_ms": 1}},
    "claim": {"bytes_max": 1, "wait_ms": 0},
    "claim_read": {"start": 0, "count": 1, "bytes_max": 1},
    "snapshot_open": {"wanted": {"priority": [0, 255]}},
    "snapshot_read": {"count": 1, "bytes_max": 1},
    "backup_progress": {"wait_ms": 0},
    "create_token": {"expires_after_ms": 1_000, "aws": True},
}


@pytest.mark.parametrize("kind", [Kind.PUSH, Kind.PUBLISH], ids=lambda kind: kind.name)
def test_columns_of_batches(witness: Witness, kind: Kind) -> None:
    head = FRAMES[kind][0]
    for column in range(7):
        for strange in [*STRANGE, [b"\xff"], [b"\x81\xa1a\x05"], [b"\x81\xa1a\x92\xa1x\x05"], [""]]:
            extras = [0, None, None, None, None, None, None]
            extras[column] = strange
            packed = msgspec.msgpack.encode(extras)
            body = struct.pack("<III2i", 1, 1, len(packed), 0, 1) + b"x" + packed
            witness.ask((kind.name, column, strange), kind, head, [body])
    for count, payload, extras_size, offsets in (
        (2**32 - 1, 1, 0, [0, 1]),
        (100_001, 0, 0, [0] * 100_002),
        (0, 0, 0, [0]),
        (1, 1, 0, [0, 2]),
        (1, 1, 0, [1, 1]),
        (2, 1, 0, [0, 2, 1]),
        (2, 1, 0, [0, -1, 1]),
        (1, 2**32 - 1, 0, [0, 1]),
        (1, 1, 2**32 - 1, [0, 1]),
    ):
        body = struct.pack(f"<III{len(offsets)}i", count, payload, extras_size, *offsets)
        code = witness.ask(
            (count, payload, extras_size), kind, head, [body + b"x" * min(payload, 1)]
        )
        assert code in ("goodbye", "invalid_argument", "message_too_large")
