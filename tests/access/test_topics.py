"""Topics through the client, for callers who may only some of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import nexo

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker

pytestmark = pytest.mark.usefixtures("patient")


def test_who_may_not_bind_may_join_a_group_that_is_there(broker: GuardedBroker) -> None:
    owner, member = broker.token("*:*"), broker.token("news.mail:pop")
    with nexo.connect(broker.url, token=owner) as client:
        client.create_topic("news")
        with nexo.connect(broker.url, token=member) as working:
            with pytest.raises((nexo.Forbidden, nexo.QueueNotFound)):
                working.topic("news").subscribe(group="mail").get(timeout=5)
            client.topic("news").bind("news.mail")
            client.topic("news").publish("hello")
            with working.topic("news").subscribe(group="mail") as events:
                event: Any = events.get(timeout=10)
                assert event.text == "hello"
                event.ack()
            with pytest.raises(nexo.Forbidden):
                working.topic("news").publish("mine")


def test_a_pattern_finds_only_what_one_may_read(broker: GuardedBroker) -> None:
    owner, reader = broker.token("*:*"), broker.token("fleet.a:pop")
    with nexo.connect(broker.url, token=owner) as client:
        for name in ("fleet.a", "fleet.b"):
            client.create_topic(name).publish(name)
        with (
            nexo.connect(broker.url, token=reader) as reading,
            reading.topic("fleet.>").subscribe(start="earliest") as events,
        ):
            event: Any = events.get(timeout=10)
            assert event.text == "fleet.a"
            client.topic("fleet.b").publish("secret")
            assert events.get(timeout=0.1) is None
