"""No amplification: what may go to an address that could be forged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.json_udp.addresses import Asker, Cookies, is_local, stranger
from nexo.vocabulary.limits import UDP_COOKIE_S, UDP_REPLY_BYTES_MAX, UDP_STRANGER_FACTOR
from tests.udp.talking import Talking

if TYPE_CHECKING:
    from collections.abc import Iterator

FAR = ("203.0.113.9", 40_000)
OTHER = ("203.0.113.9", 40_001)
NEAR = ("127.0.0.1", 40_000)


@pytest.fixture
def talking() -> Iterator[Talking]:
    with Talking() as started:
        yield started


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("12.7.0.1", False),
        ("::2", False),
        ("fe80::1", False),
        ("::ffff:8.8.8.8", False),
    ],
)
def test_who_is_of_this_machine(host: str, local: bool) -> None:
    assert is_local((host, 1, 0, 0)) == local


def test_how_large_a_reply_may_be() -> None:
    assert Asker(NEAR).reply_bytes_max == UDP_REPLY_BYTES_MAX
    assert not Asker(NEAR).is_stranger
    assert stranger(FAR, 100).reply_bytes_max == 100 * UDP_STRANGER_FACTOR
    assert stranger(FAR, 65_000).is_stranger


def test_a_cookie_proves_one_address_for_a_while() -> None:
    cookies = Cookies(b"secret")
    cookie = cookies.give(FAR, 1_000.0)
    assert cookies.prove(FAR, cookie, 1_000.0)
    assert cookies.prove(FAR, cookie, 1_000.0 + UDP_COOKIE_S)
    assert not cookies.prove(FAR, cookie, 1_000.0 + 2 * UDP_COOKIE_S)
    assert not cookies.prove(OTHER, cookie, 1_000.0)
    assert not Cookies(b"another").prove(FAR, cookie, 1_000.0)
    for nonsense in ("", "è", cookie[:-1], cookie.upper() + "0"):
        assert not cookies.prove(FAR, nonsense, 1_000.0)


REQUESTS: list[dict[str, Any] | bytes] = [
    b"",
    b"{}",
    b"\xff",
    {"action": "x"},
    {"action": "subscribe", "topic": "n"},
    {"action": "subscribe", "topic": "n", "group": "g"},
    {"action": "get", "topic": "n"},
    {"action": "get", "topic": "n", "group": "g"},
    {"action": "get", "topic": "\x01" * 200},
    {"action": "publish", "topic": "n", "payload": 1},
    {"action": "publish", "topic": "n", "payload": "x" * 1_000},
    {"action": "ack", "topic": "n", "group": "g", "ids": ["a", "b"]},
    {"action": "ack", "topic": "n", "group": "g", "ids": [""] * 500},
    {"action": "é" * 300},
]


def test_no_request_of_a_stranger_triggers_more_than_the_factor(talking: Talking) -> None:
    talking.ask({"action": "subscribe", "topic": "n"}, NEAR)
    for _ in range(50):
        talking.ask({"action": "publish", "topic": "n", "payload": "y" * 1_000}, NEAR)
    for request in REQUESTS * 2:
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        sent = talking.bytes_for(data, FAR)
        assert sent <= UDP_STRANGER_FACTOR * len(data), (request, sent)
        assert talking.bytes_for(data, NEAR) > 0  # the same from here is always answered


def test_a_stranger_gets_more_with_a_larger_request_or_a_cookie(talking: Talking) -> None:
    for number in range(50):
        talking.ask({"action": "publish", "topic": "news", "payload": number}, NEAR)
    welcome = talking.ask({"action": "subscribe", "topic": "news"}, FAR)
    get = {"action": "get", "topic": "news"}
    padded = talking.ask({**get, "padding": "x" * 200}, FAR)
    assert 0 < len(padded["messages"]) < 20
    assert padded["truncated"]
    assert padded["next"] == len(padded["messages"])
    assert talking.ask({**get, "cookie": "wrong", "padding": "x" * 200}, FAR)["truncated"]
    proved = talking.ask({**get, "cookie": welcome["cookie"]}, FAR)
    assert [each["payload"] for each in proved["messages"]] == list(range(50))
    # It is worth nothing elsewhere, nor for ever.
    talking.ask({"action": "subscribe", "topic": "news"}, OTHER)
    stolen = {**get, "cookie": welcome["cookie"], "padding": "x" * 200}
    assert talking.ask(stolen, OTHER)["truncated"]
    talking.now_s += 2 * UDP_COOKIE_S
    assert talking.ask({**get, "cookie": welcome["cookie"], "padding": "x" * 200}, FAR)["truncated"]


def test_nobody_here_needs_a_cookie(talking: Talking) -> None:
    assert "cookie" not in talking.ask({"action": "subscribe", "topic": "n"}, NEAR)
