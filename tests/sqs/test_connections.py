"""Connections: who keeps us waiting is sent away, and the others do not notice."""

from __future__ import annotations

import gc
import logging
import socket
import time
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.http import connection, crowd
from nexo.doors.http.crowd import Crowd
from nexo.doors.http.exchange import Exchange
from nexo.doors.sqs_http import app
from nexo.vocabulary.limits import (
    DESCRIPTORS_RESERVED,
    HTTP_BODY_S,
    HTTP_HEAD_BYTES_MAX,
    HTTP_HEAD_S,
    HTTP_HEADERS_MAX,
    HTTP_IDLE_S,
    HTTP_LEAVING_S,
    HTTP_UNREAD_S,
)
from tests.access.guarded import GuardedBroker
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sqs.calling import Door

TARGET = b"Host: a\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"


def to_the_end(client: socket.socket) -> bytes:
    """What is said until the other side closes; the time limit of the socket watches for that."""
    said = b""
    while part := client.recv(65_536):
        said += part
    return said


def is_cut_off(client: socket.socket, data: bytes) -> bool:
    """Send again and again, until that fails."""
    for _ in range(1_000):
        try:
            client.sendall(data)
        except ConnectionError:
            return True
        time.sleep(0.01)
    return False


# -- Requests that are answered before they are whole ---------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[GuardedBroker]:
    """All that a broker serves over HTTP."""
    running = GuardedBroker(access="development")
    yield running
    running.stop()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n" + TARGET, b"413"),
        (b"POST / HTTP/1.1\r\nHost: a\r\n", b"413"),
        (b"POST /health HTTP/1.1\r\nHost: a\r\n", b"200"),
        (b"POST /console/nothing HTTP/1.1\r\nHost: a\r\n", b"404"),  # by the way of ASGI
        (b"DELETE /api/v1/queues HTTP/1.1\r\nHost: a\r\n", b"405"),
        (b"PUT /metrics HTTP/1.1\r\nHost: a\r\n", b"405"),
    ],
)
def test_a_body_that_nobody_reads_ends_the_connection(
    served: GuardedBroker, head: bytes, status: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", served.ports.http), 10) as client:
        client.sendall(head + b"Content-Length: 99999999\r\n\r\n")
        answer = to_the_end(client)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nconnection: close\r\n" in answer


def test_who_is_refused_can_read_why_while_sending(door: Door) -> None:
    """Were the connection closed at once, the system would drop the answer with what it did not
    read, and the client would try again."""
    body = b"x" * 20_000_000
    answer = door.ask("POST", "/", body, {"X-Amz-Target": "AmazonSQS.ListQueues"})
    assert answer.status == 413


def test_a_refused_client_that_goes_on_is_cut_off(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "HTTP_LEAVING_S", 0.1)
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + TARGET + b"Content-Length: 99999999\r\n\r\n")
        to_the_end(client)
        assert is_cut_off(client, b"x" * 1_000)


# -- Time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"{"])
def test_a_body_that_never_comes(door: Door, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(app, "SQS_BODY_S", 0.1)
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + TARGET + b"Content-Length: 10\r\n\r\n" + begun)
        assert to_the_end(client).startswith(b"HTTP/1.1 408 ")


