"""The query protocol: a request from a form, a result or an error as XML.

On the way in, `Attribute.1.Name=…&Attribute.1.Value=…` is a tree (`http.query`). The lists
and maps of a request have names of their own there, in the singular; their elements are numbered
from 1. On the way out their elements have such names again. Who asks for JSON gets it, in a
spelling of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.http.body import read_form
from nexo.doors.http.query import escaped, numbered, tree_of
from nexo.doors.sqs_http.errors import SqsError, invalid
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import SQS_FORM_FIELDS_MAX

if TYPE_CHECKING:
    from nexo.doors.sqs_http.shapes import Shape

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

# What a list is called in the query protocol; entries of batches are called after their action.
_LISTS_IN = {
    "AttributeName": "AttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "TagKey": "TagKeys",
    "StringListValue": "StringListValues",
    "BinaryListValue": "BinaryListValues",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_FIELDS = frozenset(_LISTS_IN.values())
# What a map is called, and its keys.
_MAPS_IN = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}

# What the elements of a list are called; those of `Successful` are called after the action.
_LISTS_OUT = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
_MAPS_OUT = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}
# How AWS spells lists to those who ask the query protocol for JSON.
_JSON_LISTS = {"QueueUrls": "queueUrls", "Messages": "messages"}


# -- In ---------------------------------------------------------------------------------------


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
    try:
        plain = _plain(tree_of(fields))
    except InvalidArgument as error:
        raise SqsError("MalformedQueryString", error.message) from None
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


def _plain(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    plain: dict[str, Any] = {}
    for name, below in node.items():
        if name in _MAPS_IN and isinstance(below, dict):
            field, key = _MAPS_IN[name]
            pairs = [each for each in numbered(below) if isinstance(each, dict)]
            plain[field] = {
                each[key]: _plain(each.get("Value", ""))
                for each in pairs
                if isinstance(each.get(key), str)
            }
        elif name in _LISTS_IN and isinstance(below, dict):
            plain[_LISTS_IN[name]] = [_plain(each) for each in numbered(below)]
        elif name in _LISTS_IN:
            plain[_LISTS_IN[name]] = [below] if below else []
        elif name in _FIELDS and not below:  # how SDKs write an empty list
            plain[name] = []
        else:
            plain[name] = _plain(below)
    return plain


# -- Out --------------------------------------------------------------------------------------


def xml_result(action: str, result: Shape | None, request_id: str, space: str = NAMESPACE) -> bytes:
    inner = ""
    if result is not None:
        elements = _elements(msgspec.to_builtins(result), action)
        name = f"{action}Result"
        inner = f"<{name}>{elements}</{name}>" if elements else f"<{name}/>"
    return (
        f'<?xml version="1.0"?><{action}Response xmlns="{space}">{inner}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    ).encode()


def xml_error(error: SqsError, request_id: str) -> bytes:
    message = error.message
    if error.shape == "QueueDoesNotExist":  # the query protocol says a little more
        message = message.removesuffix(".") + " for this wsdl version."
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{error.fault}</Type><Code>{escaped(error.code)}</Code>"
        f"<Message>{escaped(message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def json_result(action: str, result: Shape | None, request_id: str) -> bytes:
    """What the query protocol says to those who ask it for JSON."""
    told: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if result is not None:
        told[f"{action}Result"] = {
            _JSON_LISTS.get(name, name): [
                {"Name": key, "Value": value} for key, value in values.items()
            ]
            if name == "Attributes"
            else values
            for name, values in msgspec.to_builtins(result).items()
        }
    return msgspec.json.encode({f"{action}Response": told})


def json_error(error: SqsError, request_id: str) -> bytes:
    told = {"Type": error.fault, "Code": error.code, "Message": error.message, "Detail": None}
    return msgspec.json.encode({"Error": told, "RequestId": request_id})


def _elements(values: dict[str, Any], action: str) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, list):
            element = _LISTS_OUT.get(name) or f"{action}ResultEntry"
            parts += [f"<{element}>{_content(each, action)}</{element}>" for each in value]
        elif isinstance(value, dict) and name in _MAPS_OUT:
            element, key = _MAPS_OUT[name]
            parts += [
                f"<{element}><{key}>{escaped(k)}</{key}><Value>{_content(v, action)}</Value>"
                f"</{element}>"
                for k, v in value.items()
            ]
        else:
            parts.append(f"<{name}>{_content(value, action)}</{name}>")
    return "".join(parts)


def _content(value: Any, action: str) -> str:
    if isinstance(value, dict):
        return _elements(value, action)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escaped(str(value))
