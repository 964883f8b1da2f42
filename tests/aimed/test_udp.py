"""No datagram stops or stalls the broker, whoever sends it, and none is answered more than once."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from tests.aimed.http_doors import json_bytes
from tests.aimed.target import ALLOWED
from tests.aimed.values import deep, hostile_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aimed.target import Target

DATAGRAM_BYTES_MAX = 60_000
GOOD: dict[str, dict[str, Any]] = {
    "publish": {"topic": "news", "payload": "x", "ref": "r"},
    "subscribe": {"topic": "news", "group": "g"},
    "unsubscribe": {"topic": "news"},
    "get": {"topic": "news", "group": "g", "since": 0, "limit": 1},
    "ack": {"topic": "news", "group": "g", "ids": ["x"]},
}
RAW = (b"", b"\xff", b"{", b"[" * 50_000, b'{"status":"error"}', b'"x"', b"null", b"1" * 5_000)


def datagrams(token: str | None) -> Iterator[tuple[str, bytes]]:
    shown = {} if token is None else {"token": token}
    for action, fields in GOOD.items():
        for name in (*fields, "action", "token", "status", "unknown"):
            for number, value in enumerate((*hostile_json(), deep())):
                told = json_bytes({"action": action, **fields, **shown, name: value})
                yield f"{action}.{name} value {number}", told[:DATAGRAM_BYTES_MAX]
    for number, raw in enumerate(RAW):
        yield f"raw {number}", raw


def test_no_field_of_any_datagram_stops_the_others(target: Target) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", target.ports["udp"]))
        sender.settimeout(0)
        for caller in ("nobody", *ALLOWED):
            drawn = list(datagrams(target.tokens.get(caller)))
            if caller != "everything":
                drawn = drawn[::17]
            answers = 0
            for number, (label, data) in enumerate(drawn, 1):
                sender.send(data)
                if number % 5 == 0 or number == len(drawn):
                    target.check(f"{label} by {caller}")
                    answers += _drain(sender)
            assert answers <= len(drawn), f"{answers} answers to {len(drawn)} datagrams"


def _drain(sender: socket.socket) -> int:
    count = 0
    while True:
        try:
            sender.recv(65_535)
        except BlockingIOError:
            return count
        count += 1
