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
JSON over HTTP at `/api/v1` of the HTTP port, for scripts and consoles: everything that is done
with a broker besides its daily work of moving messages. `GET {OPENAPI_PATH}` is the whole of it as
an OpenAPI 3.1 document, made from the types that decode the requests; this page is made from the
same table.

```
curl -X POST localhost:9324/api/v1/queues -H 'Content-Type: application/json' \\
     -d '{{"name": "orders", "settings": {{"visibility_timeout": 45, "max_attempts": 3}}}}'
curl -X POST localhost:9324/api/v1/queues/orders/messages -H 'Content-Type: application/json' \\
     -d '{{"messages": [{{"body": {{"id": 1}}, "priority": 9}}, {{"body": "plain text"}}]}}'
curl localhost:9324/api/v1/queues/orders/messages?limit=5
curl localhost:9324/api/v1/overview -H "Authorization: Bearer $NEXO_TOKEN"
```

## Rules
- Words are those of the client and of [the settings](settings.md): times in seconds, moments in
  RFC 3339. A field or parameter that is not known is refused by name.
- Names stand in the path percent-encoded. A queue of another account and region has slashes in its
  name: `123456789012%2Feu-west-1%2Forders`.
- A body is JSON in UTF-8, says so (`Content-Type: application/json`), and has at most
  {ADMIN_BODY_BYTES_MAX // _MIB} MiB and, but for definitions, {ADMIN_JSON_VALUES_MAX:,} values;
  a longer JSON can be pushed as text. One push has at most {ADMIN_PUSH_MESSAGES_MAX:,} messages.
- Lists come in pages of `limit` (at most {ADMIN_PAGE_MAX:,}); `next` is what `after` takes for the
  following one, null at the end.
- A refusal is `{{"error": {{"code": …, "message": …, "hint": …}}}}` with a status that fits. Codes
  are [those of the client](rpc-protocol.md#errors), and `not_found`, `wrong_method`,
  `wrong_content_type` and `too_slow` for what only HTTP can get wrong.
- With `--access required` a token is asked for: `Authorization: Bearer`. What it must allow stands
  below; what changes something goes to the audit log.
- A page of another site cannot change anything through a browser: an `Origin` that is not this
  host is refused.

**Bodies of messages.** What is pushed as a string is text, anything else is kept as the JSON that
it is; `"encoding": "base64"` says that a string stands for other bytes, `"json"` that it stands for
itself, quotes included. What is shown has its `encoding` beside it: `text`, `json` for objects and
arrays, `base64` for bytes that are no text. Longer bodies than `body_bytes` are cut and say
`"truncated": true`; `size` is that of the whole.
"""
_REFUSALS = (
    "Any of them may also be refused with 400, 401, 403, 429 and 503; one with a body with 408, "
    "413 and 415."
)
_DEFINITIONS = """## The document of definitions
The document of `nexo export`: `version` (1), `queues` and `topics` with `name` and `settings`,
`bindings` with `topic`, `queue` and `where` (attributes that must match; null: all). Messages,
tokens and the broker's own topics are not in it. An import is checked whole before anything
changes, and answers what it did with each: `created`, `changed` (with the `settings` that differed)
or `unchanged`. Settings that are left out have their defaults; what is not in the document stays.
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
