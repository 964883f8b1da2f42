"""Every field of every SQS action in both protocols, and of every operation of the admin API."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from botocore.session import Session

from nexo.doors.admin_http.app import OPERATIONS
from nexo.doors.admin_http.openapi import openapi_document
from tests.aimed.target import QUEUE, TOPIC
from tests.aimed.values import deep, hostile_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.aimed.target import Target

    Wanted = Callable[[], bool]

JSON_TYPE, FORM_TYPE = "application/x-amz-json-1.0", "application/x-www-form-urlencoded"
TIME_LIMIT_S = 25.0
DOCUMENT: dict[str, Any] = openapi_document(OPERATIONS, "test")
MODEL = Session().get_service_model("sqs")

_ENTRY = {"Id": "a", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 1}
_ATTRIBUTE = {"DataType": "String", "StringValue": "v"}
_ARN = f"arn:aws:sqs:us-east-1:000000000000:{QUEUE}"
GOOD: dict[str, Any] = {  # a value for each name that an action may have
    "QueueUrl": f"http://127.0.0.1/000000000000/{QUEUE}",
    "QueueName": QUEUE,
    "Attributes": {"VisibilityTimeout": "30"},
    "tags": {"a": "b"},
    "Tags": {"a": "b"},
    "TagKeys": ["a"],
    "MessageBody": "x",
    "DelaySeconds": 0,
    "MessageAttributes": {"a": _ATTRIBUTE},
    "MessageSystemAttributes": {"AWSTraceHeader": _ATTRIBUTE},
    "MessageDeduplicationId": "d",
    "MessageGroupId": "g",
    "Entries": [_ENTRY],
    "ReceiptHandle": "x",
    "VisibilityTimeout": 30,
    "MaxNumberOfMessages": 1,
    "WaitTimeSeconds": 0,
    "AttributeNames": ["All"],
    "MessageAttributeNames": ["All"],
    "MessageSystemAttributeNames": ["All"],
    "ReceiveRequestAttemptId": "r",
    "QueueNamePrefix": "o",
    "NextToken": "t",
    "MaxResults": 10,
    "QueueOwnerAWSAccountId": "000000000000",
    "Label": "l",
    "AWSAccountIds": ["123456789012"],
    "Actions": ["SendMessage"],
    "SourceArn": _ARN,
    "DestinationArn": _ARN,
    "MaxNumberOfMessagesPerSecond": 1,
    "TaskHandle": "h",
}
NESTED: dict[str, tuple[str, ...]] = {  # what stands inside of these, tried one by one as well
    "Attributes": ("VisibilityTimeout", "RedrivePolicy", "Policy", "DelaySeconds", "FifoQueue"),
    "Entries": ("Id", "MessageBody", "DelaySeconds", "MessageAttributes", "ReceiptHandle"),
    "MessageAttributes": ("DataType", "StringValue", "BinaryValue"),
}


class Request(NamedTuple):
    label: str
    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class Browser:
    """Sends requests over one connection, and takes a new one when that ends."""

    def __init__(self, target: Target, token: str | None) -> None:
        self._target = target
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._line: http.client.HTTPConnection | None = None

    def send(self, request: Request) -> int:
        """The status; 0 if the broker hung up."""
        if self._line is None:
            self._line = http.client.HTTPConnection(
                "127.0.0.1", self._target.ports["http"], timeout=TIME_LIMIT_S
            )
        headers = {**request.headers, **self._headers}
        try:
            self._line.request(request.method, request.path, request.body, headers)
            answer = self._line.getresponse()
            answer.read()
        except (ConnectionError, http.client.HTTPException):
            self.close()
            return 0
        if answer.will_close:
            self.close()
        return answer.status

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def sqs_requests(wanted: Wanted = lambda: True) -> Iterator[Request]:
    """Those that are wanted; the others are not even made."""
    for action in MODEL.operation_names:
        shape = MODEL.operation_model(action).input_shape
        names = list(shape.members) if shape is not None else []
        plain = {name: GOOD[name] for name in names}
        for name in (*names, "Unknown"):
            for number, value in enumerate((*hostile_json(), deep())):
                if wanted():
                    label = f"{action}.{name} value {number}"
                    yield from _sqs(label, action, {**plain, name: value})
            for field in NESTED.get(name, ()) if name in names else ():
                for number, value in enumerate(hostile_json()):
                    if wanted():
                        inside = _inside(name, field, value)
                        label = f"{action}.{name}.{field} value {number}"
                        yield from _sqs(label, action, {**plain, name: inside})
    for number, value in enumerate((*hostile_json(), deep())):
        body = json_bytes(value)
        yield _sqs_json(f"SendMessage body value {number}", "SendMessage", body)


def admin_requests(wanted: Wanted = lambda: True) -> Iterator[Request]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            if method == "parameters":
                continue
            where = path.replace("{queue}", QUEUE).replace("{topic}", TOPIC)
            yield from (each for each in _admin(where, method.upper(), operation) if wanted())


def _inside(name: str, field: str, value: Any) -> Any:
    if name == "Entries":
        return [{**_ENTRY, field: value}]
    if name == "MessageAttributes":
        return {"a": {**_ATTRIBUTE, field: value}}
    return {field: value}


def _sqs(label: str, action: str, fields: dict[str, Any]) -> Iterator[Request]:
    yield _sqs_json(f"JSON {label}", action, json_bytes(fields))
    form = {"Action": action, "Version": "2012-11-05", **dict(_flat(fields))}
    headers = {"Content-Type": FORM_TYPE}
    yield Request(f"query {label}", "POST", "/", urlencode(form).encode(), headers)


def _sqs_json(label: str, action: str, body: bytes) -> Request:
    headers = {"Content-Type": JSON_TYPE, "X-Amz-Target": f"AmazonSQS.{action}"}
    return Request(label, "POST", "/", body, headers)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """As the query protocol writes lists and maps; a deep one is cut, and still too deep."""
    if isinstance(value, dict) and name.count(".") < 20:
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and name.count(".") < 20:
        for number, each in enumerate(value, 1):
            yield from _flat(each, f"{name}.{number}")
    else:
        yield name, str(value)[:400_000] if not isinstance(value, list | dict) else "deep"


def _admin(path: str, method: str, operation: dict[str, Any]) -> Iterator[Request]:
    label = f"{method} {path}"
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        for number, value in enumerate(hostile_json()):
            text = str(value)[:20_000]
            if parameter["in"] == "path":
                where = path.replace(f"{{{name}}}", quote(text, safe="")).replace(QUEUE, "x")
                yield Request(f"{label} {name} value {number}", method, where, b"", {})
            else:
                where = f"{_filled(path)}?{urlencode({name: text})}"
                yield Request(f"{label}?{name} value {number}", method, where, b"", {})
    if "requestBody" not in operation:
        return
    headers = {"Content-Type": "application/json"}
    for name in (*_fields(operation["requestBody"]), "unknown"):
        for number, value in enumerate((*hostile_json(), deep())):
            body = json_bytes({name: value})
            yield Request(f"{label} {name} value {number}", method, _filled(path), body, headers)
    for number, value in enumerate((*hostile_json(), deep())):
        body = json_bytes(value)
        yield Request(f"{label} body value {number}", method, _filled(path), body, headers)


def _filled(path: str) -> str:
    """A path whose names are of something that is there, or could be."""
    while "{" in path:
        start, end = path.index("{"), path.index("}") + 1
        path = path[:start] + (TOPIC if "topic" in path[:start] else QUEUE) + path[end:]
    return path


def _fields(body: dict[str, Any]) -> list[str]:
    (content,) = body["content"].values()
    schema = content["schema"]
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return list(schema.get("properties", {}))


def json_bytes(value: Any) -> bytes:
    """As deep as it is: the encoder of the library gives up long before."""
    depth = 0
    if isinstance(value, dict):
        members = [json.dumps(str(key)).encode() + b":" + json_bytes(v) for key, v in value.items()]
        return b"{" + b",".join(members) + b"}"
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value, depth = value[0], depth + 1
    return b"[" * depth + json.dumps(value).encode() + b"]" * depth
