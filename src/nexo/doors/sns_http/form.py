"""A request of SNS as its actions read it, and a result as XML.

In SNS's form of the query protocol the elements of a list are called `member`, and those of a map
`entry`, with `key` and `value`; message attributes have `Name` and `Value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.doors.http.query import escaped, numbered, tree_of
from nexo.doors.sns_http.errors import SnsError, invalid, missing
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
Result = dict[str, Any]


class Given:
    """The parameters of a request, or of an entry in it. What an action does not know, it does not
    ask for, and what has another form than it must have is refused."""

    __slots__ = ("_node",)

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._node = node

    def text(self, name: str) -> str | None:
        found = self._node.get(name)
        if found is None or isinstance(found, str):
            return found
        raise invalid(f"{name} Reason: it must be a text")

    def needed(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise missing(name)
        return found

    def entries(self, name: str, key: str = "key", value: str = "value") -> dict[str, Any]:
        """A map; its values are texts, or have parameters of their own."""
        entries: dict[str, Any] = {}
        for each in self._elements(name, "entry"):
            called = each.get(key) if isinstance(each, dict) else None
            if not isinstance(called, str):
                raise invalid(f"{name} Reason: an entry has no {key}")
            entries[called] = each.get(value, "")
        return entries

    def texts_by_name(self, name: str) -> dict[str, str]:
        entries = self.entries(name)
        for called, value in entries.items():
            if not isinstance(value, str):
                raise invalid(f"{name} Reason: {called:.100} must be a text")
        return entries

    def members(self, name: str) -> list[Any]:
        """A list of texts, or of what has parameters of its own."""
        return self._elements(name, "member")

    def _elements(self, name: str, kind: str) -> list[Any]:
        found = self._node.get(name)
        if found is None or found == "":  # how SDKs write an empty one
            return []
        elements = found.get(kind) if isinstance(found, dict) else None
        if not isinstance(elements, dict):
            raise invalid(f"{name} Reason: it must have a {kind}")
        return numbered(elements)


def given_by(fields: dict[str, str]) -> Given:
    try:
        return Given(tree_of(fields))
    except InvalidArgument as error:
        raise SnsError("MalformedQueryString", error.message) from None


def xml_result(action: str, result: Result | None, request_id: str) -> bytes:
    inner = ""
    if result is not None:
        inner = f"<{action}Result>{_elements(result)}</{action}Result>"
    return (
        f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">{inner}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    ).encode()


def xml_error(error: SnsError, request_id: str) -> bytes:
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{error.fault}</Type><Code>{escaped(error.aws_code)}</Code>"
        f"<Message>{escaped(error.message)}</Message></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _elements(values: Mapping[str, Any]) -> str:
    return "".join(f"<{name}>{_content(value)}</{name}>" for name, value in values.items())


def _content(value: Any) -> str:
    """A list has members, and a map whose keys are data is a list of pairs."""
    if isinstance(value, Entries):
        return "".join(
            f"<entry><key>{escaped(key)}</key><value>{escaped(text)}</value></entry>"
            for key, text in value.items()
        )
    if isinstance(value, dict):
        return _elements(value)
    if isinstance(value, list):
        return "".join(f"<member>{_content(each)}</member>" for each in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(str(value))


class Entries(dict[str, str]):
    """A map whose keys are data, not names of the protocol."""
