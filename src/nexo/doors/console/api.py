"""The admin API as a page: its OpenAPI document for people, made here and without a network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import CONSOLE_EXAMPLE_DEPTH_MAX

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call

_REF = "#/components/schemas/"
_EXAMPLES = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
}


class Field(msgspec.Struct, frozen=True):
    """A parameter, or a field of a type. `link` is the type that it consists of, if it has a name
    of its own."""

    name: str
    kind: str
    link: str = ""
    place: str = ""
    required: bool = False
    default: str = ""
    about: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    name: str
    method: str
    path: str
    summary: str
    parameters: tuple[Field, ...]
    takes: str  # the type of its body
    body: tuple[Field, ...]
    example: str  # a body, as JSON
    status: int
    gives: str  # the type of its answer
    refusals: tuple[str, ...]


class Group(msgspec.Struct, frozen=True):
    title: str
    endpoints: tuple[Endpoint, ...]


class Type(msgspec.Struct, frozen=True):
    name: str
    about: str
    fields: tuple[Field, ...]


class ApiPage(msgspec.Struct, frozen=True):
    about: str
    groups: tuple[Group, ...]
    types: tuple[Type, ...]


async def api(call: Call) -> Response:
    surroundings = call.shared.surroundings
    # The document takes 30 ms to make: in a thread the event loop goes on.
    page = await asyncio.to_thread(lambda: page_of(surroundings.api_document()))
    return await call.page("api.html", page=page, place=call.place)


def page_of(document: bytes) -> ApiPage:
    """What an OpenAPI 3.1 document says, in the order in which people ask."""
    whole: dict[str, Any] = msgspec.json.decode(document)
    if "paths" not in whole:
        raise NotReady("the API has no document", "see /api/v1/openapi.json")
    schemas: dict[str, Any] = whole["components"]["schemas"]
    groups: dict[str, list[Endpoint]] = {}
    for path, methods in whole["paths"].items():
        for method, told in methods.items():
            found = _endpoint(path, method, told, schemas)
            groups.setdefault(" ".join(told["tags"]), []).append(found)
    return ApiPage(
        about=whole["info"]["description"],
        groups=tuple(Group(title, tuple(found)) for title, found in groups.items()),
        types=tuple(
            Type(name, schema.get("description", ""), _fields(schema))
            for name, schema in sorted(schemas.items())
            if schema.get("properties")
        ),
    )


def _endpoint(path: str, method: str, told: dict[str, Any], schemas: dict[str, Any]) -> Endpoint:
    takes = _content(told.get("requestBody", {}))
    responses: dict[str, Any] = told["responses"]
    done = min(int(status) for status in responses)
    body = schemas.get(takes, {})
    example = _example(body, schemas) if takes else None
    return Endpoint(
        name=told["operationId"],
        method=method.upper(),
        path=path,
        summary=told["summary"],
        parameters=tuple(
            _field(each["name"], each["schema"], each["required"], each["in"], each)
            for each in told["parameters"]
        ),
        takes=takes,
        body=_fields(body),
        example=msgspec.json.encode(example).decode() if takes else "",
        status=done,
        gives=_content(responses[str(done)]),
        refusals=tuple(
            f"{status} {answer['description']}"
            for status, answer in sorted(responses.items())
            if int(status) >= 400
        ),
    )


def _content(told: dict[str, Any]) -> str:
    """The name of the type in a request or an answer."""
    for each in told.get("content", {}).values():
        return str(each["schema"].get("$ref", "")).removeprefix(_REF)
    return ""


def _fields(schema: dict[str, Any]) -> tuple[Field, ...]:
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    return tuple(_field(name, told, name in required) for name, told in properties.items())


def _field(
    name: str,
    schema: dict[str, Any],
    required: bool,
    place: str = "",
    told: dict[str, Any] | None = None,
) -> Field:
    kind, link = _kind(schema)
    default = schema.get("default")
    has_default = "default" in schema and default not in (None, {}, [])
    return Field(
        name=name,
        kind=kind,
        link=link,
        place=place,
        required=required,
        default=msgspec.json.encode(default).decode() if has_default else "",
        about=(told or schema).get("description", ""),
    )


def _kind(schema: dict[str, Any]) -> tuple[str, str]:
    """A type in words, and the named one in it."""
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(_REF)
        return name, name
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"]]
        links = [link for _, link in kinds if link]
        return " or ".join(kind for kind, _ in kinds), links[0] if links else ""
    if "enum" in schema:
        return " or ".join(msgspec.json.encode(each).decode() for each in schema["enum"]), ""
    kind = schema.get("type", "any")
    if kind == "array":
        inner, link = _kind(schema.get("items") or {})
        return f"list of {inner}", link
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        inner, link = _kind(schema["additionalProperties"])
        return f"map to {inner}", link
    return f"{kind}{_limits(schema)}", ""


def _limits(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("minLength"))
    high = schema.get("maximum", schema.get("maxLength"))
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low:,}"
    return f", at most {high:,}" if low is None else f", {low:,} to {high:,}"


def _example(schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> Any:
    """What a body may look like: the fields that it must have, or else the first."""
    if "$ref" in schema:
        schema = schemas[str(schema["$ref"]).removeprefix(_REF)]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], schemas, depth)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("default") not in (None, {}, []):
        return schema["default"]
    if schema.get("type") == "array" and depth < CONSOLE_EXAMPLE_DEPTH_MAX:
        return [_example(schema.get("items") or {}, schemas, depth + 1)]
    properties = schema.get("properties")
    if properties is None or depth > CONSOLE_EXAMPLE_DEPTH_MAX:
        return _EXAMPLES.get(schema.get("type", "string"))
    names = schema.get("required") or list(properties)[:1]
    return {name: _example(properties[name], schemas, depth + 1) for name in names}
