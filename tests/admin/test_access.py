"""Every operation, tried with every kind of wrong credentials and with just enough.

The table says what each needs in the words of the manual. It is written by hand, apart from the one
in the door, so that a change there has to be meant. An operation without a row fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from nexo.doors.admin_http.app import OPERATIONS
from tests.access.guarded import GuardedBroker
from tests.admin.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN = "admin"
ALL = {"push", "pop", "peek", "manage"}


class Row(NamedTuple):
    """What to send, and which of the actions will do on `orders`, `news` and `nexo.metrics`."""

    path: str
    needed: set[str]
    body: Any = None


ROWS = {
    "overview": Row("/overview", {"peek"}),
    "create_queue": Row("/queues", {"manage"}, {"name": "orders"}),
    "queue_info": Row("/queues/orders", ALL),
    "edit_queue": Row("/queues/orders", {"manage"}, {"settings": {}}),
    "delete_queue": Row("/queues/orders", {"manage"}),
    "purge": Row("/queues/orders/purge", {"manage"}),
    "pause": Row("/queues/orders/pause", {"manage"}),
    "resume": Row("/queues/orders/resume", {"manage"}),
    "release": Row("/queues/orders/release", {"manage"}, {"consumer": "c"}),
    "peek": Row("/queues/orders/messages", {"peek"}),
    "push": Row("/queues/orders/messages", {"push"}, {"messages": [{"body": "x"}]}),
    "redrive": Row("/queues/orders/redrive", {"manage"}, {}),
    "search": Row("/queues/orders/search", {"peek"}, {"text": "x"}),
    "reasons": Row("/queues/orders/reasons", {"peek"}),
    "message": Row("/queues/orders/messages/00000000-0000-8000-8000-000000000000", {"peek"}),
    "discard": Row("/queues/orders/discard", {"manage"}, {"ids": ["x"]}),
    "resend": Row("/queues/orders/messages/x/resend", {"manage"}, {"to": "other"}),
    "redrive_progress": Row("/redrives/1", {"manage"}),
    "redrive_cancel": Row("/redrives/1", {"manage"}),
    "create_topic": Row("/topics", {"manage"}, {"name": "news"}),
    "topic_info": Row("/topics/news", ALL),
    "edit_topic": Row("/topics/news", {"manage"}, {"settings": {}}),
    "delete_topic": Row("/topics/news", {"manage"}),
    "list_bindings": Row("/topics/news/bindings", ALL),
    "bind": Row("/topics/news/bindings", {"manage"}, {"queue": "orders"}),
    "unbind": Row("/topics/news/bindings?queue=orders", {"manage"}),
    "read": Row("/topics/news/messages", {"pop", "peek"}),
    "publish": Row("/topics/news/messages", {"push"}, {"messages": [{"body": "x"}]}),
    "list_connections": Row("/connections", {ADMIN}),
    "close_connection": Row("/connections/9999999", {ADMIN}),
    "cluster_info": Row("/cluster", {ADMIN}),
    "drain_node": Row("/cluster/drain", {ADMIN}, {"node": "a"}),
    "rebalance_cluster": Row("/cluster/rebalance", {ADMIN}),
    "list_tokens": Row("/tokens", {ADMIN}),
    "create_token": Row("/tokens", {ADMIN}, {"name": "made", "allow": ["x:push"]}),
    "revoke_token": Row("/tokens/none", {ADMIN}),
    "audit": Row("/audit", {ADMIN}),
    "export_definitions": Row("/definitions", {ADMIN}),
    "import_definitions": Row("/definitions", {ADMIN}, {}),
}
KNOWING = {"list_queues": "/queues", "list_topics": "/topics"}  # they show what the token knows
# What is named is not there; and who sends a message again has to be allowed to push it, too.
NOT_DONE = {
    "revoke_token": 404,
    "message": 404,
    "close_connection": 404,
    "resend": 403,
    "cluster_info": 404,
    "drain_node": 404,
    "rebalance_cluster": 404,
}
METHODS = {each.name: each.method for each in OPERATIONS}

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture
def broker() -> Iterator[GuardedBroker]:
    """Anew for each test: some of them delete what others ask for."""
    running = GuardedBroker()
    for name in ("orders", "other"):
        running.wait_for(running.engine.create_queue(name))
    for name in ("news", "other-news"):
        running.wait_for(running.engine.create_topic(name))
    running.wait_for(running.engine.tasks.begin("orders", None, None))
    yield running
    running.stop()


def all_but(actions: set[str]) -> list[str]:
    """Everything on the names of the table, except what is needed."""
    left = ",".join(sorted(ALL - actions))
    names = ["orders", "news", "nexo.metrics"]
    return [*([f"{name}:{left}" for name in names] if left else []), "other*:*"]


def just(action: str) -> list[str]:
    if action == ADMIN:
        return ["*:admin"]
    return [f"{name}:{action}" for name in ("orders", "news", "nexo.metrics")]


def test_every_operation_has_a_row() -> None:
    assert {*ROWS, *KNOWING} == {each.name for each in OPERATIONS}


def test_nobody_gets_in_without_a_token_that_holds(broker: GuardedBroker) -> None:
    good = broker.token("*:*")
    shown = {
        "none": None,
        "wrong": good[:-1] + ("a" if good[-1] != "a" else "b"),
        "garbage": "nexo_x",
        "expired": broker.expired("*:*"),
        "revoked": broker.revoked("*:*"),
    }
    for state, token in shown.items():
        api = Api(broker.ports.http, token)
        paths = {name: row.path for name, row in ROWS.items()} | KNOWING
        for name, path in {**paths, "openapi": "/openapi.json"}.items():
            body = ROWS[name].body if name in ROWS else None
            answer = api(METHODS.get(name, "GET"), path, body)
            assert (answer.status, answer.code) == (401, "unauthorized"), (state, name)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert broker.engine.queue("orders").info().depth == 0


def test_what_is_not_allowed_is_refused(broker: GuardedBroker) -> None:
    for name, row in ROWS.items():
        api = Api(broker.ports.http, broker.token(*all_but(row.needed)))
        answer = api(METHODS[name], row.path, row.body)
        assert (answer.status, answer.code) == (403, "forbidden"), name
    assert set(broker.engine.queues) == {"orders", "other"}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_allowed_is_done(broker: GuardedBroker, name: str) -> None:
    row = ROWS[name]
    for action in sorted(row.needed):
        api = Api(broker.ports.http, broker.token(*just(action)))
        status = api(METHODS[name], row.path, row.body).status
        assert status < 300 or status == NOT_DONE.get(name), action


def test_lists_show_what_the_token_knows(broker: GuardedBroker) -> None:
    api = Api(broker.ports.http, broker.token("orders:push", "news:pop"))
    queues = api("GET", "/queues", status=200).json["queues"]
    topics = api("GET", "/topics", status=200).json["topics"]
    assert [each["name"] for each in (*queues, *topics)] == ["orders", "news"]


def test_what_is_not_there_is_as_forbidden_as_what_is(broker: GuardedBroker) -> None:
    api = Api(broker.ports.http, broker.token("mine:*"))
    told = [api("GET", f"/queues/{name}", status=403).json for name in ("orders", "nowhere")]
    assert str(told[0]).replace("orders", "nowhere") == str(told[1])


def test_dead_letters_of_another_name_are_pushed_there(broker: GuardedBroker) -> None:
    api = Api(broker.ports.http, broker.token("orders:manage"))
    body = {"settings": {"dead_letter": "other"}}
    api("PATCH", "/queues/orders", body, status=403)
    both = Api(broker.ports.http, broker.token("orders:manage", "other:push"))
    both("PATCH", "/queues/orders", body, status=200)


def test_a_redrive_to_another_queue_pushes_there(broker: GuardedBroker) -> None:
    api = Api(broker.ports.http, broker.token("orders:manage"))
    api("POST", "/queues/orders/redrive", {"to": "other"}, status=403)


def test_only_health_is_open(broker: GuardedBroker) -> None:
    nobody = Api(broker.ports.http)
    for path, status in (("/metrics", 401), ("/api/v1/queues", 401), ("/health", 200)):
        assert nobody.at(path).status == status, path
    Api(broker.ports.http, broker.token("orders:*")).at("/metrics", status=403)
    Api(broker.ports.http, broker.token("*:peek")).at("/metrics", status=200)
