"""Requests that are wrong in ways only HTTP knows, and garbage: each gets a 4xx that says why."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nexo.doors.admin_http import intake
from nexo.doors.admin_http.routes import OPERATIONS

if TYPE_CHECKING:
    from tests.access.guarded import GuardedBroker
    from tests.admin.api import Api

WITH_BODY = [each for each in OPERATIONS if each.body is not None]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ('APPLICATION/JSON; Charset="UTF-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
def test_content_types(admin: Api, topic: str, kind: str, status: int) -> None:
    path, body = f"/topics/{topic}/messages", {"messages": [{"body": "x"}]}
    answer = admin("POST", path, body, headers={"content-type": kind}, status=status)
    if status == 415:
        assert answer.code == "wrong_content_type"


def test_a_body_that_is_too_large_is_not_read_to_its_end(
    admin: Api, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "ADMIN_BODY_BYTES_MAX", 1_000)
    body = {"messages": [{"body": "x" * 2_000}]}
    refused = admin("POST", f"/queues/{queue}/messages", body, status=413)
    assert refused.code == "message_too_large"


def test_a_body_that_does_not_come(
    admin: Api, broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "ADMIN_BODY_S", 0.1)
    token = broker.token("*:*")
    head = (
        "POST /api/v1/queues HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {token}\r\ncontent-length: 100\r\n\r\n{{"
    )
    with socket.create_connection(("127.0.0.1", broker.ports.http), 10) as stuck:
        stuck.sendall(head.encode())
        assert stuck.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "path", [b"/api/v1/queues/\xff", b"/api/v1/\x00", b"/api/v1/queues?a=\xff"]
)
def test_bytes_that_no_path_has(broker: GuardedBroker, path: bytes) -> None:
    head = b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
    with socket.create_connection(("127.0.0.1", broker.ports.http), 10) as odd:
        odd.sendall(head + broker.token("*:*").encode() + b"\r\n\r\n")
        assert odd.recv(100).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?limit=0", "limit"),
        ("?limit=1001", "limit"),
        ("?limit=ten", "limit"),
        ("?limit=", "limit"),
        ("?limit=1&limit=2", "limit"),
        ("?limits=1", "limits"),
        ("?after=%FF", "query"),
        ("?" + "&".join(f"a{n}=1" for n in range(100)), "query"),
    ],
)
def test_wrong_queries(admin: Api, query: str, told: str) -> None:
    refused = admin("GET", f"/queues{query}", status=400)
    assert told in refused.json["error"]["message"]


@pytest.mark.parametrize("path", ["/queues/%FF", "/queues/%2F", "/queues/a%00b", "/redrives/x"])
def test_wrong_paths(admin: Api, path: str) -> None:
    assert admin("GET", path, status=400).code == "invalid_argument"


@pytest.mark.parametrize("path", ["", "/", "/queues/", "/nothing", "/queues/a/b", "/%71ueues"])
def test_paths_that_lead_nowhere(admin: Api, path: str) -> None:
    assert admin("GET", path, status=404).code == "not_found"


def test_wrong_methods(admin: Api) -> None:
    refused = admin("PUT", "/queues/x", status=405)
    assert (refused.code, refused.headers["allow"]) == ("wrong_method", "DELETE, GET, PATCH")
    admin("OPTIONS", "/queues", status=405)
    assert admin("POST", "/openapi.json", status=405).code == "wrong_method"


def test_a_head_is_a_get_without_its_content(admin: Api, queue: str) -> None:
    head, get = (admin(method, f"/queues/{queue}", status=200) for method in ("HEAD", "GET"))
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_site_changes_nothing(admin: Api, queue: str, origin: str) -> None:
    refused = admin("POST", f"/queues/{queue}/purge", headers={"origin": origin}, status=403)
    assert refused.code == "forbidden"
    admin("GET", f"/queues/{queue}", headers={"origin": origin}, status=200)


def test_a_page_of_our_own_may(admin: Api, broker: GuardedBroker, queue: str) -> None:
    admin("POST", f"/queues/{queue}/purge", headers={"origin": broker.http}, status=200)


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda each: each.name)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=40) | st.text(alphabet='{}[]":,0aé\\ ', max_size=40).map(str.encode))
@example(raw=b"")
@example(raw=b"null")
@example(raw=b"[" * 100_000)
@example(raw=b'{"messages":[{"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}")
@example(raw=b'{"messages":[{"body":"\xff"}]}')
@example(raw=b'{"messages":[{"body":[1e999999,1' + b"0" * 500 + b"]}]}")
def test_garbage_is_refused(admin: Api, operation, raw: bytes) -> None:
    path = operation.path.removeprefix("/api/v1").replace("{name}", "garbage")
    status = admin(operation.method, path, raw=raw).status
    # An empty object is all that some operations need.
    assert 400 <= status < 500 or status == 200, (status, raw)
