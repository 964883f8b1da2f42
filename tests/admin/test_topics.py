"""Topics, their messages and bindings over the admin API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.info import TopicInfo
from nexo.doors.admin_http import messages
from nexo.doors.admin_http.topics import TopicFigures

if TYPE_CHECKING:
    import pytest

    from tests.admin.api import Api


def publish(admin: Api, topic: str, *messages: dict[str, Any]) -> list[int]:
    done = admin("POST", f"/topics/{topic}/messages", {"messages": messages}, status=201)
    offsets: list[int] = done.json["offsets"]
    return offsets


def depth(admin: Api, queue: str) -> int:
    found: int = admin("GET", f"/queues/{queue}", status=200).json["depth"]
    return found


def test_the_words_are_those_of_the_client() -> None:
    fields = {field.name for field in msgspec.structs.fields(TopicInfo)}
    assert fields == {field.name for field in msgspec.structs.fields(TopicFigures)}


def test_create_look_edit_delete(admin: Api) -> None:
    wanted = {"name": "news", "settings": {"retention_messages": 3}}
    created = admin("POST", "/topics", wanted, status=201).json
    assert created["settings"]["retention_messages"] == 3
    assert admin("POST", "/topics", wanted, status=200).json == created
    assert admin("POST", "/topics", {"name": "news"}, status=409).code == "topic_exists"
    assert publish(admin, "news", *[{"body": str(n)} for n in range(5)]) == [0, 1, 2, 3, 4]
    kept = admin("GET", "/topics/news", status=200).json
    assert (kept["start"], kept["end"]) == (2, 5)
    admin("PATCH", "/topics/news", {"settings": {"retention_messages": 1}}, status=200)
    publish(admin, "news", {"body": "5"})
    kept = admin("GET", "/topics/news", status=200).json
    assert (kept["start"], kept["end"], kept["settings"]["retention_messages"]) == (5, 6, 1)
    listed = admin("GET", "/topics?limit=1000", status=200).json["topics"]
    assert {"news", "nexo.events"} <= {each["name"] for each in listed}
    admin("DELETE", "/topics/news", status=204)
    assert admin("GET", "/topics/news", status=404).code == "topic_not_found"


def test_read_and_go_on(admin: Api, topic: str) -> None:
    sent = [{"body": {"n": n}, "attributes": {"n": str(n)}} for n in range(5)]
    publish(admin, topic, *sent)
    first = admin("GET", f"/topics/{topic}/messages?limit=2", status=200).json
    assert [(each["offset"], each["body"]) for each in first["messages"]] == [
        (0, {"n": 0}),
        (1, {"n": 1}),
    ]
    assert first["messages"][1]["attributes"] == {"n": "1"}
    rest = admin("GET", f"/topics/{topic}/messages?offset={first['next']}", status=200).json
    assert [each["offset"] for each in rest["messages"]] == [2, 3, 4]
    end = admin("GET", f"/topics/{topic}/messages?offset={rest['next']}", status=200).json
    assert end == {"messages": [], "next": 5}


def test_bindings_with_their_conditions(admin: Api, topic: str, queue: str) -> None:
    publish(admin, topic, {"body": "kept", "attributes": {"tenant": "a"}})
    path = f"/topics/{topic}/bindings"
    assert admin("POST", path, {"queue": "not-there"}, status=404).code == "queue_not_found"
    bound = admin("POST", path, {"queue": queue, "where": {"tenant": "a"}}, status=200).json
    assert bound == {"bindings": [{"queue": queue, "where": {"tenant": "a"}, "sns": None}]}
    publish(admin, topic, {"body": "a", "attributes": {"tenant": "a"}}, {"body": "no"})
    assert depth(admin, queue) == 1
    made = {"queue": f"{queue}-made", "create": True, "kept": True}
    both = admin("POST", path, made, status=200).json["bindings"]
    assert [each["queue"] for each in both] == [queue, f"{queue}-made"]
    assert depth(admin, f"{queue}-made") == 3
    admin("DELETE", f"{path}?queue={queue}", status=204)
    left = admin("GET", path, status=200).json
    assert left == {"bindings": [{"queue": f"{queue}-made", "where": None, "sns": None}]}
    assert admin("DELETE", path, status=400).code == "invalid_argument"


def test_the_brokers_own_topics(admin: Api, queue: str) -> None:
    admin("PATCH", f"/queues/{queue}", {"settings": {"archive": True}}, status=200)
    admin("POST", f"/queues/{queue}/messages", {"messages": [{"body": "kept"}]}, status=201)
    archive = f"nexo.archive.{queue}"
    (kept,) = admin("GET", f"/topics/{archive}/messages", status=200).json["messages"]
    assert kept["body"] == "kept"
    for name in (archive, "nexo.events"):
        admin("PATCH", f"/topics/{name}", {"settings": {"retention_messages": 1}}, status=400)
        admin("POST", f"/topics/{name}/messages", {"messages": [{"body": "x"}]}, status=400)
        admin("POST", f"/topics/{name}/bindings", {"queue": queue}, status=400)
        admin("DELETE", f"/topics/{name}", status=400)
    assert admin("GET", "/topics/nexo.events/messages?limit=1", status=200).json["messages"]


def test_one_answer_reads_a_limited_number_of_bytes(
    admin: Api, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole messages as many as fit; the others are in the answers that follow."""
    monkeypatch.setattr(messages, "ADMIN_ANSWER_BYTES_MAX", 1_000)
    path = f"/topics/{topic}/messages"
    admin("POST", path, {"messages": [{"body": f"{n}" * 400} for n in range(5)]}, status=201)
    answers, offset = [], 0
    while offset < 5:
        answer = admin("GET", f"{path}?offset={offset}", status=200).json
        answers.append([each["body"][0] for each in answer["messages"]])
        assert not any(each["truncated"] for each in answer["messages"])
        offset = answer["next"]
    assert answers == [["0", "1"], ["2", "3"], ["4"]]
