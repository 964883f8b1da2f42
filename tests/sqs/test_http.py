"""HTTP as it comes over the wire: requests in a row, bodies in pieces, all kinds of answers."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.http.front import Front
from nexo.doors.http.server import HttpDoor
from nexo.testing import Broker, broker
from nexo.vocabulary.limits import HTTP_TURN_REQUESTS
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine
    from tests.sqs.calling import Door

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def sent(action: str, **wanted: Any) -> bytes:
    body = json.dumps(wanted).encode()
    return (
        b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.%b\r\nContent-Length: %d\r\n\r\n%b"
        % (action.encode(), len(body), body)
    )


def answers(client: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status and body of so many answers, in their order."""
    found: list[tuple[int, bytes]] = []
    buffer = b""
    while len(found) < count:
        head, end, rest = buffer.partition(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if end and len(rest) >= length:
            found.append((int(head.split()[1]), rest[:length]))
            buffer = rest[length:]
            continue
        part = client.recv(65_536)
        assert part, f"closed after {len(found)} answers: {buffer!r}"
        buffer += part
    assert not buffer
    return found


# -- Requests in a row ----------------------------------------------------------------------------


def test_requests_in_a_row_are_answered_in_their_order(door: Door) -> None:
    """Some at once, some when the disk has them, some by a task: each waits for those before."""
    door.json("CreateQueue", QueueName="q")
    with door.connect() as client:
        client.sendall(
            sent("SendMessage", QueueUrl="q", MessageBody="a")
            + HEALTH
            + sent("GetQueueUrl", QueueName="q")
            + sent("ReceiveMessage", QueueUrl="q")
            + sent("ReceiveMessage", QueueUrl="q", WaitTimeSeconds=1)
            + sent("Nonsense")
            + sent("SendMessage", QueueUrl="q", MessageBody="b")
        )
        found = answers(client, 7)
    assert [status for status, _ in found] == [200, 200, 200, 200, 200, 404, 200]
    told = [body for _, body in found]
    assert b"MessageId" in told[0]
    assert told[1] == b'{"status":"ok"}'
    assert b"QueueUrl" in told[2]
    assert json.loads(told[3])["Messages"][0]["Body"] == "a"
    assert told[4] == b"{}"
    assert b"MD5OfMessageBody" in told[6]


def test_very_many_in_a_row(door: Door) -> None:
    """They neither fill the stack nor keep others waiting for all of them."""
    count = 50 * HTTP_TURN_REQUESTS
    with door.connect() as client, door.connect() as other:
        client.sendall(HEALTH * count)
        other.sendall(HEALTH)
        assert answers(other, 1) == [(200, b'{"status":"ok"}')]
        assert answers(client, count) == [(200, b'{"status":"ok"}')] * count


def test_nonsense_behind_a_request(door: Door) -> None:
    with door.connect() as client:
        client.sendall(HEALTH)
        assert answers(client, 1)[0][0] == 200
        client.sendall(b"\x16\x03\x01\x02\x00")
        assert client.recv(1_000).startswith(b"HTTP/1.1 400 ")
        assert client.recv(1_000) == b""


# -- Bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_body_in_pieces(door: Door, size: int) -> None:
    door.json("CreateQueue", QueueName="q")
    whole = sent("SendMessage", QueueUrl="q", MessageBody="x" * size)
    with door.connect() as client:
        for _ in range(2):
            for start in range(0, len(whole), 1 + len(whole) // 20):
                client.sendall(whole[start : start + 1 + len(whole) // 20])
            assert answers(client, 1)[0][0] == 200
    assert len(door.json("ReceiveMessage", QueueUrl="q").json["Messages"][0]["Body"]) == size


def test_a_chunked_body_with_trailers(door: Door) -> None:
    """What comes behind the body is nobody's header, however much it is."""
    body = b'{"QueueName":"q"}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\n"
    chunks = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    trailers = b"X-Amz-Target: AmazonSQS.DeleteQueue\r\n" * 500
    with door.connect() as client:
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + trailers + b"\r\n")
        client.sendall(sent("GetQueueUrl", QueueName="q"))
        assert [status for status, _ in answers(client, 2)] == [200, 200]


def test_who_asks_before_sending_a_body_is_told_to_go_on(door: Door) -> None:
    body = b'{"QueueName":"q"}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\n"
    with door.connect() as client:
        client.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert client.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert answers(client, 1)[0][0] == 200


# -- The end of a connection ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ],
)
def test_who_wants_one_answer_gets_one(door: Door, request_: bytes) -> None:
    with door.connect() as client:
        client.sendall(request_)
        answer = b""
        while part := client.recv(1_000):
            answer += part
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b'"ok"}')


def test_a_head_without_its_body(door: Door) -> None:
    with door.connect() as client:
        client.sendall(HEALTH.replace(b"GET", b"HEAD") + HEALTH)
        answer = b""
        while not answer.endswith(b'"ok"}'):
            answer += client.recv(1_000)
    assert answer.count(b"content-length: 15") == 2
    assert answer.count(b'"ok"}') == 1


# -- ASGI apps ------------------------------------------------------------------------------------


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, is_more = b"", True
    while is_more:
        event = await receive()
        body += event.get("body", b"")
        is_more = event.get("more_body", False)
    head = [(b"Content-Length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def stream(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"one ", b"", b"two"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("a bug")


async def torn(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ValueError("a bug")


async def silent(scope: Any, receive: Any, send: Any) -> None:
    pass


async def split(scope: Any, receive: Any, send: Any) -> None:
    head = [(b"x", b"a\r\nset-cookie: b")]
    await send({"type": "http.response.start", "status": 200, "headers": head})


GONE: list[str] = []


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    GONE.append((await receive())["type"])


class Nothing:
    def begin(self, exchange: Any) -> None:
        raise ValueError("a bug")


APPS: Any = {
    "/echo": echo,
    "/stream": stream,
    "/broken": broken,
    "/torn": torn,
    "/silent": silent,
    "/split": split,
    "/waiting": waiting,
}


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def port(running: Broker) -> Iterator[int]:
    doors: list[HttpDoor] = []

    async def open_(_: Engine) -> int:
        doors.append(HttpDoor(Front(Nothing(), APPS, lambda: None)))
        return await doors[0].open("127.0.0.1", 0)

    yield running.call(open_)
    running.call(lambda _: doors[0].close())


def ask(port: int, request: bytes, until: bytes = b"") -> bytes:
    """What is answered until it ends so, or the connection does."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(request)
        answer = b""
        while not (until and answer.endswith(until)) and (part := client.recv(65_536)):
            answer += part
    return answer


def test_apps_read_bodies_and_answer(port: int) -> None:
    body = b"x" * 200_000
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = ask(port, head + body, until=b"x" * 1_000)
    assert answer.startswith(b"HTTP/1.1 201 Created\r\ndate: ")
    assert b"\r\ncontent-length: 200000\r\n\r\nx" in answer


def test_apps_stream_in_chunks(port: int) -> None:
    answer = ask(port, b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", until=b"0\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked\r\n" in answer
    assert answer.endswith(b"\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")
    old = ask(port, b"GET /stream HTTP/1.0\r\nHost: a\r\n\r\n")
    assert old.endswith(b"\r\nconnection: close\r\n\r\none two")


@pytest.mark.parametrize("path", [b"/broken", b"/silent", b"/split", b"/"])
def test_an_app_that_fails(port: int, path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(port, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"bug" not in answer
    assert b"set-cookie" not in answer
    assert "a request failed" in caplog.messages


def test_an_app_that_fails_in_the_middle_of_its_answer(port: int) -> None:
    """The connection ends before the answer does, so that nobody takes it for whole."""
    answer = ask(port, b"GET /torn HTTP/1.1\r\nHost: a\r\n\r\n")
    assert not answer.endswith(b"0\r\n\r\n")


def test_apps_are_told_who_hung_up(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"GET /waiting HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually(lambda: bool(GONE))
    assert GONE == ["http.disconnect"]
