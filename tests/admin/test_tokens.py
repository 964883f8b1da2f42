"""Tokens and the audit log over the admin API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.admin.api import Api

if TYPE_CHECKING:
    import pytest

    from tests.access.guarded import GuardedBroker


def test_a_token_from_its_making_to_its_end(broker: GuardedBroker, admin: Api) -> None:
    wanted = {"name": "shop", "allow": ["orders.*:push,pop"], "expires": 3600}
    made = admin("POST", "/tokens", wanted, status=201)
    assert made.headers["cache-control"] == "no-store"
    shop = Api(broker.ports.http, made.json["token"])
    shop("GET", "/queues", status=200)
    assert made.json["expires_at"] > made.json["created_at"]
    listed = admin("GET", "/tokens", status=200)
    assert made.json["token"].encode() not in listed.content
    told = {each["name"]: each for each in listed.json["tokens"]}
    assert told["shop"]["allow"] == ["orders.*:push,pop"]
    assert admin("POST", "/tokens", wanted, status=409).code == "token_exists"
    admin("DELETE", "/tokens/shop", status=204)
    assert shop("GET", "/queues", status=401).code == "unauthorized"
    assert admin("DELETE", "/tokens/shop", status=404).code == "token_not_found"


def test_an_access_key(admin: Api) -> None:
    made = admin("POST", "/tokens", {"name": "aws", "allow": ["*:*"], "aws": True}, status=201).json
    assert made["token"] is None
    assert made["access_key_id"].startswith("NEXO")
    assert made["secret_access_key"]


def test_wrong_permissions(admin: Api) -> None:
    for allow in ([], ["orders"], ["orders:fly"], ["orders:admin"]):
        admin("POST", "/tokens", {"name": "wrong", "allow": allow}, status=400)
    names = {each["name"] for each in admin("GET", "/tokens", status=200).json["tokens"]}
    assert "wrong" not in names


def test_what_changes_something_is_told(
    broker: GuardedBroker, admin: Api, caplog: pytest.LogCaptureFixture
) -> None:
    admin("POST", "/queues", {"name": "told"}, status=201)
    admin("GET", "/queues/told", status=200)
    admin("POST", "/queues/untold/purge", status=404)
    admin("PUT", "/definitions?dry_run=true", {}, status=200)
    admin("PUT", "/definitions", {}, status=200)
    Api(broker.ports.http, broker.token("told:peek"))("DELETE", "/queues/told", status=403)
    entries = admin("GET", "/audit?limit=4", status=200).json["entries"]
    assert [(each["action"], each["resource"], each["outcome"]) for each in entries] == [
        ("delete_queue", "told", "forbidden"),
        ("import_definitions", "", "done"),
        ("purge", "untold", "queue_not_found"),
        ("create_queue", "told", "done"),
    ]
    assert {(each["door"], each["peer"]) for each in entries} == {("admin", "127.0.0.1")}
