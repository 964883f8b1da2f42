"""Definitions: exported, imported, imported again; and nothing of what is wrong anywhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.engine.definitions import export_definitions, import_definitions
from nexo.journal.port import CATALOG, Commit
from nexo.vocabulary.definitions import Definitions, QueueDefinition
from tests.access.guarded import GuardedBroker
from tests.admin.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "queues": [
        {
            "name": "orders",
            "settings": {
                "visibility_timeout": 45,
                "backoff": {"initial": 1.5, "max": 60},
                "archive": True,
                "max_depth": 1000,
                "tags": {"team": "shop"},
                "aws": {"Policy": "{}"},
            },
        },
        {"name": "123456789012/eu-west-1/orders"},
        {"name": "mails.fifo", "settings": {"fifo": True, "deduplication": "content"}},
        {"name": "orders_dlq", "settings": {"max_attempts": None, "retention": 1_209_600}},
    ],
    "topics": [{"name": "news", "settings": {"retention_seconds": 0.5e6}}, {"name": "plain"}],
    "bindings": [
        {"topic": "news", "queue": "orders", "where": {"tenant": "a"}},
        {"topic": "plain", "queue": "orders"},
    ],
}


@pytest.fixture
def broker() -> Iterator[GuardedBroker]:
    """Empty for each test."""
    running = GuardedBroker()
    yield running
    running.stop()


@pytest.fixture
def admin(broker: GuardedBroker) -> Api:
    return Api(broker.ports.http, broker.token("*:*"))


def document(changed: dict[str, Any] | None = None) -> dict[str, Any]:
    return {**msgspec.json.decode(msgspec.json.encode(DOCUMENT)), **(changed or {})}


def outcomes(answer: dict[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    return [
        (each["kind"], each["name"], each["outcome"], each["settings"])
        for each in answer["definitions"]
    ]


def test_import_export_and_import_again(admin: Api) -> None:
    done = admin("PUT", "/definitions", DOCUMENT, status=200).json
    assert {each[2] for each in outcomes(done)} == {"created"}
    assert [each[:2] for each in outcomes(done)][-3:] == [
        ("topic", "plain"),
        ("binding", "news orders"),
        ("binding", "plain orders"),
    ]
    exported = admin("GET", "/definitions", status=200).json
    assert {each["name"] for each in exported["topics"]} == {"news", "plain"}  # not the broker's
    orders = next(each for each in exported["queues"] if each["name"] == "orders")["settings"]
    given = DOCUMENT["queues"][0]["settings"]
    assert {name: orders[name] for name in given} == {
        **given,
        "backoff": {"initial": 1.5, "factor": 2.0, "max": 60.0, "jitter": 0.0},
    }
    assert exported["bindings"] == [
        {"topic": "news", "queue": "orders", "where": {"tenant": "a"}, "sns": None},
        {"topic": "plain", "queue": "orders", "where": None, "sns": None},
    ]
    for again in (DOCUMENT, exported):
        done = admin("PUT", "/definitions", again, status=200).json
        assert {each[2] for each in outcomes(done)} == {"unchanged"}
    assert admin("GET", "/definitions", status=200).json == exported


def test_what_is_exported_makes_another_broker_the_same(admin: Api) -> None:
    admin("PUT", "/definitions", DOCUMENT, status=200)
    exported = admin("GET", "/definitions", status=200).json
    other = GuardedBroker()
    try:
        second = Api(other.ports.http, other.token("*:*"))
        second("PUT", "/definitions", exported, status=200)
        assert second("GET", "/definitions", status=200).json == exported
        second("GET", "/topics/nexo.archive.orders", status=200)
    finally:
        other.stop()


def test_what_differs_is_changed_and_named(admin: Api) -> None:
    admin("PUT", "/definitions", DOCUMENT, status=200)
    admin("POST", "/queues", {"name": "untouched"}, status=201)
    messages = {"messages": [{"body": "x"}]}
    admin("POST", "/queues/orders/messages", messages, status=201)
    changed = document()
    changed["queues"][0]["settings"] = {"visibility_timeout": 45, "max_attempts": 9}
    changed["topics"][0]["settings"] = {"retention_seconds": 10, "retention_messages": 5}
    changed["bindings"][0]["where"] = None
    done = admin("PUT", "/definitions", changed, status=200).json
    assert [each for each in outcomes(done) if each[2] != "unchanged"] == [
        (
            "queue",
            "orders",
            "changed",
            ["max_attempts", "backoff", "max_depth", "archive", "tags", "aws"],
        ),
        ("topic", "news", "changed", ["retention_messages", "retention_seconds"]),
        ("binding", "news orders", "changed", ["where"]),
    ]
    orders = admin("GET", "/queues/orders", status=200).json
    assert (orders["depth"], orders["settings"]["max_attempts"]) == (1, 9)
    assert orders["settings"]["tags"] == {}
    assert admin("GET", "/topics/news", status=200).json["settings"]["retention_messages"] == 5
    (bound,) = admin("GET", "/topics/news/bindings", status=200).json["bindings"]
    assert bound["where"] is None
    admin("GET", "/queues/untouched", status=200)


def test_a_dry_run_says_the_same_and_does_nothing(admin: Api) -> None:
    before = admin("GET", "/definitions", status=200).json
    planned = admin("PUT", "/definitions?dry_run=true", DOCUMENT, status=200).json
    assert planned["dry_run"] is True
    assert admin("GET", "/definitions", status=200).json == before
    done = admin("PUT", "/definitions", DOCUMENT, status=200).json
    assert done == {**planned, "dry_run": False}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"version": 2}, "version"),
    "unknown field": ({"exchanges": []}, "exchanges"),
    "unknown setting": ({"queues": [{"name": "a", "settings": {"speed": 1}}]}, "speed"),
    "range": ({"queues": [{"name": "a", "settings": {"delay": -1}}]}, "delay"),
    "contradiction": (
        {"queues": [{"name": "a", "settings": {"delay": 10, "retention": 5}}]},
        "queue 'a': delay must be shorter",
    ),
    "name": ({"queues": [{"name": "a b"}]}, "a b"),
    "reserved": ({"topics": [{"name": "nexo.mine"}]}, "reserved"),
    "twice": ({"queues": [{"name": "orders"}, {"name": "orders"}]}, "twice"),
    "binding twice": ({"bindings": [{"topic": "plain", "queue": "orders"}] * 2}, "twice"),
    "no topic": ({"bindings": [{"topic": "olds", "queue": "orders"}]}, "olds"),
    "no queue": ({"bindings": [{"topic": "news", "queue": "bills"}]}, "bills"),
    "own topic": ({"bindings": [{"topic": "nexo.events", "queue": "orders"}]}, "nexo.events"),
    "fifo": ({"queues": [{"name": "there", "settings": {"fifo": True}}]}, "FIFO"),
    "own dead letters": (
        {"queues": [{"name": "a", "settings": {"dead_letter": "a"}}]},
        "its own dead-letter queue",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_one_thing_wrong_and_nothing_is_done(admin: Api, case: str) -> None:
    admin("POST", "/queues", {"name": "there"}, status=201)
    before = admin("GET", "/definitions", status=200).json
    changed, told = WRONG[case]
    for query in ("", "?dry_run=true"):
        refused = admin("PUT", f"/definitions{query}", document(changed))
        assert refused.status in (400, 404)
        assert told in refused.json["error"]["message"]
    assert admin("GET", "/definitions", status=200).json == before


def test_one_commit_has_it_all(broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a crash leaves all of the document, or nothing."""
    journal, owners = broker.engine._journal, []
    commit = journal.commit

    def watched(wanted: Commit) -> float:
        owners.append([write.owner for write in wanted.writes])
        return commit(wanted)

    monkeypatch.setattr(journal, "commit", watched)
    broker.wait_for(import_definitions(broker.engine, msgspec.convert(DOCUMENT, Definitions)))
    assert sum(CATALOG in each for each in owners) == 1, owners


