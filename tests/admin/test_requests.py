"""Requests that are wrong in ways only HTTP knows, and garbage: each gets a 4xx that says why."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from nexo.doors.admin_http import request
from nexo.doors.admin_http.app import OPERATIONS
from nexo.vocabulary.limits import ADMIN_JSON_VALUES_MAX
from tests.admin.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.admin_http.operation import Operation
    from tests.access.guarded import GuardedBroker

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
    monkeypatch.setattr(request, "ADMIN_BODY_BYTES_MAX", 1_000)
    body = {"messages": [{"body": "x" * 2_000}]}
    refused = admin("POST", f"/queues/{queue}/messages", body, status=413)
    assert refused.code == "message_too_large"


def test_a_body_of_many_values_is_not_made_into_them(admin: Api, queue: str) -> None:
    path = f"/queues/{queue}/messages"
    many = b"[" + b"[]," * ADMIN_JSON_VALUES_MAX + b"1]"
    for raw in (b'{"messages":[{"body":' + many + b"}]}", b'{"messages":' + many + b"}"):
        refused = admin("POST", path, raw=raw, status=400)
        assert "values" in refused.json["error"]["message"]
    text = {"messages": [{"body": many.decode()}]}
    admin("POST", path, text, status=201)


def test_what_is_for_admins_is_not_read_from_others(broker: GuardedBroker) -> None:
    """The refusal comes before the body does, and stands in the audit log."""
    head = (
        "PUT /api/v1/definitions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {broker.token('*:push,pop,manage')}\r\ncontent-length: 100\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", broker.ports.http), 10) as stuck:
        stuck.sendall(head.encode())
        assert stuck.recv(100).startswith(b"HTTP/1.1 403")
    told = broker.run(lambda: broker.broker._security.guard.audit.read(1))  # type: ignore[union-attr]
    assert [(each.action, each.outcome) for each in told] == [("import_definitions", "forbidden")]


def test_a_redrive_is_no_way_to_learn_names(admin: Api, broker: GuardedBroker, queue: str) -> None:
    task = admin("POST", f"/queues/{queue}/redrive", {}, status=202).json["task"]
    stranger = Api(broker.ports.http, broker.token("other:manage"))
    for method in ("GET", "DELETE"):
        refused = stranger(method, f"/redrives/{task}", status=404)
        unknown = stranger(method, "/redrives/999999", status=404)
        assert refused.code == unknown.code
        assert queue not in refused.content.decode()
    knows = Api(broker.ports.http, broker.token(f"{queue}:peek"))
    knows("GET", f"/redrives/{task}", status=403)


# Counted towards the size of a message, or checked as a whole by the settings.
ELSEWHERE = ("attributes", "tags", "aws")


def unbounded(kind: inspect.Type, at: str) -> Iterator[str]:
    """The places in a type of request that take any length or any number."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.encode_name not in ELSEWHERE:
                yield from unbounded(field.type, f"{at}.{field.encode_name}")
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from unbounded(each, at)
    elif isinstance(kind, inspect.Metadata):
        yield from unbounded(kind.type, at)
    elif isinstance(kind, inspect.StrType):
        if kind.max_length is None and kind.pattern is None:
            yield at
    elif isinstance(kind, inspect.IntType | inspect.FloatType):
        if (kind.ge is None and kind.gt is None) or (kind.le is None and kind.lt is None):
            yield at
    elif isinstance(kind, inspect.ListType | inspect.DictType):
        if kind.max_length is None:
            yield at
        below = (
            [kind.item_type]
            if isinstance(kind, inspect.ListType)
            else [kind.key_type, kind.value_type]
        )
        for each in below:
            yield from unbounded(each, f"{at}[]")
    elif not isinstance(
        kind, inspect.BoolType | inspect.NoneType | inspect.LiteralType | inspect.RawType
    ):
        yield at


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_every_field_has_its_range(operation: Operation) -> None:
    kinds = [operation.parameters, operation.query, operation.body]
    found = [unbounded(inspect.type_info(kind), kind.__name__) for kind in kinds if kind]
    assert [place for places in found for place in places] == []


def test_a_body_that_does_not_come(
    admin: Api, broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "ADMIN_BODY_S", 0.1)
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


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", "//]["]
)
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
