"""Chosen messages through the client: found, counted, shown, discarded, redriven, sent again; on
both twins, and with tokens of few rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import nexo
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from tests.client.running import RunningBroker


def die(client: Any, reasons: dict[str, str]) -> Any:
    """Messages of `orders` that die, each of its reason; the dead-letter queue."""
    orders = client.create_queue("orders", max_attempts=1)
    for body, reason in reasons.items():
        orders.push(body)
        orders.pop(wait=5.0).nack(reason=reason)
    return client.queue("orders_dlq")


def texts(queue: Any) -> list[str]:
    return sorted(each.text for each in queue.peek(100))


def test_find_count_and_explain(client: Any) -> None:
    dead = die(client, {"a": "order 1 gone", "b": "order 2 gone", "c": "boom", "d": "order x gone"})
    assert [each.text for each in dead.search("boom")] == ["c"]
    assert [each.text for each in dead.search("a", limit=1)] == ["a"]
    assert [each.text for each in dead.search(reason="order 77 gone")] == ["a", "b"]
    assert dead.count(reason="order # gone") == 2
    assert dead.count() == 4
    for queue in (dead, client.queue("orders")):
        groups = queue.why()
        assert [(each.reason, each.count) for each in groups] == [
            ("order # gone", 2),
            ("boom", 1),
            ("order x gone", 1),
        ]
        assert groups[0].queue == "orders_dlq"
        assert (groups[0].example.text, groups[0].sources) == ("a", ("orders",))
        assert groups[0].first_at <= groups[0].last_at
        assert groups[0].consumer


def test_by_a_condition_in_sql(client: Any) -> None:
    dead = die(client, {"1": "timeout", "20": "boom", "30": "boom", "x": "boom"})
    assert [each.text for each in dead.search(where="try_cast(text AS int) > 5")] == ["20", "30"]
    where = "reason = 'boom' AND state = 'ready' AND attempts = 0 AND source = 'orders_dlq'"
    assert dead.count(where=where) == 3
    assert dead.count(where=where, reason="timeout") == 0
    assert dead.redrive(where="text = '30'") == 1
    assert texts(client.queue("orders")) == ["30"]
    assert dead.discard(where="reason = 'boom'") == 2
    assert texts(dead) == ["1"]
    for wrong in ("no_such_column = 1", "1 = 1) UNION SELECT (", "sum(attempts) > 1"):
        with pytest.raises(nexo.InvalidArgument, match="condition"):
            dead.count(where=wrong)
    with pytest.raises(nexo.InvalidArgument, match="condition"):
        dead.discard(where="id IN (SELECT content FROM read_text('/etc/hostname'))")
    assert texts(dead) == ["1"]


def test_redrive_and_discard_by_id_and_reason(client: Any) -> None:
    dead = die(client, {"a": "one", "b": "two", "c": "two", "d": "three"})
    ids = {each.text: each.id for each in dead.peek()}
    assert dead.redrive(ids=[ids["a"], ids["b"]]) == 2
    assert texts(client.queue("orders")) == ["a", "b"]
    assert dead.redrive(reason="nothing") == 0
    task = dead.redrive(reason="two", wait=False)
    assert task.wait() == 1
    assert dead.discard(ids["d"]) == 1
    assert dead.discard(["no-such-id"]) == 0
    assert texts(dead) == []
    with pytest.raises(nexo.InvalidArgument, match="needs to know which messages"):
        dead.discard()


def test_one_message_with_its_life(client: Any) -> None:
    dead = die(client, {"body": "boom"})
    (seen,) = dead.peek()
    told = {"pushed", "delivered", "nacked", "dead_lettered"}
    eventually(lambda: {each.kind for each in dead.message(seen.id).life} >= told)
    shown = dead.message(seen.id)
    assert (shown.text, shown.id, shown.state) == ("body", seen.id, nexo.State.READY)
    assert next(each for each in shown.life if each.kind == "nacked").reason == "boom"
    dead.discard(seen.id)
    gone = dead.message(seen.id)
    assert gone.state is nexo.State.GONE
    assert gone.life
    with pytest.raises(nexo.MessageNotFound):
        client.queue("orders").message(seen.id[:-1] + ("0" if seen.id[-1] != "0" else "1"))
    with pytest.raises(nexo.InvalidArgument, match="not a message id"):
        dead.message("garbage")


def test_resend_changed(client: Any) -> None:
    dead = die(client, {"broken": "boom"})
    (seen,) = dead.peek()
    fresh = dead.resend(seen.id, body={"fixed": True}, attributes={"by": "me"})
    assert dead.peek() == []
    (message,) = client.queue("orders").peek()
    assert (message.id, message.json()) == (fresh, {"fixed": True})
    assert message.attributes == {"by": "me", "nexo.original_id": seen.id}
    with pytest.raises(nexo.MessageNotFound):
        dead.resend(seen.id)


@pytest.mark.parametrize(
    ("allow", "allowed"),
    [
        ("orders_dlq:peek", {"search", "why", "message"}),
        ("orders_dlq:manage", {"discard", "redrive"}),
        ("orders_dlq:pop,push", set()),
    ],
)
def test_each_takes_its_permission(allow: str, allowed: set[str]) -> None:
    from tests.access.guarded import GuardedBroker

    broker = GuardedBroker()
    try:
        url = broker.url
        with nexo.connect(url, token=broker.token("*:*")) as admin:
            dead = die(admin, {"a": "boom"})
            (seen,) = dead.peek()
        with nexo.connect(url, token=broker.token(allow)) as client:
            queue = client.queue("orders_dlq")
            calls = {
                "search": lambda: queue.search("zzz"),
                "why": queue.why,
                "message": lambda: queue.message(seen.id),
                "redrive": lambda: queue.redrive(reason="other"),
                "discard": lambda: queue.discard("other"),
                "resend": lambda: queue.resend(seen.id),
            }
            for name, call in calls.items():
                if name in allowed:
                    call()
                else:
                    with pytest.raises(nexo.Forbidden):
                        call()
        told = {(each.action, each.outcome) for each in broker.audit()}
        if "discard" in allowed:
            assert ("discard", "done") in told
        assert ("resend", "forbidden") in told
    finally:
        broker.stop()


def test_of_a_large_queue_in_pages(client: Any, broker: RunningBroker) -> None:
    queue = client.create_queue("many")
    for start in range(0, 30_000, 10_000):
        queue.push_batch([b"%d" % number for number in range(start, start + 10_000)])
    assert queue.count(where="try_cast(text AS int) % 1000 = 0") == 30
    assert queue.discard(where="try_cast(text AS int) % 2 = 0") == 15_000
    assert queue.info().depth == 15_000
    assert len(queue.search("9", limit=2_500)) == 2_500
