"""Topics through the client, on both twins."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import cycle
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
        news.bind("late", start="yesterday")
    with pytest.raises(nexo.TopicNotFound):
        client.topic("nowhere").bind("all")


def test_bind_from_a_start_in_the_past(client: Any) -> None:
    news = client.create_topic("news")
    news.publish_batch([str(number) for number in range(50)])
    news.publish("50")
    time.sleep(0.01)
    moment = datetime.now(UTC)
    news.publish("51", attributes={"kind": "a"})
    wanted = {
        "all": ("earliest", None, [str(number) for number in range(52)]),
        "some": (49, None, ["49", "50", "51"]),
        "later": (moment, None, ["51"]),
        "chosen": ("earliest", {"kind": "a"}, ["51"]),
        "none": ("latest", None, []),
    }
    for name, (start, where, texts) in wanted.items():
        for _ in range(2):
            news.bind(name, start=start, where=where)
        got = client.queue(name).pop_batch(100)
        assert [message.text for message in got] == texts, name
        assert client.queue(name).info().depth == len(texts)
    news.publish("52")
    assert client.queue("later").pop(wait=5).text == "52"


def test_read_by_time(client: Any) -> None:
    news = client.create_topic("news")
    news.publish("a")
    time.sleep(0.01)
    moment = datetime.now(UTC)
    news.publish_batch(["b", "c"])
    news.publish_batch([str(number) for number in range(40)])
    assert [event.text for event in news.read(time=moment, limit=3)] == ["b", "c", "0"]
    assert news.read(time=moment - timedelta(days=1), limit=1)[0].text == "a"
    assert news.read(time=datetime.now(UTC) + timedelta(hours=1)) == []
    elsewhere = moment.astimezone(timezone(timedelta(hours=5)))
    assert news.read(time=elsewhere)[0].text == "b"
    with pytest.raises(nexo.InvalidArgument):
        news.read(time=moment.replace(tzinfo=None))


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
    with news.subscribe(start=news.read(1)[0].published_at) as timed:
        assert timed.get(timeout=5).text in ("before", "after")
    with pytest.raises(nexo.TopicNotFound), client.topic("nowhere").subscribe() as never:
        never.get(timeout=1)


def test_subscribe_by_pattern(client: Any) -> None:
    for name in ("fleet.one.position", "fleet.two.position", "fleet.two.fuel", "other"):
        client.create_topic(name).publish(f"{name} before")
    with (
        client.topic("fleet.*.position").subscribe() as positions,
        client.topic("fleet.>").subscribe(start="earliest") as everything,
    ):
        assert positions.get(timeout=0.05) is None
        before = {everything.get(timeout=5).topic for _ in range(3)}
        assert before == {"fleet.one.position", "fleet.two.position", "fleet.two.fuel"}
        client.topic("fleet.two.position").publish("moved")
        event = positions.get(timeout=5)
        assert (event.topic, event.offset, event.text) == ("fleet.two.position", 1, "moved")
        client.create_topic("fleet.three.position").publish("joined")
        event = positions.get(timeout=5)
        assert (event.topic, event.text) == ("fleet.three.position", "joined")
        client.topic("fleet.two.fuel").publish("low")
        client.topic("other").publish("unheard")
        seen = {everything.get(timeout=5).text for _ in range(3)}
        assert seen == {"moved", "joined", "low"}
        assert everything.get(timeout=0.05) is None
        client.topic("fleet.two.position").delete()
        client.create_topic("fleet.two.position").publish("anew")
        assert positions.get(timeout=5).text == "anew"
    with client.topic("*").subscribe(start="earliest") as plain:
        assert [plain.get(timeout=5).topic for _ in range(2)] == ["other", "other"]
    client.queue("q", create=True).push("told in nexo.events")
    with client.topic(">").subscribe(start="earliest") as users:
        topics: set[str] = set()
        while len(topics) < 5:
            topics.add(users.get(timeout=10).topic)
        topics |= {event.topic for event in iter(lambda: users.get(timeout=0.1), None)}
    assert len(topics) == 5
    assert "nexo.events" not in topics, "the broker's own topics are asked for by name"
    for wrong in ("a.>.b", "fleet.x*"):
        with pytest.raises(nexo.InvalidArgument):
            client.topic(wrong).subscribe()
    with pytest.raises(nexo.InvalidArgument):
        client.topic("fleet.>").subscribe(group="g")


def test_a_busy_topic_does_not_keep_the_others_waiting(client: Any) -> None:
    client.create_topic("a.busy").publish_batch([b"x"] * 5_000)
    client.create_topic("a.quiet").publish("hello")
    with client.topic("a.*").subscribe(start="earliest") as both:
        first = [both.get(timeout=5).topic for _ in range(1_000)]
    assert "a.quiet" in first


def test_the_events_of_the_broker(client: Any) -> None:
    with client.topic("nexo.events").subscribe() as events:
        queue = client.queue("orders", create=True)
        queue.push_batch(["a", "b"])
        told = events.get(timeout=5).json()
        assert (told["kind"], told["queue"], told["count"]) == ("pushed", "orders", 2)
    with pytest.raises(nexo.InvalidArgument):
        client.topic("nexo.events").subscribe(group="g").get(timeout=1)
    with pytest.raises(nexo.InvalidArgument):
        client.topic("nexo.events").publish("mine")


def test_archived_queues_can_be_read(client: Any) -> None:
    client.create_queue("orders", archive=True)
    orders = client.queue("orders")
    orders.push_batch(["a", "b", "c"])
    assert orders.ack_batch(orders.pop_batch(2)) == []
    archive = client.topic("nexo.archive.orders")
    assert [event.text for event in archive.read()] == ["a", "b", "c"]
    assert orders.info().depth == 1


def test_close_ends_the_loop(client: Any) -> None:
    news = client.create_topic("news")
    subscription = news.subscribe()
    reader = threading.Thread(target=lambda: list(subscription))
    reader.start()
    subscription.close()
    reader.join(10)
    assert not reader.is_alive()


def test_closing_ends_a_loop_that_is_about_to_read(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing yet that closing could finish: the loop looks again before it waits."""
    with nexo.connect(broker.url, timeout=20) as client:
        subscription = client.create_topic("news").subscribe()
        read = subscription._reader.read

        def closed_just_then(wait_ms: int) -> Any:
            subscription.close()
            return read(wait_ms)

        monkeypatch.setattr(subscription._reader, "read", closed_just_then)
        began = time.monotonic()
        assert subscription.get(timeout=20) is None
        assert time.monotonic() - began < 10


