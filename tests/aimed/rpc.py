"""Every field of every request of the RPC protocol, one at a time, with hostile values."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import batch_of
from nexo.wire import commands as c
from nexo.wire.calls import CALLS
from nexo.wire.columns import Extras, encode_batch
from nexo.wire.frame import Kind, frame, frame_parts
from tests.access.test_rpc_table import CALL_ROWS, FRAMES, KNOWING_CALLS
from tests.aimed.target import QUEUE, TOPIC
from tests.aimed.values import INTEGERS, deep, hostile
from tests.client.test_fields import FIXED

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = bytes((len(QUEUE),)) + QUEUE.encode()
BATCH = b"".join(encode_batch(batch_of([b"x"])))
HEADS: dict[Kind, Any] = {  # those that are msgpack, as they should be
    Kind.NACK: c.Nack(QUEUE, [(1, 0, 1)], 5, "why"),
    Kind.EXTEND: c.Extend(QUEUE, [(1, 0, 1)], 1_000),
    Kind.SUBSCRIBE: c.Subscribe(QUEUE, 1, 1, "me", 1_000, False),
    Kind.PUBLISH: c.Publish(TOPIC, "me", 1),
    Kind.READ: c.Read(TOPIC, 0, 1, 1_000, False, 0, 1),
    Kind.FOLLOW: c.Follow("*", {TOPIC: 0}, 1, 1_000, 0),
}
NESTED: dict[str, dict[str, dict[str, Any]]] = {  # call → field → what stands in it
    "create_queue": {
        "settings": {
            "visibility_timeout_ms": 1,
            "retransmit_timeout_ms": 1,
            "max_attempts": 1,
            "dead_letter": "x",
            "delay_ms": 1,
            "retention_ms": 1,
            "deduplication": "id",
            "deduplication_window_ms": 1,
            "max_receive_rate": 1.0,
            "backoff": {},
            "fifo": True,
            "max_message_bytes": 1,
            "max_depth": 1,
            "archive": True,
            "archive_retention_ms": 1,
            "tags": {},
            "aws": {},
        }
    },
    "bind": {"start": {"time_ms": 1, "offset": 1}, "where": {"a": "b"}},
    "import_definitions": {"definitions": {"version": 1, "queues": [], "topics": []}},
}
NESTED["edit_queue"] = NESTED["create_queue"]


class Shot(NamedTuple):
    """One frame, and what it tries."""

    label: str
    kind: Kind
    head: bytes
    body: bytes = b""


def shots() -> Iterator[Shot]:
    yield from _heads()
    yield from _fixed()
    yield from _batches()
    yield from _calls()


def greetings() -> Iterator[tuple[str, bytes]]:
    """What may come first on a connection, before anybody is known."""
    fields: list[Any] = [c.MAGIC, (1, 1), "me", "token", 1_000]
    for at in range(len(fields)):
        for number, value in enumerate((*hostile(), deep())):
            packed = _pack([*fields[:at], value, *fields[at + 1 :]])
            yield f"HELLO field {at} value {number}", frame(Kind.HELLO, 1, packed)
    for size in (*(1, 7, 8), *(1 << bits for bits in (16, 24, 26, 31)), 2**32 - 1):
        for kind in (0, Kind.HELLO, Kind.PUSH, 255):
            yield f"a frame of {size} bytes, kind {kind}", struct.pack("<III", size, kind, 1)
    for kind, (head, body, _) in FRAMES.items():
        yield f"{kind.name} before HELLO", b"".join(map(bytes, frame_parts(kind, 1, head, body)))


def _heads() -> Iterator[Shot]:
    for kind, head in HEADS.items():
        body = BATCH if kind is Kind.PUBLISH else b""
        fields = [getattr(head, name) for name in head.__struct_fields__]
        for at, name in enumerate(head.__struct_fields__):
            for number, value in enumerate((*hostile(), [(2**64 - 1,) * 3], deep())):
                packed = _pack([*fields[:at], value, *fields[at + 1 :]])
                yield Shot(f"{kind.name}.{name} value {number}", kind, packed, body)


def _fixed() -> Iterator[Shot]:
    for kind, (layout, values) in FIXED.items():
        before = b"" if kind in (Kind.CREDIT, Kind.UNSUBSCRIBE) else NAMED
        body = BATCH if kind is Kind.PUSH else b""
        for at in range(len(values)):
            for value in INTEGERS:
                try:
                    packed = struct.pack(layout, *values[:at], value, *values[at + 1 :])
                except struct.error:
                    continue
                yield Shot(f"{kind.name} field {at} = {value}", kind, before + packed, body)
        whole = before + struct.pack(layout, *values)
        for cut in range(0, len(whole), 3):
            yield Shot(f"{kind.name} cut at {cut}", kind, whole[:cut], body)


def _batches() -> Iterator[Shot]:
    """Columns that do not fit, do not decode, or are out of their range."""
    heads = {
        Kind.PUSH: NAMED + struct.pack("<QH", 0, 0),
        Kind.PUBLISH: _pack([TOPIC]),
    }
    for kind, head in heads.items():
        for sizes in ((2**32 - 1, 0, 0), (1, 2**32 - 1, 0), (1, 1, 2**32 - 1), (0, 0, 0)):
            yield Shot(f"{kind.name} sizes {sizes}", kind, head, struct.pack("<III", *sizes))
        for offsets in ((0, -1), (1, 1), (2**31 - 1, 0), (-(2**31), 2**31 - 1), (0, 0, 5, 1)):
            columns = array("i", offsets).tobytes()
            body = struct.pack("<III", len(offsets) - 1, 1, 0) + columns + b"x"
            yield Shot(f"{kind.name} offsets {offsets}", kind, head, body)
        names = Extras.__struct_fields__
        for at, name in enumerate(names):
            garbage = (b"\xc1garbage", [b"\xc1"], [b"\x81\xa1a\xc1"], _pack({"a": deep()}))
            for number, value in enumerate((*hostile(), *garbage, _pack({"a": 5}), deep())):
                fields: list[Any] = [0, None, None, None, None, None, None]
                fields[at] = value
                packed = _pack(fields)
                body = struct.pack("<IIIii", 1, 1, len(packed), 0, 1) + b"x" + packed
                yield Shot(f"{kind.name} column {name} value {number}", kind, head, body)
    matching = encode_attributes({"a": "b"})
    body = b"".join(encode_batch(msgspec.structs.replace(batch_of([b"x"]), attributes=matching)))
    yield Shot("PUBLISH that the filter lets through", Kind.PUBLISH, heads[Kind.PUBLISH], body)


def _calls() -> Iterator[Shot]:
    rows = {**{method: row[0] for method, row in CALL_ROWS.items()}, **KNOWING_CALLS}
    for method, params in rows.items():
        kind: Any = CALLS[method].request
        for name in (*kind.__struct_fields__, "unknown"):
            for number, value in enumerate((*hostile(), deep())):
                yield _call(f"{method}.{name} value {number}", method, {**params, name: value})
        for name, inside in NESTED.get(method, {}).items():
            for field in (*inside, "unknown"):
                for number, value in enumerate(hostile()):
                    told = {**params, name: {**inside, field: value}}
                    yield _call(f"{method}.{name}.{field} value {number}", method, told)
    for number, value in enumerate((*hostile(), deep())):
        yield Shot(f"CALL method value {number}", Kind.CALL, b"", _pack([value, {}]))
        yield Shot(f"CALL params value {number}", Kind.CALL, b"", _pack(["peek", value]))
        yield Shot(f"CALL value {number}", Kind.CALL, b"", _pack(value))


def _call(label: str, method: str, params: dict[str, Any]) -> Shot:
    return Shot(label, Kind.CALL, b"", _pack([method, params]))


def _pack(value: Any) -> bytes:
    """Deeper than any encoder goes, where need be."""
    depth = 0
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value, depth = value[0], depth + 1
    if isinstance(value, dict):
        packed = [_pack(key) + _pack(each) for key, each in value.items()]
        return b"\xdf" + struct.pack(">I", len(packed)) + b"".join(packed)
    if isinstance(value, list | tuple):
        packed = [_pack(each) for each in value]
        return b"\x91" * depth + b"\xdd" + struct.pack(">I", len(packed)) + b"".join(packed)
    return c.pack(value)
