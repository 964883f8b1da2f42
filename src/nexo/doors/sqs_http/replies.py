"""Results and errors as bytes, in the protocol that the request spoke."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from nexo.doors.sqs_http.errors import SqsError
    from nexo.doors.sqs_http.shapes import Shape

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
encode_json = msgspec.json.Encoder().encode

# What the elements of a list are called; those of `Successful` are called after the action.
_LISTS = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
_MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}
# How AWS spells lists to those who ask the query protocol for JSON.
_JSON_LISTS = {"QueueUrls": "queueUrls", "Messages": "messages"}
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
# Native messages may hold what XML has no way to say.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]')


def json_error(error: SqsError) -> bytes:
    return encode_json({"__type": error.type_name, "message": error.message})


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
        f"<Type>{error.fault}</Type><Code>{_escape(error.code)}</Code>"
        f"<Message>{_escape(message)}</Message><Detail/></Error>"
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
    return encode_json({f"{action}Response": told})


def json_query_error(error: SqsError, request_id: str) -> bytes:
    told = {"Type": error.fault, "Code": error.code, "Message": error.message, "Detail": None}
    return encode_json({"Error": told, "RequestId": request_id})


def _elements(values: dict[str, Any], action: str) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, list):
            element = _LISTS.get(name) or f"{action}ResultEntry"
            parts += [f"<{element}>{_content(each, action)}</{element}>" for each in value]
        elif isinstance(value, dict) and name in _MAPS:
            element, key = _MAPS[name]
            parts += [
                f"<{element}><{key}>{_escape(k)}</{key}><Value>{_content(v, action)}</Value>"
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
    return _escape(str(value))


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: _MARKUP.get(found[0], "\ufffd"), text)
