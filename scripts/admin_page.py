"""The page `docs/reference/admin-api.md`, made from the table of operations.

python -m scripts.admin_page > docs/reference/admin-api.md
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import operation_of
from nexo.access.permissions import ANY, Action
from nexo.doors.admin_http.app import OPERATIONS
from nexo.doors.admin_http.openapi import OPENAPI_PATH, parameters, statuses
from nexo.vocabulary.limits import (
    ADMIN_BODY_BYTES_MAX,
    ADMIN_JSON_VALUES_MAX,
    ADMIN_PAGE_MAX,
    ADMIN_PUSH_MESSAGES_MAX,
)

if TYPE_CHECKING:
    from nexo.access.operations import Need
    from nexo.doors.admin_http.operation import Operation

REGENERATE = "python -m scripts.admin_page > docs/reference/admin-api.md"
_REF = "#{name}"
_MIB = 1024 * 1024
_INTRODUCTION = f"""# The admin API
JSON over HTTP at `/api/v1` on the HTTP port, to manage a broker from scripts and tools.
`GET {OPENAPI_PATH}` returns the API as an OpenAPI 3.1 document. That document and this page are
made from the code that decodes the requests.

```
curl -X POST localhost:9324/api/v1/queues -H 'Content-Type: application/json' \\
     -d '{{"name": "orders", "settings": {{"visibility_timeout": 45, "max_attempts": 3}}}}'
curl -X POST localhost:9324/api/v1/queues/orders/messages -H 'Content-Type: application/json' \\
     -d '{{"messages": [{{"body": {{"id": 1}}, "priority": 9}}, {{"body": "plain text"}}]}}'
curl localhost:9324/api/v1/queues/orders/messages?limit=5
curl localhost:9324/api/v1/overview -H "Authorization: Bearer $NEXO_TOKEN"
```

## Rules
- Fields have the same names as in the client and [the settings](settings.md): durations in seconds,
  times in RFC 3339. An unknown field or parameter is refused, and the error names it.
- Names in the path are percent-encoded. A queue of another account and region has slashes in its
  name: `123456789012%2Feu-west-1%2Forders`.
- A request body is JSON in UTF-8 with `Content-Type: application/json`. It has at most
  {ADMIN_BODY_BYTES_MAX // _MIB} MiB and, except for definitions, {ADMIN_JSON_VALUES_MAX:,} values;
  push a longer JSON as text. One push has at most {ADMIN_PUSH_MESSAGES_MAX:,} messages.
- Lists come in pages of `limit` entries (at most {ADMIN_PAGE_MAX:,}). Pass `next` as `after` to get
  the following page; it is null on the last page.
- An error is `{{"error": {{"code": …, "message": …, "hint": …}}}}` with a matching HTTP status.
  Codes are [those of the client](rpc-protocol.md#errors), and for HTTP itself `not_found`,
  `wrong_method`, `wrong_content_type` and `too_slow`.
- With `--access required` send a token: `Authorization: Bearer`. The table below lists the
  permissions that each operation needs. Changes are recorded in the audit log.
- Web pages of other sites cannot make changes: a request with another `Origin` is refused.

**Message bodies.** A body that you push as a string is stored as text, any other value as JSON.
With `"encoding": "base64"` the string is decoded to bytes; with `"json"` the string itself is
stored as JSON, with its quotes. Bodies in answers have an `encoding`: `text`, `json` for objects
and arrays, `base64` for bytes that are not text. Bodies longer than `body_bytes` are cut and have
`"truncated": true`; `size` is the size of the whole body.
"""
_REFUSALS = (
    "Every operation can also fail with 400, 401, 403, 429 and 503; operations with a request body "
    "also with 408, 413 and 415."
)
_DEFINITIONS = """## The document of definitions
The document of `nexo export`: `version` (1), `queues` and `topics` with `name` and `settings`,
`bindings` with `topic`, `queue` and `where` (attributes that must match; null: no filter). It does
not contain messages, tokens and system topics. An import checks the whole document before it
changes anything, and reports for each definition: `created`, `changed` (with the `settings` that
differed) or `unchanged`. Settings that are left out get their defaults. Definitions that are not in
the document stay.
"""


def reference_page() -> str:
    lines = [_INTRODUCTION, "## Operations"]
    lines += [
        "| request | does | needs | takes | answers | refuses |",
        "|---|---|---|---|---|---|",
        *[_row(each) for each in OPERATIONS],
        "",
        _REFUSALS,
        "",
        "## Types",
        "",
        *_types(),
        _DEFINITIONS,
    ]
    return "\n".join(lines)


def _row(operation: Operation) -> str:
    path = operation.path.removeprefix("/api/v1")
    query = [f"`?{each['name']}=`" for each in parameters(operation.query, "query")]
    body = [] if operation.body is None else [_link(operation.body)]
    answers = str(operation.status) + (f" or {operation.also}" if operation.also else "")
    if operation.answer is not None:
        answers += f" {_link(operation.answer)}"
    own = [str(each) for each in statuses(operation) if each in operation.refusals]
    cells = [
        f"`{operation.method} {path}`",
        operation.summary,
        _needs(operation),
        ", ".join([*body, *query]),
        answers,
        ", ".join(own),
    ]
    return f"| {' | '.join(cells)} |"


def _needs(operation: Operation) -> str:
    """What it needs of a token, as `access.operations` says."""
    needs = operation_of(operation.name).needs
    if operation.is_for_admins:
        return "an admin"
    return ", and ".join(_need(need) for need in needs) or "nothing: what the token knows is listed"


def _need(need: Need) -> str:
    if need.actions == ANY:
        return f"any action on {need.on}"
    *others, last = (f"`{action}`" for action in Action if action in need.actions)
    actions = f"{', '.join(others)} or {last}" if others else last
    return f"{actions} on {need.on}"


def _types() -> list[str]:
    """Every type that is taken or answered, with its fields."""
    kinds: dict[str, Any] = {}
    for each in OPERATIONS:
        wanted = [kind for kind in (each.body, each.answer) if kind is not None]
        kinds |= msgspec.json.schema_components(wanted, ref_template=_REF)[1]
    lines = []
    for name in sorted(kinds):
        schema = kinds[name]
        lines += [f"### {name}", " ".join(schema.get("description", "").split()), ""]
        lines += ["| field | is |", "|---|---|"]
        required = schema.get("required", [])
        for field, kind in schema["properties"].items():
            default = "" if field in required or "default" not in kind else _default(kind)
            about = f": {kind['description']}" if "description" in kind else ""
            lines.append(f"| `{field}` | {_kind(kind)}{default}{about} |")
        lines.append("")
    return lines


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#")
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("type") == "object":
        return f"object of {_kind(schema['additionalProperties'])}"
    named = "moment" if schema.get("format") == "date-time" else schema.get("type", "any JSON")
    bounds = [_bound(schema[word]) for word in ("minimum", "maximum") if word in schema]
    return f"{named}, {' to '.join(bounds)}" if len(bounds) == 2 else str(named)


def _bound(value: float) -> str:
    """Types that are bounded alike may be one, with the 20 or the 20.0 of whichever came first."""
    return f"{int(value) if value == int(value) else value:,}"


def _default(schema: dict[str, Any]) -> str:
    value = schema["default"]
    return f"; default `{msgspec.json.encode(value).decode()}`"


def _link(kind: type[msgspec.Struct]) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
