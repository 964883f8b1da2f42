"""The query protocol's way in: `Attribute.1.Name=…&Attribute.1.Value=…` as a request.

Names are parted at their dots into a tree. The lists and maps of a request have names of their own
there, in the singular; their elements are numbered from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.http.body import read_form
from nexo.doors.sqs_http.errors import SqsError, invalid
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import SQS_FORM_FIELDS_MAX

if TYPE_CHECKING:
    from nexo.doors.sqs_http.shapes import Shape

_DEPTH_MAX = 8

# What a list is called in the query protocol; entries of batches are called after their action.
_LISTS = {
    "AttributeName": "AttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "TagKey": "TagKeys",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_FIELDS = frozenset(_LISTS.values())
# What a map is called, and its keys.
_MAPS = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}


def read_fields(text: bytes) -> dict[str, str]:
    """The fields of a form or of a query string."""
    try:
        return dict(read_form(text, SQS_FORM_FIELDS_MAX))
    except InvalidArgument as error:
        raise SqsError(
            "MalformedQueryString", f"The query string cannot be read: {error}"
        ) from None


def request_of(fields: dict[str, str], kind: type[Shape]) -> Shape:
    """The fields as the request of an action. What the action does not know is ignored."""
    plain = _plain(_tree(fields))
    if "Tags" in plain and "tags" in kind.__struct_encode_fields__:  # CreateQueue spells it so
        plain["tags"] = plain.pop("Tags")
    try:
        request: Shape = msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(_told(error)) from None
    return request


def _told(error: msgspec.ValidationError) -> str:
    """`Expected `int`, got `str` - at `$.DelaySeconds``, in words of AWS."""
    _, _, place = str(error).partition(" - at `$.")
    name = place.rstrip("`") or "request"
    return f"Value for parameter {name} is invalid. Reason: Must be of the type that it has."


def _tree(fields: dict[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        if name.count(".") >= _DEPTH_MAX:
            raise SqsError("MalformedQueryString", f"The parameter {name:.80} is nested too deep.")
        node, parts = tree, name.split(".")
        for part in parts[:-1]:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                raise SqsError("MalformedQueryString", f"The parameter {name:.80} contradicts.")
            node = below
        node[parts[-1]] = value
    return tree


def _plain(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    plain: dict[str, Any] = {}
    for name, below in node.items():
        if name in _MAPS and isinstance(below, dict):
            field, key = _MAPS[name]
            pairs = [each for each in _elements(below) if isinstance(each, dict)]
            plain[field] = {
                each[key]: _plain(each.get("Value", ""))
                for each in pairs
                if isinstance(each.get(key), str)
            }
        elif name in _LISTS and isinstance(below, dict):
            plain[_LISTS[name]] = [_plain(each) for each in _elements(below)]
        elif name in _LISTS:
            plain[_LISTS[name]] = [below] if below else []
        elif name in _FIELDS and not below:  # how SDKs write an empty list
            plain[name] = []
        else:
            plain[name] = _plain(below)
    return plain


def _elements(node: dict[str, Any]) -> list[Any]:
    """The numbered elements in order; a single one may come without its number."""
    numbered = sorted((int(key), key) for key in node if key.isdecimal() and len(key) < 6)
    return [node[key] for _, key in numbered] if numbered else [node]
