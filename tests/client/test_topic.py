"""Topics through the client, on both twins."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nexo
from tests.client.eventually import eventually


def test_publish_and_read(client: Any) -> None:
    news = client.create_topic("news", retention_messages=100)
    assert news.publish("one", attributes={"a": "b"}) == 0
    assert news.publish_batch([b"two", {"n": 3}]) == [1, 2]
    assert news.publish_batch([]) == []
    events = news.read(offset=0, limit=100)
    assert [event.offset for event in events] == [0, 1, 2]
    assert [event.text for event in events] == ["one", "two", '{"n":3}']
    assert events[2].json() == {"n": 3}
    assert events[0].attributes == {"a": "b"}
    assert events[1].attributes == {}
    assert events[0].topic == "news"
    assert abs(events[0].published_at - datetime.now(UTC)) < timedelta(seconds=30)
    assert [event.offset for event in news.read(1, limit=1)] == [1]
    assert news.read(3) == []
    assert news.read(3, wait=0.05) == []


def test_retention(client: Any) -> None:
    news = client.create_topic("news", retention_messages=2)
    for number in range(5):
        news.publish(str(number))
    eventually(lambda: news.info().start == 3)
    assert [event.offset for event in news.read(0)] == [3, 4]
    with pytest.raises(nexo.OffsetExpired) as caught:
        news.read(0, strict=True)
    assert caught.value.code == "offset_expired"


def test_info(client: Any) -> None:
    news = client.create_topic("news", retention_seconds=60.0, retention_bytes=1_000)
    news.publish("x")
    info = news.info()
    assert (info.name, info.start, info.end, info.messages) == ("news", 0, 1, 1)
    assert info.settings.retention_seconds == 60.0
    assert "news" in [each.name for each in client.topics()]
    client.create_topic("news", retention_seconds=60.0, retention_bytes=1_000)
    with pytest.raises(nexo.TopicExists):
        client.create_topic("news")
    news.delete()
    with pytest.raises(nexo.TopicNotFound):
        news.publish("x")


def test_bind(client: Any) -> None:
    news = client.create_topic("news")
    news.bind(queue="all")
    news.bind("some", where={"kind": "a"})
    news.publish("1", attributes={"kind": "a"})
    news.publish("2", attributes={"kind": "b"})
    news.publish("3")
    assert [m.text for m in client.queue("all").pop_batch(10, wait=5)] == ["1", "2", "3"]
    assert [m.text for m in client.queue("some").pop_batch(10, wait=5)] == ["1"]
    assert sorted(news.info().bound_queues) == ["all", "some"]
    news.unbind("some")
    news.publish("4", attributes={"kind": "a"})
    assert client.queue("some").pop() is None
    with pytest.raises(nexo.InvalidArgument):
        news.bind("late", start="earliest")


def test_subscribe(client: Any) -> None:
    news = client.create_topic("news")
    news.publish("before")
    with news.subscribe() as latest, news.subscribe(start="earliest") as earliest:
        assert latest.get(timeout=0.1) is None
        news.publish("after")
        assert latest.get(timeout=5).text == "after"
        assert [earliest.get(timeout=5).text for _ in range(2)] == ["before", "after"]
    with news.subscribe(start=1) as later:
        assert later.get(timeout=5).offset == 1
    seen = []
    for event in news.subscribe(start=0):
        seen.append(event.text)
        if len(seen) == 2:
            break
    assert seen == ["before", "after"]
    with pytest.raises(nexo.InvalidArgument):
        news.subscribe(start="yesterday")


def test_close_ends_the_loop(client: Any) -> None:
    news = client.create_topic("news")
    subscription = news.subscribe()
    reader = threading.Thread(target=lambda: list(subscription))
    reader.start()
    subscription.close()
    reader.join(10)
    assert not reader.is_alive()


def test_groups_share_the_work(client: Any) -> None:
    news = client.create_topic("news")
    with news.subscribe(group="mail") as one, news.subscribe(group="mail") as other:
        for number in range(40):
            news.publish(str(number))
        seen = []
        for subscription in (one, other) * 100:
            event = subscription.get(timeout=0.02)
            if event is not None:
                assert event.topic == "news"
                assert event.published_at.tzinfo is UTC
                event.ack()
                seen.append(event.text)
            if len(seen) == 40:
                break
    assert sorted(seen, key=int) == [str(number) for number in range(40)]
    assert client.queue("news.mail").info().depth == 0
