"""Requests by hand: what an SDK would never send, and replies as they are on the wire."""

import http.client
import json
import socket
from typing import Any, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

from tests.compliance.broker import ServedBroker

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
JSON_TYPE = "application/x-amz-json-1.0"
FORM_TYPE = "application/x-www-form-urlencoded"
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, "
    "SignedHeaders=host, Signature=" + "0" * 64
)
TIME_LIMIT_S = 20


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def xml(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)


def request(
    broker: ServedBroker,
    method: str = "POST",
    path: str = "/",
    body: bytes | str = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=TIME_LIMIT_S)
    try:
        connection.request(method, path, body, headers or {})
        return _read(connection.getresponse())
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


def json_call(
    broker: ServedBroker, action: str, body: Any, path: str = "/", **headers: str
) -> Reply:
    """A call of the JSON protocol; a text or bytes for the body go as they are."""
    raw = body if isinstance(body, str | bytes) else json.dumps(body)
    common = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": JSON_TYPE}
    return request(broker, "POST", path, raw, {**common, **headers})


def form_call(
    broker: ServedBroker, parameters: dict[str, str], path: str = "/", method: str = "POST"
) -> Reply:
    """A call of the query protocol, in the body or, as by an SDK that signs it, in the URL."""
    encoded = urlencode({"Version": "2012-11-05", **parameters})
    if method == "GET":
        return request(broker, "GET", f"{path}?{encoded}", headers={"Authorization": SIGNED})
    return request(broker, method, path, encoded, {"Content-Type": FORM_TYPE})


class Wire:
    """A connection on which anything may be sent."""

    def __init__(self, broker: ServedBroker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.http_port), TIME_LIMIT_S)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> Reply:
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return _read(response)

    def line(self) -> bytes:
        """What comes up to the end of a line."""
        read = b""
        while not read.endswith(b"\n") and (more := self.socket.recv(1)):
            read += more
        return read

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        read = b""
        try:
            while more := self.socket.recv(65_536):
                read += more
        except ConnectionResetError:
            pass
        return read

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *failure: object) -> None:
        self.socket.close()
