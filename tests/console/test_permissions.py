"""Every address of the console, tried with a token that may everything but what it needs, and with
one that may just that.

The table says what each needs in the words of the manual. It is written by hand, apart from the one
in the door, so that a change there has to be meant. An address without a row fails.
"""

from __future__ import annotations

import http.client
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import pytest

from nexo.doors.console.routes import LOGIN, ROUTES, operation_of
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.console.routes import Route

ADMIN = "admin"
ALL = {"push", "pop", "peek", "manage"}
NAMES = ("orders", "news", "nexo.metrics")
OPEN: set[str] = set()  # shows what the token knows
NAME = {"name": "orders"}
BIND = {"queue": "orders", "where": "a=b"}


class Row(NamedTuple):
    """Which of the actions will do on `orders`, `news` and `nexo.metrics`, and the form to send."""

    needed: set[str]
    form: dict[str, str] | None = None


# By method and path; a name is `orders`, or in topics `news`.
ROWS = {
    "GET ": Row(OPEN),
    "GET /live/overview": Row({"peek"}),
    "GET /queues": Row(OPEN),
    "GET /live/queues": Row(OPEN),
    "POST /queues": Row({"manage"}, NAME),
    "GET /queues/{name}": Row(ALL),
    "GET /live/queues/{name}": Row(ALL),
    "POST /queues/{name}/send": Row({"push"}, {"body": "x"}),
    "POST /queues/{name}/settings": Row({"manage"}, {"delay": "1", "was_delay": "0"}),
    "POST /queues/{name}/release": Row({"manage"}, {"consumer": "c"}),
    "POST /queues/{name}/act/pause": Row({"manage"}, {}),
    "POST /queues/{name}/act/resume": Row({"manage"}, {}),
    "POST /queues/{name}/act/purge": Row({"manage"}, {}),
    "POST /queues/{name}/act/delete": Row({"manage"}, {}),
    "GET /queues/{name}/messages/{id}": Row({"peek"}),
    "GET /queues/{name}/messages/{id}/body": Row({"peek"}),
    "POST /queues/{name}/messages/{id}/resend": Row({"manage"}, {"body": "x", "to": "spare"}),
    "GET /dead-letters": Row(OPEN),
    "GET /live/dead-letters": Row(OPEN),
    "GET /dead-letters/{name}": Row({"peek"}),
    "GET /live/dead-letters/{name}": Row({"peek"}),
    "POST /dead-letters/{name}/redrive": Row({"manage"}, {"which": "all"}),
    "POST /dead-letters/{name}/discard": Row({"manage"}, {"which": "filtered", "text": "x"}),
    "POST /dead-letters/{name}/cancel": Row({"manage"}, {"task": "1"}),
    "GET /topics": Row(OPEN),
    "GET /live/topics": Row(OPEN),
    "POST /topics": Row({"manage"}, {"name": "news"}),
    "GET /topics/{name}": Row(ALL),
    "GET /live/topics/{name}": Row(ALL),
    "POST /topics/{name}/settings": Row(
        {"manage"}, {"retention_messages": "9", "was_retention_messages": ""}
    ),
    "POST /topics/{name}/delete": Row({"manage"}, {}),
    "POST /topics/{name}/publish": Row({"push"}, {"body": "x"}),
    "POST /topics/{name}/bind": Row({"manage"}, BIND),
    "POST /topics/{name}/unbind": Row({"manage"}, BIND),
    "GET /search": Row(OPEN),
    "GET /api": Row(OPEN),
    "GET /spark": Row({"peek"}),
    "GET /live/spark": Row({"peek"}),
    "GET /consumers": Row({ADMIN}),
    "GET /live/consumers": Row({ADMIN}),
    "POST /consumers/close": Row({ADMIN}, {"number": "9999999"}),
    "GET /cluster": Row({ADMIN}),
    "GET /live/cluster": Row({ADMIN}),
    "POST /cluster/drain": Row({ADMIN}, {"node": "a"}),
    "POST /cluster/rebalance": Row({ADMIN}, {"sure": "yes"}),
    "GET /access": Row({ADMIN}),
    "POST /access/tokens": Row({ADMIN}, {"name": "fresh", "allow": "x:push"}),
    "POST /access/revoke": Row({ADMIN}, {"name": "made"}),
    "POST /logout": Row(OPEN, {}),
}
NOT_THERE = {  # a connection that is not there, a cluster of which this broker is no node
    "POST /consumers/close": 404,
    "GET /cluster": 404,
    "GET /live/cluster": 404,
    "POST /cluster/drain": 404,
    "POST /cluster/rebalance": 404,
}
BY_KEY = {f"{each.method} {each.path}": each for each in ROUTES}