def test_groups_share_the_work(client: Any) -> None:
    news = client.create_topic("news")
    with news.subscribe(group="mail") as one, news.subscribe(group="mail") as other:
        for number in range(40):
            news.publish(str(number))
        seen = []
        ends = time.monotonic() + 20
        for subscription in cycle((one, other)):
            event = subscription.get(timeout=0.02)
            if event is not None:
                assert event.topic == "news"
                assert event.published_at.tzinfo is UTC
                event.ack()
                seen.append(event.text)
            if len(seen) == 40 or time.monotonic() > ends:
                break
    assert sorted(seen, key=int) == [str(number) for number in range(40)]
    assert client.queue("news.mail").info().depth == 0


def test_groups_begin_where_they_are_told(client: Any) -> None:
    news = client.create_topic("news")
    news.publish_batch(["a", "b"])
    with news.subscribe(group="all", start="earliest", prefetch=1) as group:
        event = group.get(timeout=5)
        assert (event.text, event.topic, event.offset) == ("a", "news", None)
        event.ack()
        group.get(timeout=5).nack(delay=0)
    with news.subscribe(group="all", start="earliest") as again:
        event = again.get(timeout=5)
        assert (event.text, event.attempts) == ("b", 2)
        event.ack()
        assert again.get(timeout=0.05) is None, "the start counts when the group is first named"
    for wrong in ("", "a.b", "a b"):
        with pytest.raises(nexo.InvalidArgument):
            news.subscribe(group=wrong)


def test_each_group_gets_everything(client: Any) -> None:
    news = client.create_topic("news")
    with news.subscribe(group="one") as one, news.subscribe(group="two") as two:
        news.publish_batch(["a", "b"])
        for group in (one, two):
            assert [group.get(timeout=5).text for _ in range(2)] == ["a", "b"]
