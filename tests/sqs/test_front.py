"""The front: apps by the beginning of the path, health, and limits that only show when reached."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from nexo.doors.http.front import Front
from nexo.doors.sqs_http import receive_message
from nexo.vocabulary.errors import DataCorrupt, NexoError, ReadOnly

if TYPE_CHECKING:
    import pytest

    from tests.sqs.calling import Door


def named(name: str, seen: list[str]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(name)

    return app


def visit(front: Front, path: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    asyncio.run(_visit(front, path, receive, send))
    return sent


async def _visit(front: Front, path: str, receive: Any, send: Any) -> None:
    await front({"type": "http", "path": path, "method": "GET"}, receive, send)


def test_paths_lead_to_apps() -> None:
    seen: list[str] = []
    front = Front(named("root", seen), {"/console": named("console", seen)}, lambda: None)
    front.mount("/metrics", named("metrics", seen))
    for path in ("/", "/console", "/console/x", "/consoles", "/000000000000/q", "/metrics"):
        visit(front, path)
    assert seen == ["root", "console", "console", "root", "root", "metrics"]


def test_health_follows_the_disk() -> None:
    """And tells anybody who asks no more than that: an error may name files."""
    where = "/var/lib/somewhere/journal.db"
    refusals: list[NexoError | None] = [
        None,
        ReadOnly(f"the disk under {where} is full, nothing was stored", f"look at {where}"),
        DataCorrupt(f"reading {where}: the checksum does not match"),
    ]
    front = Front(named("root", []), {}, lambda: refusals.pop(0))
    assert visit(front, "/health")[0]["status"] == 200
    for status, words in (("read_only", "the disk is full or failed"), ("data_corrupt", "log")):
        start, body = visit(front, "/health")
        told = json.loads(body["body"])
        assert (start["status"], told["status"]) == (503, status)
        assert words in told["reason"]
        assert "somewhere" not in str(told)


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
