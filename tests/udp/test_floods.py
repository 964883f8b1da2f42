"""Tables that do not grow, whoever writes, and time that makes room in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.json_udp.addresses import Rates
from nexo.doors.json_udp.subscriptions import Subscriptions
from nexo.vocabulary import limits
from nexo.vocabulary.errors import RateLimited
from tests.udp.talking import Talking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.json_udp.addresses import Address

NEAR = ("127.0.0.1", 40_000)


@pytest.fixture
def talking() -> Iterator[Talking]:
    with Talking() as started:
        yield started


def address(number: int) -> Address:
    return (f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 9)


def test_a_rate_and_its_burst() -> None:
    rates = Rates(per_s=10, burst=5)
    assert [rates.allow(NEAR, 1.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert rates.allow(address(1), 1.0)  # another's is its own
    assert [rates.allow(NEAR, 1.25) for _ in range(3)] == [True, True, False]
    assert [rates.allow(NEAR, 60.0) for _ in range(6)] == [True] * 5 + [False]


def test_the_table_of_rates_is_bounded() -> None:
    rates = Rates(per_s=1, burst=2, addresses_max=100)
    for number in range(10_000):
        rates.allow(address(number), 1.0 + number / 1_000)
        assert len(rates) <= 100
    # Who is heard of stays; the longest silent is forgotten.
    assert not [rates.allow(address(9_999), 11.0) for _ in range(3)][-1]


def test_too_many_datagrams_of_one_address(talking: Talking) -> None:
    talking.door.rates = Rates(per_s=10, burst=3)
    request = {"action": "get", "topic": "n"}
    replies = [talking.ask(request, NEAR) for _ in range(4)]
    assert [each["status"] for each in replies] == ["success"] * 3 + ["error"]
    assert replies[-1] == {"status": "error", "error": "Troppe richieste", "code": "rate_limited"}
    assert talking.ask(request, address(1))["status"] == "success"
    talking.now_s += 0.1
    assert talking.ask(request, NEAR)["status"] == "success"


def test_a_subscription_ends_after_silence(talking: Talking) -> None:
    publish = {"action": "publish", "topic": "news", "payload": 1}
    get = {"action": "get", "topic": "news"}
    talking.ask({"action": "subscribe", "topic": "news"}, NEAR)
    talking.ask(publish, address(1))
    for _ in range(3):
        talking.now_s += limits.UDP_SUBSCRIPTION_IDLE_S - 1
        assert len(talking.ask(get, NEAR)["messages"]) == 1
    talking.now_s += limits.UDP_SUBSCRIPTION_IDLE_S - 1
    talking.ask({"action": "publish", "topic": "other", "payload": 1}, NEAR)  # traffic of any kind
    talking.now_s += limits.UDP_SUBSCRIPTION_IDLE_S - 1
    assert len(talking.ask(get, NEAR)["messages"]) == 1
    talking.now_s += limits.UDP_SUBSCRIPTION_IDLE_S
    assert talking.ask(get, NEAR)["messages"] == []
    assert len(talking.door.subscriptions) == 0


def test_unsubscribe(talking: Talking) -> None:
    for topic in ("a", "b"):
        talking.ask({"action": "subscribe", "topic": topic}, NEAR)
        talking.ask({"action": "publish", "topic": topic, "payload": topic}, NEAR)
    done = talking.raw({"action": "unsubscribe", "topic": "a"}, NEAR)
    assert done == b'{"status": "success", "action": "unsubscribe", "topic": "a"}'
    assert talking.raw({"action": "unsubscribe", "topic": "a"}, NEAR) == done
    assert talking.ask({"action": "get", "topic": "a"}, NEAR)["messages"] == []
    assert len(talking.ask({"action": "get", "topic": "b"}, NEAR)["messages"]) == 1
    talking.ask({"action": "unsubscribe", "topic": "b"}, NEAR)
    assert len(talking.door.subscriptions) == 0


def test_the_table_of_subscriptions_is_bounded() -> None:
    table = Subscriptions(addresses_max=100, topics_max=3, idle_s=60.0)
    for number in range(100):
        table.add(address(number), "t", number / 10)
    with pytest.raises(RateLimited):
        table.add(address(100), "t", 59.0)
    table.hear(address(0), 59.5)  # it is not the longest silent any more
    table.add(address(100), "t", 60.15)  # address 1 has been silent for a minute
    assert table.has(address(0), "t")
    assert not table.has(address(1), "t")
    assert len(table) == 100
    for topic in ("t", "u", "v", "u"):
        table.add(address(0), topic, 60.16)
    with pytest.raises(RateLimited):
        table.add(address(0), "w", 60.16)
    assert len(table) <= 100


def test_a_flood_of_subscribers(talking: Talking) -> None:
    talking.door.subscriptions = Subscriptions(addresses_max=50)
    data = json.dumps({"action": "subscribe", "topic": "news"}).encode()
    talking.send([(data, address(number)) for number in range(5_000)])
    codes = [json.loads(reply).get("code") for reply, _ in talking.taken()]
    assert (codes.count(None), codes.count("rate_limited")) == (50, 4_950)
    assert len(talking.door.subscriptions) == 50
    assert len(talking.door.rates) == 5_000


def test_a_flood_of_topics(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.doors.json_udp.groups.UDP_TOPICS_MAX", 20)
    requests: list[dict[str, Any]] = [
        {"action": "publish", "topic": f"t{number}", "payload": 1} for number in range(200)
    ]
    for request in requests:
        talking.ask(request, NEAR)
    assert len(talking.engine.topics) == 20
    refused = talking.ask(requests[-1], NEAR)
    assert (refused["error"], refused["code"]) == ("Troppe richieste", "rate_limited")
    assert talking.ask(requests[0], NEAR)["status"] == "success"


def test_a_flood_of_requests_that_wait(talking: Talking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.doors.json_udp.door.UDP_WAITING_MAX", 10)
    talking.ask({"action": "subscribe", "topic": "news"}, NEAR)
    talking.ask({"action": "publish", "topic": "news", "payload": 1}, NEAR)
    get = json.dumps({"action": "get", "topic": "news"}).encode()
    new = [
        json.dumps({"action": "publish", "topic": f"new{number}", "payload": 1}).encode()
        for number in range(5)
    ]
    talking.send([(data, NEAR) for data in [get] * 30 + new])
    codes = [json.loads(reply).get("code") for reply, _ in talking.taken()]
    assert (codes.count(None), codes.count("rate_limited")) == (10, 25)
    assert talking.ask({"action": "get", "topic": "news"}, NEAR)["status"] == "success"


def test_malformed_floods_change_nothing(talking: Talking) -> None:
    noise = [b"", b"\xff" * 100, b"[" * 1_000, b"{}", b'{"action":"get"}', b"\0" * 65_507]
    talking.send([(data, address(number)) for number in range(300) for data in noise])
    replies = talking.taken()
    assert len(replies) == 1_800
    assert {json.loads(reply)["status"] for reply, _ in replies} == {"error"}
    assert len(talking.door.subscriptions) == 0
    assert not talking.engine.queues
