"""The query protocol of AWS, as far as all services have it in common: a form with `Action`, whose
fields are a tree (`Attribute.1.Name`), and XML as the answer.

Several services share one address. A request says by its signature which one it means; without a
signature, by its version and action. Whoever serves the root of the port reads the request and
knows who calls; what is for another service it hands on as `Asked`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import HTTP_FORM_DEPTH_MAX

if TYPE_CHECKING:
    from nexo.access.caller import Caller

_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
# Native messages may hold what XML has no way to say.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]')
_SCOPE_END = "/aws4_request"  # behind the name of the service


class Asked(NamedTuple):
    """A request of the query protocol that was read, and is known to be its caller's."""

    fields: dict[str, str]
    account: str  # whose topics and queues are meant, …
    region: str  # … and where, unless an ARN says otherwise
    rights: Caller
    request_id: str
    origin: str  # where the client found the broker, as `http://host:port`
    peer: str
    is_link: bool  # it could be a link in a web page: by GET, and without a signature
    trace: str | None


class QueryApi(Protocol):
    """A service beside the one at the root."""

    def takes(self, service: str | None, fields: dict[str, str]) -> bool:
        """Whether a request is for it; `service` is what the request was signed for."""

    async def answer(self, asked: Asked) -> tuple[int, bytes]:
        """The status, and the XML. Refusals are answers too."""


def signed_service(authorization: bytes | None, fields: dict[str, str]) -> str | None:
    """The service that a request was signed for; None if it was not signed."""
    if authorization is not None:
        credential = authorization.decode("latin-1")
    else:
        credential = fields.get("X-Amz-Credential", "")
    scope, found, _ = credential.partition(_SCOPE_END)
    return scope.rpartition("/")[2] if found else None


def tree_of(fields: dict[str, str]) -> dict[str, Any]:
    """Fields parted at their dots."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        if name.count(".") >= HTTP_FORM_DEPTH_MAX:
            raise InvalidArgument(f"The parameter {name:.80} is nested too deep.")
        node, parts = tree, name.split(".")
        for part in parts[:-1]:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                raise InvalidArgument(f"The parameter {name:.80} contradicts.")
            node = below
        node[parts[-1]] = value
    return tree


def numbered(node: dict[str, Any]) -> list[Any]:
    """The numbered elements in order; a single one may come without its number."""
    found = sorted((int(key), key) for key in node if key.isdecimal() and len(key) < 6)
    return [node[key] for _, key in found] if found else [node]


def escaped(text: str) -> str:
    """A text as XML has it."""
    return _SPECIAL.sub(lambda found: _MARKUP.get(found[0], "\ufffd"), text)
