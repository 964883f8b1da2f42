"""The OpenAPI document and the page: both say what the broker does, and all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.access.permissions import ANY, Action
from nexo.doors.admin_http.app import OPERATIONS
from nexo.doors.admin_http.openapi import openapi_document
from nexo.doors.admin_http.reference_page import NEEDS, REGENERATE, reference_page

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Operation
    from tests.admin.api import Api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "admin-api.md"


def test_the_page_is_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), f"run: {REGENERATE}"


def test_every_operation_says_what_it_needs() -> None:
    assert set(NEEDS) == {each.name for each in OPERATIONS}
    for each in OPERATIONS:
        assert (NEEDS[each.name] == "an admin") == (each.needs is None), each.name


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_the_page_names_the_actions_that_are_asked_for(operation: Operation) -> None:
    """Those that need nothing but a name in the path; the others are tried in test_access."""
    if operation.needs is None or "name" not in operation.parameters.__struct_fields__:
        return
    if operation.body is not None and operation.name not in ("push", "publish", "edit_topic"):
        return

    class Path:
        name = queue = "x"

    class Given:
        path = query = Path

    asked = [need.actions for need in operation.needs(Given)]  # type: ignore[arg-type]
    told = NEEDS[operation.name]
    if ANY in asked:
        assert told == "any action"
    else:
        words = {Action(word) for word in re.findall(r"`(\w+)`", told)}
        assert words == frozenset().union(*asked)


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
