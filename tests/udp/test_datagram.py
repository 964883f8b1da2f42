"""Datagrams as commands: a pure function, held to what a strict reader of JSON says."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nexo.doors.json_udp.datagram import BAD_FORMAT, Action, Command, Refusal, decode
from nexo.vocabulary import limits

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
NAMES = ["action", "topic", "payload", "group", "ids", "since", "limit", "token", "cookie", "ref"]
FIELDS = st.dictionaries(st.sampled_from([*NAMES, "visibility_timeout", "other"]), JSON)
ACTIONS = st.sampled_from([str(action) for action in Action])


def strictly(data: bytes) -> dict[str, Any] | None:
    """The object in the data, by the reader of the standard library with every check on."""
    names: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal names
        names = [name for name, _ in found]
        return dict(found)

    def number(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(text)
        return value

    try:
        found = json.loads(
            data.decode(), object_pairs_hook=pairs, parse_float=number, parse_constant=number
        )
        msgspec.json.encode(found)  # refuses half surrogate pairs
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or len(set(names)) != len(names):
        return None
    return found


def check(data: bytes) -> None:
    got, found = decode(data), strictly(data)
    if found is None:
        assert got == BAD_FORMAT
        return
    assert got != BAD_FORMAT
    if got is None:  # a reply, which is never answered
        assert b"status" in data
        return
    if isinstance(got, Refusal):
        assert len(got.text) < 400
        return
    assert got.action == found["action"]
    assert got.topic == found["topic"]
    if got.action is Action.PUBLISH:
        assert json.loads(got.payload) == found["payload"]
        assert msgspec.json.decode(got.payload) == found["payload"]


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(FIELDS, st.booleans())
def test_any_object(fields: dict[str, Any], is_ascii: bool) -> None:
    check(json.dumps(fields, ensure_ascii=is_ascii).encode(errors="surrogatepass"))


@given(ACTIONS, FIELDS, st.data())
def test_an_object_with_a_wound(action: str, fields: dict[str, Any], data: st.DataObject) -> None:
    whole = json.dumps({**fields, "action": action, "topic": "t"}).encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(0, 3))
    check(whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + cut :])


@given(ACTIONS, FIELDS)
@example("ack", {"group": "g", "ids": ["a"]})
def test_what_is_asked_for_is_what_is_said(action: str, fields: dict[str, Any]) -> None:
    check(json.dumps({**fields, "action": action, "topic": "t"}).encode())


PUBLISH = b'{"action":"publish","topic":"t","payload":%b}'


@pytest.mark.parametrize(
    "payload",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"9" * 5_000,
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"a\nb"',
        b"'a'",
        b"01",
        b"[1,]",
        b"[" * limits.UDP_NESTING_MAX + b"]" * limits.UDP_NESTING_MAX,
        b"[" * 30_000 + b"]" * 30_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[" * 65_000,
    ],
    ids=lambda payload: payload[:12],
)
def test_what_is_no_sound_json_is_refused(payload: bytes) -> None:
    assert decode(PUBLISH % payload) == BAD_FORMAT


@pytest.mark.parametrize(
    "payload",
    [
        b"0",
        b"-0.0",
        b"false",
        b'""',
        b"[]",
        b"123456789012345678901234567890",
        b"1e-400",
        rb'"\ud83d\ude00 \u0000"',
        b'"[[[[[{{{{{\\""',
        b'{"a":1,"a":2}',  # its own business
        b'{"topic":1,"payload":2,"action":3}',
        b"[" * (limits.UDP_NESTING_MAX - 1) + b"]" * (limits.UDP_NESTING_MAX - 1),
        b"[" + b"[]," * 200 + b"[]]",
    ],
    ids=lambda payload: payload[:12],
)
def test_odd_payloads_come_back_equal(payload: bytes) -> None:
    got = decode(PUBLISH % payload)
    assert isinstance(got, Command)
    assert json.loads(got.payload) == json.loads(payload)


@pytest.mark.parametrize(
    "data",
    [
        b'{"action":"get","action":"publish","topic":"t"}',
        b'{"action":"get","topic":"t","topic":"t"}',
        rb'{"action":"get","topic":"t","\u0074opic":"u"}',
        b'{"action":"get","topic":"t","other":1,"other":1}',
    ],
)
def test_a_name_that_comes_twice(data: bytes) -> None:
    assert decode(data) == BAD_FORMAT


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"action": "ack"}, "Gruppo mancante"),
        ({"action": "ack", "group": 1, "ids": ["a"]}, "Valore non valido: group"),
        ({"action": "get", "group": ""}, "Valore non valido: group"),
        ({"action": "ack", "group": "g"}, "Ids mancanti"),
        ({"action": "ack", "group": "g", "ids": []}, "Ids mancanti"),
        ({"action": "ack", "group": "g", "ids": [1]}, "Ids mancanti"),
        ({"action": "ack", "group": "g", "ids": "a"}, "Ids mancanti"),
        ({"action": "ack", "group": "g", "ids": ["a"] * 2_001}, "Ids mancanti"),
        ({"action": "get", "since": -1}, "Valore non valido: since"),
        ({"action": "get", "since": 1.5}, "Valore non valido: since"),
        ({"action": "get", "since": True}, "Valore non valido: since"),
        ({"action": "get", "since": 2**63}, "Valore non valido: since"),
        ({"action": "get", "limit": 0}, "Valore non valido: limit"),
        ({"action": "get", "limit": "9"}, "Valore non valido: limit"),
        ({"action": "get", "visibility_timeout": -1}, "Valore non valido: visibility_timeout"),
        ({"action": "get", "visibility_timeout": 1e300}, "Valore non valido: visibility_timeout"),
        ({"action": "get", "ref": []}, "Valore non valido: ref"),
        ({"action": "get", "ref": "r" * 65}, "Valore non valido: ref"),
        ({"action": "get", "ref": 2**70}, "Valore non valido: ref"),
    ],
)
def test_wrong_values(fields: dict[str, Any], text: str) -> None:
    got = decode(json.dumps({"topic": "t", **fields}).encode())
    assert isinstance(got, Refusal)
    assert (got.text, got.code) == (text, "invalid_argument")


def test_a_refusal_carries_the_reference() -> None:
    assert decode(b'{"ref":"r1"}') == Refusal("Azione non supportata: None", ref="r1")


def test_a_payload_that_fits_no_reply() -> None:
    fits = decode(PUBLISH % (b'"%b"' % (b"x" * (limits.UDP_PAYLOAD_BYTES_MAX - 2))))
    assert isinstance(fits, Command)
    large = decode(PUBLISH % (b'"%b"' % (b"x" * (limits.UDP_PAYLOAD_BYTES_MAX - 1))))
    assert large == Refusal("Payload troppo grande", "message_too_large")


def test_a_long_action_is_not_echoed_whole() -> None:
    got = decode(json.dumps({"action": "x" * 60_000}).encode())
    assert got == Refusal("Azione non supportata: " + "x" * limits.UDP_ACTION_CHARS_SHOWN)