def test_no_body_outlasts_the_limit_for_all(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its app allows."""
    monkeypatch.setattr(crowd, "HTTP_BODY_S", 0.1)
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + TARGET + b"Content-Length: 10\r\n\r\n{")
        assert to_the_end(client).startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HTTP_IDLE_S", 0.1)
    with door.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert to_the_end(client).endswith(b'"ok"}')


def test_a_long_poll_is_not_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    door.json("CreateQueue", QueueName="q")
    ask = b'{"QueueUrl":"q","WaitTimeSeconds":2}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with door.connect() as client:
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(ask) + ask)
        eventually(lambda: door.broker.call(lambda engine: len(engine.queue("q").room)) == 1)
        for limit in ("HEAD", "BODY", "IDLE", "UNREAD"):
            monkeypatch.setattr(crowd, f"HTTP_{limit}_S", 0.1)
        assert client.recv(1_000).startswith(b"HTTP/1.1 200 ")


def test_an_answer_that_is_not_read(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HTTP_UNREAD_S", 0.1)
    door.json("CreateQueue", QueueName="q")
    for _ in range(10):
        door.json("SendMessage", QueueUrl="q", MessageBody="x" * 1_000_000)
    ask = b'{"QueueUrl":"q","VisibilityTimeout":0}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(10)
        client.connect(door.address)
        whole = head + b"Content-Length: %d\r\n\r\n" % len(ask) + ask
        assert is_cut_off(client, whole)


# -- Size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filler",
    [
        b"X: " + b"y" * (HTTP_HEAD_BYTES_MAX + 1) + b"\r\n",
        b"a:b\r\n" * (HTTP_HEADERS_MAX + 1),
    ],
    ids=["long", "many"],
)
def test_a_head_that_comes_in_one_piece(door: Door, filler: bytes) -> None:
    with door.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n" + filler + b"\r\n")
        assert to_the_end(client).startswith(b"HTTP/1.1 431 ")


def test_a_long_body_is_no_head(door: Door) -> None:
    door.json("CreateQueue", QueueName="q")
    body = b'{"QueueUrl":"q","MessageBody":"' + b"x" * 3 * HTTP_HEAD_BYTES_MAX + b'"}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
    with door.connect() as client:
        for _ in range(3):
            client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert client.recv(10_000).startswith(b"HTTP/1.1 200 ")
            client.sendall(b"GET /health HT")
            time.sleep(0.05)
            client.sendall(b"TP/1.1\r\nHost: a\r\n\r\n")
            answer = b""
            while not answer.endswith(b'"ok"}'):
                answer += client.recv(10_000)


def test_an_endless_head_behind_a_long_poll(door: Door) -> None:
    door.json("CreateQueue", QueueName="q")
    ask = b'{"QueueUrl":"q","WaitTimeSeconds":20}'
    head = b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with door.connect() as client:
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(ask) + ask)
        client.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(10 * HTTP_HEAD_BYTES_MAX // 1_000):  # more than one read brings
            client.sendall(b"X: " + b"y" * 1_000 + b"\r\n")
        assert to_the_end(client).startswith(b"HTTP/1.1 431 ")


# -- Memory ---------------------------------------------------------------------------------------


def test_an_app_is_not_asked_for_who_has_left() -> None:
    """As while a node asks others what a page is to show."""
    left: Any = SimpleNamespace(peer="127.0.0.1", scheme="http")
    exchange = Exchange(left, "GET", b"/console", "/console", b"", {})
    exchange.lose()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody waits for it")

    exchange.run(app)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Any]]]:
    """What the door makes for connections and requests, without a collector to clear up."""
    made: list[weakref.ref[Any]] = []

    def noted(of: connection.HttpConnection, *given: Any) -> Exchange:
        exchange = Exchange(of, *given)
        made.extend((weakref.ref(exchange), weakref.ref(of)))
        return exchange

    monkeypatch.setattr(connection, "Exchange", noted)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


def test_nothing_is_left_of_a_connection(door: Door, seen: list[weakref.ref[Any]]) -> None:
    """In a circle of references it would stay until the next collection, which is rare."""
    door.json("CreateQueue", QueueName="q", Attributes={"DelaySeconds": "0"})
    door.ask("GET", "/health")
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + TARGET + b"Content-Length: 1000\r\n\r\n{")
        time.sleep(0.1)
    eventually(lambda: len(seen) == 6 and not any(each() for each in seen))


# -- When there is no room ------------------------------------------------------------------------


class Somebody:
    """A connection, as the crowd sees it."""

    def __init__(self, crowd: Crowd, table: str, since_s: float) -> None:
        self.crowd = crowd
        self.fate = ""
        self.table = getattr(crowd, table)
        self.table[self] = since_s

    def late(self, table: Any) -> None:
        self.fate = "late"

    def cut_off(self) -> None:
        self.fate = "cut off"
        del self.table[self]


def full(now_s: float, *waiting: tuple[str, float]) -> tuple[bool, list[str]]:
    """Whether one more is admitted, and what becomes of those who wait; with their times."""
    crowd = Crowd(descriptors=200)
    there = [Somebody(crowd, table, since_s) for table, since_s in waiting]
    return crowd.admit(199, now_s), [each.fate for each in there]


def test_who_stalls_the_longest_makes_room() -> None:
    assert full(10, ("head", 1), ("head", 2), ("idle", 0)) == (True, ["cut off", "", ""])
    assert full(10, ("body", 3), ("idle", 0)) == (True, ["cut off", ""])
    assert full(10, ("idle", 1), ("idle", 2), ("head", 9.9)) == (True, ["cut off", "", ""])
    assert full(10, ("leaving", 8), ("head", 1)) == (True, ["cut off", ""])


def test_without_room_the_new_one_is_refused() -> None:
    assert full(10) == (False, []), "all are being answered"
    assert full(10, ("head", 9.9)) == (False, [""]), "it has just come, like everybody in a rush"


def test_descriptors_are_kept_back() -> None:
    crowd = Crowd(descriptors=1_000)
    most = (1_000 - DESCRIPTORS_RESERVED) * 3 // 4
    assert crowd.admit(most - 1, 0)
    assert not crowd.admit(most, 0)


def test_only_who_is_late_is_looked_at() -> None:
    limits = {
        "head": HTTP_HEAD_S,
        "body": HTTP_BODY_S,
        "idle": HTTP_IDLE_S,
        "unread": HTTP_UNREAD_S,
        "leaving": HTTP_LEAVING_S,
    }
    crowd = Crowd(descriptors=1_000)
    late = [Somebody(crowd, table, 1_000 - limit_s) for table, limit_s in limits.items()]
    early = [Somebody(crowd, table, 1_001 - limit_s) for table, limit_s in limits.items()]
    crowd.sweep(1_000)
    assert [each.fate for each in late] == ["late"] * len(limits)
    assert [each.fate for each in early] == [""] * len(limits)
    crowd.sweep(1_001)
    assert [each.fate for each in early] == ["late"] * len(limits)


def test_refusals_are_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    crowd = Crowd(descriptors=200)
    with caplog.at_level(logging.WARNING, "nexo.http"):
        for second in range(30):
            for _ in range(1_000):
                crowd.admit(199, second)
            crowd.malformed += 100
            crowd.sweep(second)
    told = [vars(each) for each in caplog.records if "connections" in each.message]
    assert [each["refused"] for each in told] == [1_000, 10_000, 10_000]
    assert len(caplog.records) == 6
