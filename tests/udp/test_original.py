"""The broker answers as the original server does, byte for byte where the original has them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.udp.original import KEPT, OriginalServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.udp.peer import Peer

TOPICS = ["news", "ordini", "città d'acqua", "a/b", "x" * 200, "", None]
PAYLOADS: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False).filter(lambda number: abs(number) != float("inf")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["publish", "publish", "subscribe", "get", "delete", None, 7]),
        "topic": st.sampled_from(TOPICS),
        "payload": PAYLOADS,
    },
)


def plain(reply: bytes) -> Any:
    """Without what the original does not have."""
    told = json.loads(reply)
    told.pop("code", None)
    for message in told.get("messages", []):
        message["timestamp"] = 0
    return told


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 1), REQUESTS), max_size=25))
def test_any_conversation(new_peer: Callable[[], Peer], steps: list[tuple[int, Any]]) -> None:
    model, peers = OriginalServer(), [new_peer(), new_peer()]
    mark = peers[0].address[1]  # a name that this conversation has for itself
    for client, request in steps:
        if request.get("topic"):
            request["topic"] = f"{request['topic']}{mark}"
        data = json.dumps(request).encode()
        assert plain(peers[client].raw(data)) == plain(model.reply(data, client)), request
    for each in peers:
        each.close()


def test_the_bytes_of_a_conversation(peer: Peer) -> None:
    model = OriginalServer()
    for request in (
        {"action": "get", "topic": "città"},
        {"action": "subscribe", "topic": "città"},
        {"action": "publish", "topic": "città", "payload": "ciao"},
    ):
        data = json.dumps(request).encode()
        assert peer.raw(data) == model.reply(data, 0)
    before = time.time()
    reply = peer.raw({"action": "get", "topic": "città"})
    (message,) = json.loads(reply)["messages"]
    assert (
        reply
        == json.dumps(
            {"status": "success", "action": "get", "topic": "città", "messages": [message]}
        ).encode()
    )
    assert list(message) == ["payload", "timestamp"]
    assert message["payload"] == "ciao"
    assert isinstance(message["timestamp"], float)
    assert abs(message["timestamp"] - before) < 30


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"action": "publish", "payload": 1}, "Topic mancante"),
        ({"action": "subscribe"}, "Topic mancante"),
        ({"action": "get", "topic": ""}, "Topic mancante"),
        ({"action": "get", "topic": 7}, "Topic mancante"),
        ({"action": "get", "topic": "x" * 257}, "Topic mancante"),
        ({"action": "publish", "topic": "t"}, "Payload mancante"),
        ({"action": "publish", "topic": "t", "payload": None}, "Payload mancante"),
        ({"action": "delete", "topic": "t"}, "Azione non supportata: delete"),
        ({"topic": "t"}, "Azione non supportata: None"),
        ({}, "Azione non supportata: None"),
        ({"action": ["get"]}, "Azione non supportata: ['get']"),
        (b"", "Formato messaggio non valido"),
        (b"{", "Formato messaggio non valido"),
        (b"[]", "Formato messaggio non valido"),
        (b'"get"', "Formato messaggio non valido"),
        (b"\xff\xfe", "Formato messaggio non valido"),
        (b"[" * 60_000, "Formato messaggio non valido"),
        (b'{"action": "get", "topic": "t", "x": NaN}', "Formato messaggio non valido"),
        (b"\0" * 65_507, "Formato messaggio non valido"),
    ],
)
def test_the_bytes_of_errors(peer: Peer, request_: Any, text: str) -> None:
    expected = {"status": "error", "error": text, "code": "invalid_argument"}
    assert peer.raw(request_) == json.dumps(expected).encode()


def test_a_topic_first_named_here_keeps_a_hundred(peer: Peer, native: Any) -> None:
    peer.publish(range(KEPT + 5))
    peer.ask("subscribe")
    assert peer.payloads() == list(range(5, KEPT + 5))
    assert peer.payloads() == list(range(5, KEPT + 5))  # reading removes nothing
    assert native.topic("news").info().settings.retention_messages == KEPT


def test_a_subscription_belongs_to_an_address(new_peer: Callable[[], Peer]) -> None:
    one, other = new_peer(), new_peer()
    one.ask("subscribe")
    other.publish(["a"])
    assert one.payloads() == ["a"]
    assert other.payloads() == []


def test_nothing_is_pushed_to_subscribers(new_peer: Callable[[], Peer]) -> None:
    one, other = new_peer(), new_peer()
    one.ask("subscribe")
    other.publish(range(3))
    # The next that comes is the answer to what is asked next.
    assert one.ask("subscribe", "more")["topic"] == "more"
