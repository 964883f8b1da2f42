"""Chosen messages over HTTP: found, counted, shown, redriven, discarded and sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import QueueSettings
from tests.access.guarded import GuardedBroker
from tests.admin.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine

DEAD = {"a": "order 1 is gone", "b": "order 2 is gone", "c": "boom"}
AT = "/queues/orders_dlq"

pytestmark = pytest.mark.usefixtures("patient")


async def die(engine: Engine) -> None:
    queue = await engine.create_queue("orders", QueueSettings(max_attempts=1))
    for body, reason in DEAD.items():
        await queue.push(batch_of([body.encode()]))
        delivery = await queue.pop(1, one_ack=True, consumer="worker-1")
        (part,) = delivery.parts
        await queue.nack(delivery.lease, part.first, part.first + 1, 0, reason)


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedBroker]:
    running = GuardedBroker()
    yield running
    running.stop()


@pytest.fixture
def broker(guarded: GuardedBroker) -> GuardedBroker:
    async def renew() -> None:
        for name in list(guarded.engine.queues):
            await guarded.engine.delete_queue(name)
        await die(guarded.engine)

    guarded.wait_for(renew())
    return guarded


def api_of(broker: GuardedBroker, *allow: str) -> Api:
    return Api(broker.ports.http, broker.token(*allow))


def ended(api: Api, task: dict[str, Any]) -> dict[str, Any]:
    while not task["finished"]:
        time.sleep(0.01)
        task = api("GET", f"/redrives/{task['task']}", status=200).json
    return task


def bodies(broker: GuardedBroker, name: str) -> list[str]:
    seen = broker.wait_for(broker.engine.queue(name).peek(100))
    return [each.body.decode() for each in seen]


def test_search_reasons_and_one_message(broker: GuardedBroker) -> None:
    api = api_of(broker, "orders_dlq:peek")
    found = api("POST", f"{AT}/search", {"text": "gone", "limit": 1, "count": True}).json
    assert ([each["body"] for each in found["messages"]], found["matched"]) == (["a"], 2)
    found = api("POST", f"{AT}/search", {"reason": "order 99 is gone"}, status=200).json
    assert [each["body"] for each in found["messages"]] == ["a", "b"]
    assert (found["looked_at"], found["next"]) == (3, None)
    told = api("GET", f"{AT}/reasons", status=200).json["reasons"]
    assert [(each["reason"], each["count"]) for each in told] == [
        ("order # is gone", 2),
        ("boom", 1),
    ]
    assert (told[0]["consumer"], told[0]["sources"]) == ("worker-1", ["orders"])
    assert told[0]["example"]["body"] == "a"
    identity = found["messages"][0]["id"]
    shown = api("GET", f"{AT}/messages/{identity}", status=200).json
    assert shown["message"]["dead_letter"]["reason"] == DEAD["a"]
    assert "lacks the permission peek on the queue that it was first pushed to" in shown["note"]
    other = identity[:-1] + "f"
    assert api("GET", f"{AT}/messages/{other}", status=404).code == "message_not_found"
    assert api("GET", f"{AT}/messages/garbage", status=400).code == "invalid_argument"


def test_redrive_and_discard_those_that_are_meant(broker: GuardedBroker) -> None:
    api = api_of(broker, "orders_dlq:manage")
    task = api("POST", f"{AT}/redrive", {"reason": "order # is gone"}, status=202).json
    task = ended(api, task)
    assert (task["moved"], task["total"], task["status"]) == (2, 2, "completed")
    assert (bodies(broker, "orders"), bodies(broker, "orders_dlq")) == (["a", "b"], ["c"])
    task = ended(api, api("POST", f"{AT}/discard", {"text": "nothing of this"}, status=202).json)
    assert task["moved"] == 0
    task = ended(api, api("POST", f"{AT}/discard", {"reason": "boom"}, status=202).json)
    assert (task["moved"], task["action"]) == (1, "discard")
    assert bodies(broker, "orders_dlq") == []
    assert api("POST", f"{AT}/discard", {}, status=400).code == "invalid_argument"
    told = {(each.action, each.resource, each.outcome) for each in broker.audit()}
    assert ("discard", "orders_dlq", "done") in told
    assert ("redrive", "orders_dlq", "done") in told


def test_resend_needs_both_queues(broker: GuardedBroker) -> None:
    (first, *_) = broker.wait_for(broker.engine.queue("orders_dlq").peek(1))
    path = f"{AT}/messages/{first.id}/resend"
    changes = {"body": {"fixed": 1}, "attributes": {"by": "me"}}
    for lacking in ("orders_dlq:manage", "orders:push"):
        refused = api_of(broker, lacking)("POST", path, changes, status=403)
        assert refused.code == "forbidden"
    assert bodies(broker, "orders_dlq") == [*DEAD]
    api = api_of(broker, "orders_dlq:manage", "orders:push")
    sent = api("POST", path, changes, status=201).json
    assert (sent["queue"], sent["original_id"]) == ("orders", first.id)
    assert bodies(broker, "orders") == ['{"fixed": 1}']
    assert bodies(broker, "orders_dlq") == ["b", "c"]
    assert api("POST", path, changes, status=404).code == "message_not_found"
    assert api("POST", path, {"encoding": "text"}, status=400).code == "invalid_argument"