class Pages:
    """A broker that requires access, as a program with a token sees its console."""

    def __init__(self) -> None:
        self.broker = GuardedBroker()
        self.broker.wait_for(self.broker.engine.create_queue("orders"))
        self.broker.wait_for(self.broker.engine.tasks.begin("orders", None, None))
        self.id = ""
        _, text = self.ask("GET", "/login", "")
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
        assert found is not None
        self._proof = found[1]

    def fill(self) -> None:
        """What the rows ask for, if one of them has taken it away."""

        async def fill() -> str:
            engine = self.broker.engine
            if "orders" not in engine.queues:
                await engine.create_queue("orders")
            await engine.create_queue("spare")
            await engine.edit_queue("orders", QueueSettings())  # else it cannot be created again
            if "news" not in engine.topics:
                await engine.create_topic("news")
            await engine.edit_topic("news", TopicSettings())
            if "made" not in {each.name for each in engine.tokens.all()}:
                await engine.tokens.create("made", ["x:push"])
            actor = engine.queue("orders")
            await actor.purge()
            await actor.push(batch_of([b"x"]))
            (message,) = await actor.peek(1)
            return message.id

        self.id = self.broker.wait_for(fill())

    def send(self, route: Route, token: str) -> int:
        """The status of the answer."""
        path = route.path.replace("{id}", self.id)
        path = path.replace("{name}", "news" if "/topics" in path else "orders")
        form = ROWS[f"{route.method} {route.path}"].form
        return self.ask(route.method, path, token, form)[0]

    def ask(
        self, method: str, path: str, token: str, form: dict[str, str] | None = None
    ) -> tuple[int, str]:
        host = f"127.0.0.1:{self.broker.ports.http}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        body = None
        if form is not None:
            body = urlencode({**form, "csrf": self._proof})
            headers |= {
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": f"http://{host}",
            }
        connection = http.client.HTTPConnection(host, timeout=10)
        try:
            connection.request(method, f"/console{path}", body, headers)
            answer = connection.getresponse()
            is_stream = path.startswith("/live/") and answer.status == 200
            return answer.status, "" if is_stream else answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.broker.stop()


def all_but(actions: set[str]) -> list[str]:
    left = ",".join(sorted(ALL - actions))
    return [*([f"{name}:{left}" for name in NAMES] if left else []), "other*:*"]


def just(action: str) -> list[str]:
    if action == ADMIN:
        return ["*:admin"]
    return [*[f"{name}:{action}" for name in NAMES], "spare:push"]


def test_every_address_has_a_row_and_an_operation() -> None:
    assert set(ROWS) == set(BY_KEY)
    for each in (*ROUTES, LOGIN):
        assert operation_of(each).name == each.operation


def test_what_is_not_allowed_is_refused_and_told(pages: Pages) -> None:
    pages.fill()
    for key, row in ROWS.items():
        route = BY_KEY[key]
        told = len(pages.broker.audit())
        status = pages.send(route, pages.broker.token(*all_but(row.needed)))
        if row.needed:
            assert status == 403, key
            is_told = route.method == "POST" and route.operation not in ("push", "publish")
            assert len(pages.broker.audit()) - told == is_told, key
        else:
            assert status in (200, 303), key
    assert "orders" in pages.broker.engine.queues


@pytest.mark.parametrize("key", ROWS)
def test_what_is_allowed_is_done(pages: Pages, key: str) -> None:
    for action in sorted(ROWS[key].needed):
        pages.fill()
        status = pages.send(BY_KEY[key], pages.broker.token(*just(action)))
        assert status in (200, 303) or status == NOT_THERE.get(key), action


def test_a_second_need_is_asked_for_too(pages: Pages) -> None:
    pages.fill()
    token = pages.broker.token("orders:manage", "news:manage")
    changed = {"dead_letter": "other", "was_dead_letter": "{name}_dlq"}
    for path, form in (
        ("/queues/orders/settings", changed),
        ("/dead-letters/orders/redrive", {"which": "all", "to": "other"}),
        ("/topics/news/bind", {"queue": "other"}),
    ):
        status, text = pages.ask("POST", path, token, form)
        assert (status, "other" in text) == (403, True), path


def test_what_is_not_there_is_as_forbidden_as_what_is(pages: Pages) -> None:
    pages.fill()
    token = pages.broker.token("mine:*")
    for name in ("orders", "nowhere"):
        for path in (f"/queues/{name}/settings", f"/queues/{name}/act/purge"):
            status, _ = pages.ask("POST", path, token, {"dead_letter": "x", "was_dead_letter": "y"})
            assert status == 403, path
