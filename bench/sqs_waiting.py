"""What an SQS client waits for: a message behind a long backlog, and one that is about to come."""

from __future__ import annotations

import http.client
import json
import threading
import time
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import nexo
from bench.result import Result
from bench.rpc import ROUNDS, running_broker

if TYPE_CHECKING:
    from pathlib import Path

BACKLOG = 216_000
PAIRS = 400
POLLS = 200
_SETTLING_S = 0.01  # a poll is on its way before the push


def run(directory: Path) -> list[Result]:
    with running_broker(directory) as broker, nexo.connect(broker.url) as client:
        ratio = _backlog(client, broker.ports.http)
        took_ms = _polls(client, broker.ports.http)
    name = f"pair in a FIFO queue of {BACKLOG:,}, to one of {ROUNDS * PAIRS:,}"
    return [
        Result(name, ratio, "times", 1.3, "most"),
        Result("long poll after the push: p50", median(took_ms), "ms", 5, "most"),
    ]


class _Caller:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def __call__(self, action: str, **wanted: Any) -> Any:
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
        }
        self._connection.request("POST", "/", json.dumps(wanted), headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)

    def take(self, url: str, **wanted: Any) -> float:
        """Receive and delete one; when it was there."""
        (message,) = self("ReceiveMessage", QueueUrl=url, **wanted)["Messages"]
        came = perf_counter()
        self("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return came


def _backlog(client: nexo.Client, port: int) -> float:
    """How much longer a pair takes behind the backlog; the best of several, of both."""
    call = _Caller(port)
    url = call("CreateQueue", QueueName="bench.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue = client.queue("bench.fifo")

    def fill(name: str, count: int) -> None:
        for start in range(0, count, 1_000):
            numbers = range(start, min(count, start + 1_000))
            queue.push_batch(
                [b"x" * 100] * len(numbers),
                group_id=[f"group-{number % 1_000}" for number in numbers],
                deduplication_ids=[f"{name}-{number}" for number in numbers],
            )

    def pair_s() -> float:
        started = perf_counter()
        for _ in range(PAIRS):
            call.take(url)
        return (perf_counter() - started) / PAIRS

    fill("few", ROUNDS * PAIRS)
    few_s = min(pair_s() for _ in range(ROUNDS))
    fill("many", BACKLOG)
    return min(pair_s() for _ in range(ROUNDS)) / few_s


def _polls(client: nexo.Client, port: int) -> list[float]:
    """Milliseconds from the call of push to the answer of a poll that waited, each time."""
    call = _Caller(port)
    url = call("CreateQueue", QueueName="bench-polls")["QueueUrl"]
    queue, took_ms = client.queue("bench-polls"), []
    for _ in range(POLLS):
        came: list[float] = []
        poll = threading.Thread(
            target=lambda came=came: came.append(call.take(url, WaitTimeSeconds=10))
        )
        poll.start()
        time.sleep(_SETTLING_S)
        pushed = perf_counter()
        queue.push(b"x")
        poll.join()
        took_ms.append((came[0] - pushed) * 1000)
    return took_ms
