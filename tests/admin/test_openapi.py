"""The OpenAPI document and the page: both say what the broker does, and all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import nexo
from nexo.access.operations import operation_of
from nexo.doors.admin_http.app import OPERATIONS
from nexo.doors.admin_http.openapi import openapi_document
from scripts.admin_page import REGENERATE, reference_page

if TYPE_CHECKING:
    from tests.admin.api import Api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "admin-api.md"


def test_the_page_is_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), f"run: {REGENERATE}"


def test_every_operation_says_what_it_needs() -> None:
    """And nothing else but lists is for everybody."""
    for each in OPERATIONS:
        is_list = each.name in ("list_queues", "list_topics")
        assert bool(operation_of(each.name).needs) is not is_list, each.name


def test_the_document_is_served(admin: Api) -> None:
    served = admin("GET", "/openapi.json", status=200)
    assert served.headers["content-type"] == "application/json"
    assert served.json == msgspec.json.decode(
        msgspec.json.encode(openapi_document(OPERATIONS, nexo.__version__))
    )
    assert served.json["openapi"].startswith("3.1")


def test_every_route_is_in_the_document_and_answers(admin: Api) -> None:
    document = openapi_document(OPERATIONS, "test")
    told = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert told == {(each.method, each.path) for each in OPERATIONS}
    for method, path in told:
        plain = re.sub(r"\{task\}", "1", re.sub(r"\{name\}", "x", path))
        answer = admin.at(plain, method)
        assert answer.status not in (404, 405) or answer.code not in ("not_found", "wrong_method")


def test_no_type_hides_another() -> None:
    """Types are told by their names alone."""
    homes: dict[str, str] = {}
    for each in OPERATIONS:
        for kind in filter(None, (each.body, each.answer)):
            assert homes.setdefault(kind.__name__, kind.__module__) == kind.__module__


def test_what_is_taken_refuses_what_it_does_not_know() -> None:
    schemas = openapi_document(OPERATIONS, "test")["components"]["schemas"]
    seen: set[str] = set()

    def look(schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                look(each)
        elif isinstance(schema, dict):
            name = str(schema.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                assert schemas[name]["additionalProperties"] is False, name
                look(schemas[name])
            look(list(schema.values()))

    for each in OPERATIONS:
        if each.body is not None:
            look({"$ref": each.body.__name__})
    assert "GivenBackoff" in seen
