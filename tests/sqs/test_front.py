"""The front: apps by the beginning of the path, health, and limits that only show when reached."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from nexo.doors.http.front import Front
from nexo.doors.sqs_http import receive_message
from nexo.vocabulary.errors import DataCorrupt, NexoError, NotReady, ReadOnly

if TYPE_CHECKING:
    import pytest

    from tests.sqs.calling import Door


class Visit:
    """An exchange, as the front sees it."""

    def __init__(self, path: str, method: str, query: bytes, accept: bytes) -> None:
        self.path = path
        self.method = method
        self.query = query
        self.fields = {b"accept": accept}
        self.headers = b""
        self.app = ""
        self.status = 0
        self.body = b""

    def run(self, app: Any) -> None:
        self.app = app

    def reply(self, status: int, headers: bytes, body: bytes) -> None:
        assert b"content-length: %d\r\n" % len(body) in headers
        self.status, self.headers, self.body = status, headers, body


class Root:
    def begin(self, exchange: Any) -> None:
        exchange.app = "root"


def visit(
    front: Front, path: str, method: str = "POST", query: bytes = b"", accept: bytes = b"*/*"
) -> Visit:
    visit: Any = Visit(path, method, query, accept)
    front.begin(visit)
    return cast("Visit", visit)


def test_paths_lead_to_apps() -> None:
    apps: Any = {"/console": "console"}
    front = Front(Root(), apps, lambda: None)
    front.mount("/metrics", cast("Any", "metrics"))
    paths = ("/", "/console", "/console/x", "/consoles", "/000000000000/q", "/metrics")
    seen = [visit(front, path).app for path in paths]
    assert seen == ["root", "console", "console", "root", "root", "metrics"]


def test_a_browser_is_led_to_the_console() -> None:
    """And a program that calls the SQS API is not, even by GET."""
    apps: Any = {"/console": "console"}
    front = Front(Root(), apps, lambda: None)
    html = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    led = visit(front, "/", "GET", accept=html)
    assert (led.status, led.app) == (302, "")
    assert b"location: /console\r\n" in led.headers
    assert visit(front, "/", "GET").app == "root"
    assert visit(front, "/", "GET", b"Action=ListQueues", html).app == "root"
    assert visit(front, "/", "POST", accept=html).app == "root"
    assert visit(Front(Root(), {}, lambda: None), "/", "GET", accept=html).app == "root"


def test_health_follows_the_disk() -> None:
    """And tells anybody who asks no more than that: an error may name files."""
    where = "/var/lib/somewhere/journal.db"
    refusals: list[NexoError | None] = [
        None,
        ReadOnly(f"the disk under {where} is full, nothing was stored", f"look at {where}"),
        DataCorrupt(f"reading {where}: the checksum does not match"),
    ]
    front = Front(Root(), {}, lambda: refusals.pop(0))
    assert visit(front, "/health").status == 200
    for status, words in (("read_only", "the disk is full or failing"), ("data_corrupt", "log")):
        answer = visit(front, "/health")
        told = json.loads(answer.body)
        assert (answer.status, told["status"]) == (503, status)
        assert words in told["reason"]
        assert "somewhere" not in str(told)


def test_health_names_what_messages_are_written_to() -> None:
    for store in ("the disk", "PostgreSQL"):
        refusals = iter([NotReady("late"), ReadOnly("full")])
        front = Front(Root(), {}, partial(next, refusals), store=store)
        told = [json.loads(visit(front, "/health").body)["reason"] for _ in range(2)]
        assert f"no write to {store} has finished" in told[0]
        assert f"{store} is full or failing" in told[1]


def test_standard_queue_has_a_limit_of_messages_in_flight(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive_message, "IN_FLIGHT_MAX", 2)
    door.json("CreateQueue", QueueName="q")
    for _ in range(3):
        door.json("SendMessage", QueueUrl="q", MessageBody="x")
    assert len(door.json("ReceiveMessage", QueueUrl="q", MaxNumberOfMessages=2).body) > 100
    answer = door.json("ReceiveMessage", QueueUrl="q")
    assert (answer.status, answer.headers["x-amzn-query-error"]) == (403, "OverLimit;Sender")
