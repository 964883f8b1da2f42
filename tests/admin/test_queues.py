"""Queues, their messages and redrives over the admin API."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.client.info import QueueInfo
from nexo.doors.admin_http import messages
from nexo.doors.admin_http.queues import QueueFigures
from tests.admin.api import at

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker
    from tests.admin.api import Api

SCOPED = "123456789012/eu-west-1/orders"


def push(admin: Api, queue: str, *messages: dict[str, Any]) -> list[str]:
    pushed = admin("POST", f"/queues/{at(queue)}/messages", {"messages": messages}, status=201)
    ids: list[str] = pushed.json["ids"]
    return ids


def peek(admin: Api, queue: str, query: str = "") -> list[dict[str, Any]]:
    found = admin("GET", f"/queues/{at(queue)}/messages{query}", status=200)
    messages: list[dict[str, Any]] = found.json["messages"]
    return messages


def test_the_words_are_those_of_the_client() -> None:
    fields = {field.name for field in msgspec.structs.fields(QueueInfo)}
    assert fields <= {field.name for field in msgspec.structs.fields(QueueFigures)}


def test_create_look_edit_delete(admin: Api) -> None:
    wanted = {"name": "life", "settings": {"max_attempts": 3, "backoff": {"initial": 2}}}
    created = admin("POST", "/queues", wanted, status=201).json
    assert created["settings"]["max_attempts"] == 3
    assert created["settings"]["backoff"] == {
        "initial": 2.0,
        "factor": 2.0,
        "max": 3600.0,
        "jitter": 0.0,
    }
    assert admin("POST", "/queues", wanted, status=200).json == created
    other = {"name": "life", "settings": {"max_attempts": 4}}
    assert admin("POST", "/queues", other, status=409).code == "queue_exists"
    edited = admin(
        "PATCH",
        "/queues/life",
        {"settings": {"visibility_timeout": 0.25, "max_attempts": None, "tags": {"team": "a"}}},
        status=200,
    ).json
    assert edited["settings"] == {
        **created["settings"],
        "visibility_timeout": 0.25,
        "max_attempts": None,
        "tags": {"team": "a"},
    }
    assert edited["modified_at"] >= created["modified_at"]
    assert admin("GET", "/queues/life", status=200).json["settings"] == edited["settings"]
    assert admin("DELETE", "/queues/life", status=204).content == b""
    assert admin("GET", "/queues/life", status=404).code == "queue_not_found"
    assert admin("DELETE", "/queues/life", status=404).code == "queue_not_found"


def test_a_name_with_slashes(admin: Api) -> None:
    for name in (SCOPED, "123456789012/eu-west-1/purge", "purge", "messages", "a..b", "-"):
        admin("POST", "/queues", {"name": name}, status=201)
        assert admin("GET", f"/queues/{at(name)}", status=200).json["name"] == name
        (pushed,) = push(admin, name, {"body": name})
        assert [each["id"] for each in peek(admin, name)] == [pushed]
        assert admin("POST", f"/queues/{at(name)}/purge", status=200).json == {"purged": 1}
    assert admin("GET", f"/queues/{SCOPED}", status=404).code == "not_found"


def test_pages(admin: Api, broker: GuardedBroker) -> None:
    names = [f"page-{number}" for number in range(5)]
    for name in names:
        admin("POST", "/queues", {"name": name}, status=201)
    first = admin("GET", "/queues?limit=2&after=page", status=200).json
    assert [each["name"] for each in first["queues"]] == names[:2]
    assert first["next"] == names[1]
    rest = admin("GET", f"/queues?after={first['next']}&limit=1000", status=200).json
    assert [each["name"] for each in rest["queues"]][:3] == names[2:]
    assert rest["next"] is None
    exactly = admin("GET", f"/queues?after={names[3]}&limit=1000", status=200).json
    last = exactly["queues"][-1]["name"]
    assert admin("GET", f"/queues?after={last}", status=200).json == {"queues": [], "next": None}


def test_bodies_come_back_as_they_went(admin: Api, queue: str, broker: GuardedBroker) -> None:
    binary = bytes(range(256))
    document = {"a": [1, 2.50, None], "b": "é"}
    written = json.dumps(document).encode()  # as the test's client writes it
    push(
        admin,
        queue,
        {"body": "plain"},
        {"body": document},
        {"body": [True]},
        {"body": 17},
        {"body": "quoted", "encoding": "json"},
        {"body": base64.b64encode(binary).decode(), "encoding": "base64"},
        {"body": "{not json"},
        {"body": ""},
    )
    shown = [(each["body"], each["encoding"], each["size"]) for each in peek(admin, queue)]
    assert shown == [
        ("plain", "text", 5),
        (document, "json", len(written)),
        ([True], "json", 6),
        ("17", "text", 2),
        ('"quoted"', "text", 8),
        (base64.b64encode(binary).decode(), "base64", 256),
        ("{not json", "text", 9),
        ("", "text", 0),
    ]
    with nexo.connect(broker.url, token=broker.token("*:*")) as client:
        bodies = [each.body for each in client.queue(queue).pop_batch(10)]
    assert bodies[:2] == [b"plain", written]
    assert bodies[3:6] == [b"17", b'"quoted"', binary]


def test_a_message_with_everything(admin: Api) -> None:
    settings = {"deduplication": "id"}
    admin("POST", "/queues", {"name": "all", "settings": settings}, status=201)
    whole = {
        "body": "x",
        "priority": 9,
        "delay": 3600,
        "attributes": {"tenant": "a"},
        "group_id": "g",
        "deduplication_id": "d",
    }
    first = push(admin, "all", whole)
    again = admin(
        "POST", "/queues/all/messages", {"messages": [{**whole, "body": "y"}]}, status=201
    )
    assert again.json == {"ids": first, "duplicates": 1}
    (seen,) = peek(admin, "all")
    told = ("id", "state", "priority", "attributes", "group_id", "deduplication_id", "attempts")
    assert [seen[name] for name in told] == [
        first[0],
        "scheduled",
        9,
        {"tenant": "a"},
        "g",
        "d",
        0,
    ]
    assert seen["delayed_until"] > seen["created_at"]
    assert (seen["visible_at"], seen["dead_letter"], seen["truncated"]) == (None, None, False)


def test_long_bodies_are_cut_at_a_character(admin: Api, queue: str) -> None:
    binary = {"body": base64.b64encode(b"abc\xff\xff\xff").decode(), "encoding": "base64"}
    push(admin, queue, {"body": "aé" * 100}, {"body": {"a": "b" * 100}}, {"body": "short"}, binary)
    text, document, short, bits = peek(admin, queue, "?body_bytes=5")
    assert (bits["body"], bits["encoding"], bits["size"]) == ("YWJj//8=", "base64", 6)
    assert (text["body"], text["encoding"], text["size"]) == ("aéa", "text", 300)
    assert text["truncated"] is True
    assert (document["body"], document["encoding"]) == ('{"a":', "text")
    assert (short["body"], short["truncated"]) == ("short", False)


def test_the_bodies_of_one_answer_have_a_limit_together(
    admin: Api, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "ADMIN_ANSWER_BYTES_MAX", 1_000)
    path = f"/queues/{queue}/messages"
    admin("POST", path, {"messages": [{"body": "x" * 400}] * 5}, status=201)
    shown = admin("GET", f"{path}?body_bytes=400", status=200).json["messages"]
    assert [len(each["body"]) for each in shown] == [400, 400, 200, 0, 0]
    assert [each["truncated"] for each in shown] == [False, False, True, True, True]
    assert {each["size"] for each in shown} == {400}
    # What was cut short by `body_bytes` counts as what is shown of it.
    shown = admin("GET", f"{path}?body_bytes=300", status=200).json["messages"]
    assert [len(each["body"]) for each in shown] == [300, 300, 300, 100, 0]


def test_messages_are_refused_together(admin: Api, queue: str) -> None:
    wrong = {"messages": [{"body": "good"}, {"body": "???", "encoding": "base64"}]}
    assert admin("POST", f"/queues/{queue}/messages", wrong, status=400).code == "invalid_argument"
    mismatched: list[tuple[Any, str]] = [(1, "text"), ({}, "base64")]
    for body, encoding in mismatched:
        other = {"messages": [{"body": body, "encoding": encoding}]}
        admin("POST", f"/queues/{queue}/messages", other, status=400)
    large = {"messages": [{"body": "good"}, {"body": "x" * (1024 * 1024 + 1)}]}
    refused = admin("POST", f"/queues/{queue}/messages", large, status=413)
    assert refused.code == "message_too_large"
    assert peek(admin, queue) == []


def test_a_full_queue_says_so(admin: Api) -> None:
    admin("POST", "/queues", {"name": "full", "settings": {"max_depth": 1}}, status=201)
    push(admin, "full", {"body": "x"})
    more = {"messages": [{"body": "y"}]}
    assert admin("POST", "/queues/full/messages", more, status=429).code == "queue_full"


def test_pause_and_resume(admin: Api, queue: str) -> None:
    assert admin("POST", f"/queues/{queue}/pause", status=200).json["paused"] is True
    assert admin("GET", f"/queues/{queue}", status=200).json["paused"] is True
    assert admin("POST", f"/queues/{queue}/resume", status=200).json["paused"] is False


def test_dead_letters_and_their_redrive(admin: Api, broker: GuardedBroker) -> None:
    admin("POST", "/queues", {"name": "sick", "settings": {"max_attempts": 1}}, status=201)
    (sent,) = push(admin, "sick", {"body": "x"})
    with nexo.connect(broker.url, token=broker.token("*:*")) as client:
        message = client.queue("sick").pop()
        assert message is not None
        message.nack(reason="broken")
    (letter,) = peek(admin, "sick_dlq")
    assert letter["id"] == sent
    assert {name: letter["dead_letter"][name] for name in ("reason", "source", "attempts")} == {
        "reason": "broken",
        "source": "sick",
        "attempts": 1,
    }
    begun = admin("POST", "/queues/sick_dlq/redrive", {}, status=202).json
    assert (begun["queue"], begun["total"]) == ("sick_dlq", 1)
    broker.wait_for(broker.engine.tasks.progress(begun["task"], 10_000))
    done = admin("GET", f"/redrives/{begun['task']}", status=200).json
    assert (done["status"], done["moved"], done["finished"]) == ("completed", 1, True)
    assert [each["id"] for each in peek(admin, "sick")] == [sent]


def test_a_redrive_is_cancelled(admin: Api, queue: str) -> None:
    push(admin, queue, *[{"body": "x"}] * 100)
    admin("POST", "/queues", {"name": "slowly"}, status=201)
    begun = admin("POST", f"/queues/{queue}/redrive", {"to": "slowly", "rate": 1}, status=202).json
    assert (begun["to"], begun["rate"]) == ("slowly", 1.0)
    cancelled = admin("DELETE", f"/redrives/{begun['task']}", status=200).json
    assert cancelled["status"] in ("cancelling", "cancelled")
    assert admin("GET", "/redrives/999999", status=404).code == "redrive_not_found"
    admin("POST", f"/queues/{queue}/redrive", {"to": queue}, status=400)
    admin("POST", f"/queues/{queue}/redrive", {"to": "nowhere"}, status=404)


def test_release_takes_back_what_a_query_holds(
    admin: Api, queue: str, broker: GuardedBroker
) -> None:
    push(admin, queue, {"body": "x"}, {"body": "y"})

    async def claim() -> None:
        claims = broker.engine.queue(queue).claims
        await claims.claim("query", await claims.open("query"), 0, 2, 60_000, 1024)

    broker.wait_for(claim())
    assert admin("GET", f"/queues/{queue}", status=200).json["claimed"] == {"query": 2}
    wanted = {"consumer": "query"}
    assert admin("POST", f"/queues/{queue}/release", wanted, status=200).json == {"released": 2}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"visibility_timeout": -1}, "visibility_timeout"),
        ({"retention": 10, "delay": 11}, "delay"),
        ({"deduplication": "maybe"}, "deduplication"),
        ({"visibilty_timeout": 1}, "visibilty_timeout"),
        ({"backoff": {"initial": 1, "steps": 2}}, "steps"),
        ({"dead_letter": "wrong"}, "itself"),
    ],
)
def test_wrong_settings_are_named(admin: Api, settings: dict[str, Any], told: str) -> None:
    refused = admin("POST", "/queues", {"name": "wrong", "settings": settings}, status=400)
    told = told if told != "itself" else "its own dead-letter queue"
    assert told in refused.json["error"]["message"]
    assert admin("GET", "/queues/wrong").status == 404


def test_fifo_cannot_change(admin: Api, queue: str) -> None:
    admin("PATCH", f"/queues/{queue}", {"settings": {"fifo": True}}, status=400)
    assert admin("GET", f"/queues/{queue}", status=200).json["settings"]["fifo"] is False


def test_a_broken_disk_is_told(admin: Api, broker: GuardedBroker, queue: str) -> None:
    context = broker.engine._context

    def refuse(why: nexo.ReadOnly | None) -> None:
        context.refusal = why

    broker.run(lambda: refuse(nexo.ReadOnly("the disk is full", "make room")))
    try:
        message = {"messages": [{"body": "x"}]}
        for method, path, body in (
            ("POST", f"/queues/{queue}/messages", message),
            ("POST", "/queues", {"name": "more"}),
            ("PUT", "/definitions", {"queues": [{"name": "more"}]}),
        ):
            assert admin(method, path, body, status=503).code == "read_only"
        admin("PUT", "/definitions?dry_run=true", {"queues": [{"name": "more"}]}, status=200)
        told = admin("GET", "/overview", status=200).json["refusal"]
        assert told == {"code": "read_only", "message": "the disk is full", "hint": "make room"}
        admin("GET", f"/queues/{queue}", status=200)
    finally:
        broker.run(lambda: refuse(None))
    assert admin("GET", "/queues/more").status == 404


def test_the_overview_adds_up(admin: Api, queue: str) -> None:
    before = admin("GET", "/overview", status=200).json
    push(admin, queue, {"body": "x"}, {"body": "y", "delay": 60})
    after = admin("GET", "/overview", status=200).json
    grown = {name: after[name] - before[name] for name in ("depth", "ready", "scheduled", "pushed")}
    assert grown == {"depth": 2, "ready": 1, "scheduled": 1, "pushed": 2}
    assert after["version"] == nexo.__version__
    assert after["refusal"] is None
    assert after["connections"]["http"] >= 1
    assert after["memory"]["resident_bytes"] > 10_000_000
    assert after["disk"]["free_bytes"] is None  # it keeps nothing on disk
