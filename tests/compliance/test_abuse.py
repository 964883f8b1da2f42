"""Whatever is sent: a refusal at most, and nobody else notices."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Queue
from tests.compliance.raw import JSON_TYPE, Wire, json_call, request

MIB = 1024 * 1024
IDLE_CONNECTIONS = 1000


@pytest.fixture
def protocol() -> str:
    """Of the client that looks on."""
    return "json"


@pytest.fixture(autouse=True)
def witness(queue: Queue) -> Iterator[None]:
    """Somebody else, who must not notice."""
    queue.send("before")
    yield
    queue.send("after")
    assert queue.drain()[0] == "before"


def head(body: bytes, *, version: str = "1.1", action: str = "ListQueues", **more: str) -> bytes:
    """The head of a JSON call; further headers by their names with underscores."""
    lines = [f"POST / HTTP/{version}", "Host: localhost", f"X-Amz-Target: AmazonSQS.{action}"]
    if "Transfer_Encoding" not in more:
        more.setdefault("Content_Length", str(len(body)))
    more.setdefault("Content_Type", JSON_TYPE)
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods(broker: ServedBroker, queue: Queue, method: str) -> None:
    for path in ("/", "/000000000000/" + queue.name):
        reply = request(broker, method, path)
        assert 400 <= reply.status < 500 or (method == "OPTIONS" and reply.status < 300)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing/here/at/all",
        "/../../etc/passwd",
        "//",
        "/%00",
        "/%ff%fe",
        "/000000000000/",
        "/" + "a" * 10_000,
        "/?",
        "/?" + "a=b&" * 5_000,
        "/?Action=ListQueues&MaxResults=" + "9" * 5_000,
        "/favicon.ico",
    ],
)
def test_odd_paths(broker: ServedBroker, path: str) -> None:
    for method in ("GET", "POST"):
        assert 200 <= request(broker, method, path).status < 500


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # someone tries TLS
        b"NEXO not HTTP\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_http(broker: ServedBroker, data: bytes) -> None:
    with Wire(broker) as wire:
        try:
            wire.send(data)
            wire.socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError, OSError):
            return  # it was hung up on in the middle, which is an answer
        answer = wire.rest()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:100]


def test_http_1_0(broker: ServedBroker) -> None:
    with Wire(broker) as wire:
        wire.send(head(b"{}", version="1.0") + b"{}")
        answer = wire.rest()  # the connection ends with the reply
    assert b" 200 " in answer.split(b"\r\n")[0]
    assert b"x-amzn-requestid" in answer.lower()


def test_one_connection_for_many_calls(broker: ServedBroker) -> None:
    with Wire(broker) as wire:
        for _ in range(50):
            wire.send(head(b"{}") + b"{}")
            assert wire.reply().status == 200


def test_pipelining(broker: ServedBroker, queue: Queue) -> None:
    """Replies come in the order of the calls, one after the other."""
    bodies = [f'{{"QueueUrl": "{queue.url}", "MessageBody": "{n}"}}'.encode() for n in range(20)]
    with Wire(broker) as wire:
        wire.send(b"".join(head(body, action="SendMessage") + body for body in bodies))
        replies = b""
        while replies.count(b"MessageId") < 20:
            more = wire.socket.recv(65_536)
            assert more, replies
            replies += more
    assert replies.count(b"HTTP/1.1 200") == 20
    assert queue.drain()[1:] == [str(n) for n in range(20)]
    queue.send("before")


def test_a_body_in_chunks(broker: ServedBroker) -> None:
    with Wire(broker) as wire:
        wire.send(head(b"", Transfer_Encoding="chunked") + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")
        assert wire.reply().status == 200


def test_a_client_that_asks_first(broker: ServedBroker) -> None:
    """`Expect: 100-continue`, as curl does with large bodies."""
    with Wire(broker) as wire:
        wire.send(head(b"{}", Expect="100-continue"))
        assert b" 100 " in wire.line()
        assert wire.line() == b"\r\n"
        wire.send(b"{}")
        assert wire.reply().status == 200


def test_half_a_body(broker: ServedBroker, queue: Queue) -> None:
    """What is cut off is neither answered nor carried out, also if it could be read as a whole."""
    body = f'{{"QueueUrl": "{queue.url}", "MessageBody": "half"}}'.encode()
    sent = head(body + b" ", action="SendMessage") + body
    for missing in (1, 20, len(body) + 1, len(sent) - 40):
        with Wire(broker) as wire:
            wire.send(sent[: len(sent) + 1 - missing])
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.rest() == b""
    assert queue.counts() == (1, 0, 0), "there is more than what was there before"


def test_slow_bodies_hold_nobody_up(broker: ServedBroker, queue: Queue) -> None:
    slow = [Wire(broker) for _ in range(50)]
    try:
        for wire in slow:
            wire.send(head(b"{}"))
        began = time.monotonic()
        for number in range(10):
            queue.send(str(number))
        assert time.monotonic() - began < 5
        for wire in slow:
            wire.send(b"{")
        for wire in slow:
            wire.send(b"}")
            assert wire.reply().status == 200
    finally:
        for wire in slow:
            wire.socket.close()
    assert queue.drain() == ["before", *map(str, range(10))]
    queue.send("before")


def test_bodies_too_large_to_be_meant(broker: ServedBroker) -> None:
    """Refused by their length, or as soon as they have grown too long."""
    with Wire(broker) as wire:
        began = time.monotonic()
        wire.send(head(b"", action="SendMessage", Content_Length=str(10**12)) + b"{")
        assert 400 <= wire.reply().status < 500
        assert time.monotonic() - began < 5  # its length says enough
    chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
    with Wire(broker) as wire:
        wire.send(head(b"", action="SendMessage", Transfer_Encoding="chunked"))
        try:
            for _ in range(64):
                wire.send(chunk)
            wire.send(b"0\r\n\r\n")
            status = wire.reply().status
        except (BrokenPipeError, ConnectionResetError):
            return  # hung up on in the middle
        assert 400 <= status < 500


def test_messages_too_large(broker: ServedBroker, queue: Queue) -> None:
    for size in (MIB + 1, 2 * MIB, 3 * MIB):
        call = {"QueueUrl": queue.url, "MessageBody": "x" * size}
        reply = json_call(broker, "SendMessage", call)
        assert 400 <= reply.status < 500
    # Escapes count six bytes on the wire and one in the message.
    escapes = "\\u0041" * (MIB // 2)
    body = f'{{"QueueUrl": "{queue.url}", "MessageBody": "{escapes}"}}'
    assert json_call(broker, "SendMessage", body).status == 200
    assert queue.receive(2)[1]["Body"] == "A" * (MIB // 2)
    queue.sqs.purge_queue(QueueUrl=queue.url)
    queue.send("before")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"QueueNamePrefix": "' + b"\xff\xfe" + b'"}',
        b'{"QueueNamePrefix": "' + b"\xed\xa0\x80" + b'"}',  # half a pair in UTF-8
        b'{"MaxResults": NaN}',
        b'{"MaxResults": 1' + b"0" * 5_000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_odd_json(broker: ServedBroker, body: bytes) -> None:
    reply = json_call(broker, "ListQueues", body)
    assert 400 <= reply.status < 500
    assert reply.json()["__type"]


def test_a_thousand_idle_connections(broker: ServedBroker, queue: Queue) -> None:
    """Pools of SDKs keep connections open for a long time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    idle: list[Wire] = []
    try:
        for _ in range(IDLE_CONNECTIONS):
            idle.append(Wire(broker))
            idle[-1].send(head(b"{}") + b"{}")
        assert {wire.reply().status for wire in idle} == {200}
        began = time.monotonic()
        queue.send("among the idle")
        assert time.monotonic() - began < 5
        idle[0].send(head(b"{}") + b"{}")
        assert idle[0].reply().status == 200
    finally:
        for wire in idle:
            wire.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_at_once(queue: Queue) -> None:
    """Threads of one client, as in a web application."""
    barrier = threading.Barrier(16)

    def work(number: int) -> str:
        barrier.wait(20)
        return str(queue.send(f"{number}")["MessageId"])

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(work, range(16)))) == 16
    queue.sqs.purge_queue(QueueUrl=queue.url)
    queue.send("before")


def test_logs_hold_no_traceback(broker: ServedBroker) -> None:
    """What strangers send is no error of the broker."""
    assert "Traceback" not in broker.log.read_text()
