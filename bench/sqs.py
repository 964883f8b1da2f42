"""The SQS door as its clients find it: raw HTTP connections in a process of their own, everything
synchronized before it is confirmed. What is measured is the door, so the client does as little as
a client can: it sends bytes that were made before, and looks only for what it needs of an answer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench import sqs_peers, sqs_waiting
from bench.result import Result
from bench.rpc import ROUNDS, SECONDS, running_broker, together
from bench.servers import kept_on
from nexo.engine import process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from bench.rpc import RunningBroker

CONNECTIONS = 32
BATCH = 10
POLLERS = 1_000
SETTLING_S = 5.0
POLLING_S = 20.0  # everyone asks again once
BODY = "x" * 100
# Messages a second at least, and microseconds of CPU for each at most.
BARS: dict[str, tuple[float, float | None]] = {
    "SendMessage": (22e3, 40),
    "ReceiveMessage and DeleteMessage": (10e3, 90),
    "SendMessageBatch": (100e3, None),
}
SENDS_ALONE = 2_000
_QUEUE = "bench"
_HANDLE, _QUOTE = b'"ReceiptHandle":"', b'"'


def run(directory: Path) -> Iterator[Result]:
    print(f"      journal {kept_on(directory)}", flush=True)
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for what, rate, cpu_us in _round(directory):
            rates.setdefault(what, []).append(rate)
            costs.setdefault(what, []).append(cpu_us)
    for what, (bar, cost_bar) in BARS.items():
        name = f"{what}, {CONNECTIONS} connections"
        unit = "pairs/s" if " and " in what else "msg/s"
        yield Result(name, max(rates[what]), unit, bar)
        cpu = f"{what}: CPU of the broker"
        yield Result(cpu, min(costs[what]), "us/msg", cost_bar, "most")
    alone_ms = min(_alone(directory) for _ in range(ROUNDS))
    yield Result("SendMessage, one at a time: p50", alone_ms, "ms", 0.7, "most")
    yield _pollers(directory)
    yield from sqs_waiting.run(directory)
    yield from sqs_peers.run(directory, directory.parent / "installed")
    shutil.rmtree(directory, ignore_errors=True)


def _round(directory: Path) -> list[tuple[str, float, float]]:
    """Singles in, the same singles out, and batches in: a second, and CPU of each."""
    with running_broker(directory) as broker:
        port = broker.ports.http
        _call(port, "CreateQueue", {"QueueName": _QUEUE})
        return [
            ("SendMessage", *_measure(broker, _send, port)),
            ("ReceiveMessage and DeleteMessage", *_measure(broker, _receive, port)),
            ("SendMessageBatch", *_measure(broker, _send_batches, port)),
        ]


def _measure(broker: RunningBroker, work: Callable[[int], Any], port: int) -> tuple[float, float]:
    before_s, _ = broker.usage()
    ((count, seconds),) = together((work, (port,)))
    after_s, _ = broker.usage()
    return count / seconds, (after_s - before_s) / max(1, count) * 1e6


# -- The clients ----------------------------------------------------------------------------------


def _send(port: int) -> tuple[int, float]:
    request = _request("SendMessage", {"QueueUrl": _QUEUE, "MessageBody": BODY})

    async def work(client: _Client) -> int:
        await client.ask(request)
        return 1

    return process.run(_together(port, work))


def _send_batches(port: int) -> tuple[int, float]:
    entries = [{"Id": str(number), "MessageBody": BODY} for number in range(BATCH)]
    request = _request("SendMessageBatch", {"QueueUrl": _QUEUE, "Entries": entries})

    async def work(client: _Client) -> int:
        await client.ask(request)
        return BATCH

    return process.run(_together(port, work))


def _receive(port: int) -> tuple[int, float]:
    request = _request("ReceiveMessage", {"QueueUrl": _QUEUE})

    async def work(client: _Client) -> int:
        answer = await client.ask(request)
        at = answer.find(_HANDLE)
        if at < 0:
            return 0
        at += len(_HANDLE)
        handle = answer[at : answer.index(_QUOTE, at)].decode()
        wanted = {"QueueUrl": _QUEUE, "ReceiptHandle": handle}
        await client.ask(_request("DeleteMessage", wanted))
        return 1

    return process.run(_together(port, work))


def _alone(directory: Path) -> float:
    """Half of the sends of one client that waits for each answer took no longer, in ms."""
    with running_broker(directory) as broker:
        port = broker.ports.http
        _call(port, "CreateQueue", {"QueueName": _QUEUE})
        return process.run(_sending_alone(port))


async def _sending_alone(port: int) -> float:
    client = await _Client.connect(port)
    request = _request("SendMessage", {"QueueUrl": _QUEUE, "MessageBody": BODY})
    took_ms = []
    for _ in range(SENDS_ALONE):
        started = perf_counter()
        await client.ask(request)
        took_ms.append((perf_counter() - started) * 1000)
    return median(took_ms)


async def _together(port: int, work: Callable[[_Client], Awaitable[int]]) -> tuple[int, float]:
    """Everybody works for a while: what they did, and how long it took."""
    clients = [await _Client.connect(port) for _ in range(CONNECTIONS)]
    started = perf_counter()
    ending = started + SECONDS

    async def go_on(client: _Client) -> int:
        done = 0
        while perf_counter() < ending:
            done += await work(client)
        return done

    counts = await asyncio.gather(*[go_on(client) for client in clients])
    return sum(counts), perf_counter() - started


class _Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, port: int) -> _Client:
        _, client = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        at = head.index(b"content-length: ") + 16
        if len(body) >= int(head[at : head.find(b"\r", at) if b"\r" in head[at:] else None]):
            assert head.startswith(b"HTTP/1.1 200"), self._buffer
            self._buffer = b""
            assert self._answer is not None
            if not self._answer.done():  # a poll that was given up at the end
                self._answer.set_result(body)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer


def _request(action: str, wanted: dict[str, Any]) -> bytes:
    body = json.dumps(wanted).encode()
    return (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\nAuthorization: AWS4-HMAC-SHA256 "
        "Credential=nexo/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _call(port: int, action: str, wanted: dict[str, Any]) -> bytes:
    async def call() -> bytes:
        client = await _Client.connect(port)
        return await client.ask(_request(action, wanted))

    return process.run(call())


# -- Those who only wait --------------------------------------------------------------------------


def _pollers(directory: Path) -> Result:
    with running_broker(directory) as broker:
        _call(broker.ports.http, "CreateQueue", {"QueueName": _QUEUE})
        share = process.run(_polling(broker))
    return Result(f"{POLLERS:,} long polls waiting", share * 100, "% of a core", 2, "most")


async def _polling(broker: RunningBroker) -> float:
    """What share of a core the broker takes while all of them wait, and ask again."""
    request = _request("ReceiveMessage", {"QueueUrl": _QUEUE, "WaitTimeSeconds": 20})
    clients = [await _Client.connect(broker.ports.http) for _ in range(POLLERS)]

    async def poll(client: _Client, first_s: float) -> None:
        await asyncio.sleep(first_s)  # not all at the same moment: clients come one by one
        while True:
            await client.ask(request)

    polls = [
        asyncio.ensure_future(poll(client, number * SETTLING_S / POLLERS))
        for number, client in enumerate(clients)
    ]
    await asyncio.sleep(SETTLING_S)
    (before_s, _), began = broker.usage(), perf_counter()
    await asyncio.sleep(POLLING_S)
    share = (broker.usage()[0] - before_s) / (perf_counter() - began)
    for each in polls:
        each.cancel()
    return share
