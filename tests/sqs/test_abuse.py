"""Who sends too much, too slowly or nonsense is sent away, and nobody else notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.doors.http import crowd
from nexo.doors.sqs_http import app, request
from nexo.vocabulary.limits import HTTP_HEAD_BYTES_MAX

if TYPE_CHECKING:
    from tests.sqs.calling import Door


def test_endless_head(door: Door) -> None:
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
        filler = b"X-Filler: " + b"x" * 1_000 + b"\r\n"
        reply = b""
        try:
            for _ in range(2 * HTTP_HEAD_BYTES_MAX // len(filler)):
                client.sendall(filler)
            reply = client.recv(1_000)
        except ConnectionError:
            return  # it hung up before everything was sent
        assert reply.startswith(b"HTTP/1.1 431 ") or reply == b""


def test_slow_head(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost:")
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")
        assert client.recv(1_000) == b""


def test_silence(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)
    with door.connect() as client:
        assert client.recv(1_000) == b""


def test_slow_body(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "SQS_BODY_S", 0.2)
    with door.connect() as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")


def test_large_body(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SQS_BODY_BYTES_MAX", 1_000)
    answer = door.json("SendMessage", QueueUrl="q", MessageBody="x" * 1_000)
    assert (answer.status, answer.json["__type"].rpartition("#")[2]) == (
        413,
        "RequestEntityTooLarge",
    )


def test_slow_head_of_a_second_request(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    with door.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while not answer.endswith(b'"ok"}'):
            answer += client.recv(1_000)
        monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)
        client.sendall(b"GET /health HT")
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "SerializationException"),
        (b"[]", "SerializationException"),
        (b'{"QueueName": 7}', "SerializationException"),
        (b'{"QueueName": "\xff"}', "SerializationException"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "SerializationException"),
        (b"", "MissingRequiredParameterException"),
        (b"{}", "MissingRequiredParameterException"),
    ],
)
def test_nonsense(door: Door, body: bytes, code: str) -> None:
    answer = door.ask("POST", "/", body, {"X-Amz-Target": "AmazonSQS.CreateQueue"})
    assert (answer.status, answer.json["__type"].rpartition("#")[2]) == (400, code)


def test_unknown_actions(door: Door) -> None:
    assert door.json("MakeCoffee").json["__type"].endswith("#UnknownOperationException")
    assert b"<Code>InvalidAction</Code>" in door.query(Action="MakeCoffee").body
