"""`since`, `limit`, and replies that do not fit a datagram."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.vocabulary.limits import UDP_PAYLOAD_BYTES_MAX, UDP_REPLY_BYTES_MAX

if TYPE_CHECKING:
    from tests.udp.peer import Peer


def pages(peer: Peer, topic: str = "news", **fields: Any) -> list[list[dict[str, Any]]]:
    """Follow `next` until nothing is cut any more."""
    found = []
    reply = peer.ask("get", topic, **fields)
    while True:
        found.append(reply["messages"])
        if "truncated" not in reply:
            return found
        assert reply["truncated"] is True
        assert len(found) < 1_000
        reply = peer.ask("get", topic, **{**fields, "since": reply["next"]})


def test_a_reply_that_fits_says_nothing_of_pages(peer: Peer) -> None:
    peer.ask("subscribe")
    peer.publish(range(3))
    assert list(peer.ask("get")) == ["status", "action", "topic", "messages"]


def test_a_reply_is_cut_at_a_whole_message(peer: Peer) -> None:
    peer.ask("subscribe")
    sent = [f"{number} " + "x" * 5_000 for number in range(30)]
    peer.publish(sent)
    first = peer.raw({"action": "get", "topic": "news"})
    assert UDP_REPLY_BYTES_MAX - 5_100 < len(first) <= UDP_REPLY_BYTES_MAX
    found = pages(peer)
    assert [each["payload"] for page in found for each in page] == sent
    assert len(found) == 3
    assert json.loads(first)["next"] == len(found[0])


def test_the_largest_payloads_come_one_by_one(peer: Peer) -> None:
    topic = "\x01" * 256  # the longest name there is, as JSON
    peer.ask("subscribe", topic)
    sent = [str(number) + "y" * (UDP_PAYLOAD_BYTES_MAX - 3) for number in range(3)]
    peer.publish(sent, topic)
    assert [[each["payload"] for each in page] for page in pages(peer, topic)] == [
        [each] for each in sent
    ]
    group = peer.ask("get", topic, group="\x01" * 256)
    assert len(group["messages"]) <= 1


def test_one_byte_more_is_refused(peer: Peer) -> None:
    reply = peer.ask("publish", payload="z" * (UDP_PAYLOAD_BYTES_MAX - 1))
    assert reply == {
        "status": "error",
        "error": "Payload troppo grande",
        "code": "message_too_large",
    }


def test_since_is_inclusive_and_next_goes_on(peer: Peer) -> None:
    peer.ask("subscribe")
    peer.publish(range(10))
    reply = peer.ask("get", since=7)
    assert [each["payload"] for each in reply["messages"]] == [7, 8, 9]
    assert (reply["next"], "truncated" in reply) == (10, False)
    reply = peer.ask("get", since=reply["next"])
    assert (reply["messages"], reply["next"]) == ([], 10)
    peer.publish(["new"])
    assert peer.payloads(since=reply["next"]) == ["new"]
    assert peer.ask("get", since=1_000)["messages"] == []


def test_a_limit(peer: Peer) -> None:
    peer.ask("subscribe")
    peer.publish(range(10))
    seen, since = [], 0
    while True:
        reply = peer.ask("get", since=since, limit=4)
        if not reply["messages"]:
            break
        assert len(reply["messages"]) <= 4
        seen += [each["payload"] for each in reply["messages"]]
        since = reply["next"]
    assert seen == list(range(10))
    assert peer.payloads(limit=2) == [0, 1]
    assert peer.payloads(limit=10**9) == list(range(10))


def test_below_what_is_kept_it_goes_on_at_the_oldest(peer: Peer) -> None:
    peer.ask("subscribe")
    peer.publish(range(120))
    reply = peer.ask("get", since=3, limit=2)
    assert [each["payload"] for each in reply["messages"]] == [20, 21]
    assert reply["next"] == 22


def test_a_topic_made_natively(peer: Peer, native: Any) -> None:
    """Whatever its bodies are; and one that fits no datagram does not stand in the way."""
    topic = native.create_topic("news")
    bodies = [b'{"a": [1]}', "testo: perché".encode(), b"\xff\x00", b"", b"x" * 70_000, b"[" * 999]
    topic.publish_batch(bodies)
    topic.publish("last")
    peer.ask("subscribe")
    found = [each for page in pages(peer) for each in page]
    assert [each["payload"] for each in found] == [
        {"a": [1]},
        "testo: perché",
        base64.b64encode(b"\xff\x00").decode(),
        "",
        None,
        "[" * 999,
        "last",
    ]
    assert [each.get("encoding") for each in found] == [None, None, "base64", *[None] * 4]
    assert (found[4]["code"], found[4]["size"]) == ("message_too_large", 70_000)


def test_many_small_messages_of_a_native_topic(peer: Peer, native: Any) -> None:
    native.create_topic("news").publish_batch([str(number) for number in range(5_000)])
    peer.ask("subscribe")
    found = pages(peer)
    assert [each["payload"] for page in found for each in page] == list(range(5_000))
    assert len(found) < 6


@pytest.mark.parametrize(
    "payload", [None, 0, -0.5, 1e300, 10**30, True, "è \u2028 😀 \0", [], {"a": {"b": [None]}}]
)
def test_any_payload_is_what_a_native_client_reads(peer: Peer, native: Any, payload: Any) -> None:
    sent = [payload]  # a payload that is null is none
    peer.publish([sent])
    peer.ask("subscribe")
    assert peer.payloads() == [sent]
    (event,) = native.topic("news").read()
    assert event.json() == sent


def test_names_that_only_datagrams_have(peer: Peer, native: Any) -> None:
    for topic in ("città", "citta", "a b", "a-b", "x" * 256, "x" * 255, "Ü" * 256):
        peer.publish([topic], topic)
        peer.ask("subscribe", topic)
        assert peer.payloads(topic) == [topic]
    names = {each.name for each in native.topics() if not each.name.startswith("nexo.")}
    assert len(names) == 7
    assert {"citta", "a-b"} < names


def test_topics_of_the_broker_are_for_reading(peer: Peer) -> None:
    for topic in ("nexo.events", "nexo.archive.x", "nexo.mine"):
        reply = peer.ask("publish", topic, payload=1)
        assert (reply["status"], reply["code"]) == ("error", "invalid_argument")