def test_a_large_document_takes_its_turns(broker: GuardedBroker) -> None:
    wanted = Definitions(
        queues=[QueueDefinition(f"queue-{number:04}") for number in range(1, 2_501)],
    )
    done = broker.wait_for(import_definitions(broker.engine, wanted))
    assert [each.outcome for each in done] == ["created"] * 2_500
    assert len(broker.wait_for(export_definitions(broker.engine)).queues) == 2_500


def test_both_clients_speak_of_them(broker: GuardedBroker) -> None:
    token = broker.token("*:*")
    with nexo.connect(broker.url, token=token) as client:
        planned = client.import_definitions(DOCUMENT, dry_run=True)
        assert client.export_definitions().queues == []
        assert client.import_definitions(DOCUMENT) == planned
        exported = client.export_definitions()
        assert isinstance(exported, nexo.Definitions)

    async def again() -> None:
        async with nexo.connect_async(broker.url, token=token) as client:
            assert await client.export_definitions() == exported
            done = await client.import_definitions(exported)
            assert {each.outcome for each in done} == {"unchanged"}
            with pytest.raises(nexo.InvalidArgument, match="speed"):
                await client.import_definitions({"speed": 1})

    asyncio.run(again())


def test_they_outlive_a_restart(tmp_path: Path) -> None:
    first = GuardedBroker(data=str(tmp_path / "data"))
    try:
        first.wait_for(import_definitions(first.engine, msgspec.convert(DOCUMENT, Definitions)))
        exported = first.wait_for(export_definitions(first.engine))
    finally:
        first.stop()
    second = GuardedBroker(data=str(tmp_path / "data"))
    try:
        assert second.wait_for(export_definitions(second.engine)) == exported
    finally:
        second.stop()
