"""The OpenAPI document of the API, made from its table and the types that decode its requests."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.admin_http.request import JSON, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.doors.admin_http.operation import Operation

OPENAPI_PATH = "/api/v1/openapi.json"
_REF = "#/components/schemas/{name}"
# What any operation may answer: wrong input, no token, not allowed, too much, a broken disk.
_ALWAYS = (400, 401, 403, 429, 503)
_WITH_BODY = (408, 413, 415)
_TOKEN = "token"  # noqa: S105 - the name of a scheme


def openapi_document(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """`version` is that of the broker."""
    types: list[type[msgspec.Struct]] = [Refused]
    for each in operations:
        types += [kind for kind in (each.body, each.answer) if kind is not None]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nexo admin API",
            "version": version,
            "description": "Times are seconds, moments RFC 3339 in UTC. Fields and parameters "
            "that are not listed are refused.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer"}},
        },
        "security": [{_TOKEN: []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "parameters": [
            *parameters(operation.parameters, "path"),
            *parameters(operation.query, "query"),
        ],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    return described


def parameters(kind: type[msgspec.Struct], place: str) -> list[dict[str, Any]]:
    """The fields of a type, each as a parameter."""
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    schema = components[kind.__name__]
    required = schema.get("required", [])
    found = []
    for name, described in schema["properties"].items():
        plain = {word: value for word, value in described.items() if word != "description"}
        parameter = {"name": name, "in": place, "required": name in required, "schema": plain}
        if "description" in described:
            parameter["description"] = described["description"]
        found.append(parameter)
    return found


def statuses(operation: Operation) -> list[int]:
    """All that an operation may refuse with."""
    with_body = _WITH_BODY if operation.body is not None else ()
    return sorted({*_ALWAYS, *with_body, *operation.refusals})


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in (operation.status, operation.also):
        if status is not None:
            responses[str(status)] = {"description": HTTPStatus(status).phrase}
            if operation.answer is not None:
                responses[str(status)]["content"] = _content(operation.answer)
    for status in statuses(operation):
        phrase = HTTPStatus(status).phrase
        responses[str(status)] = {"description": phrase, "content": _content(Refused)}
    return responses


def _content(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
