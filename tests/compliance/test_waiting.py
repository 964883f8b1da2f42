"""Long polls: a receive that waits for what comes."""

import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

from tests.compliance.broker import ServedBroker
from tests.compliance.marks import json_only
from tests.compliance.queue import Make, Queue


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


@json_only
def test_a_wait_ends_when_a_message_comes(queue: Queue) -> None:
    timer = Timer(0.2, queue.send, ["hello"])
    began = time.monotonic()
    timer.start()
    bodies = queue.bodies(wait=20)
    seconds = time.monotonic() - began
    timer.join()
    assert bodies == ["hello"]
    assert 0.1 < seconds < 10


@json_only
def test_a_wait_ends_by_itself(sqs: Any, queue: Queue) -> None:
    reply, seconds = timed(lambda: sqs.receive_message(QueueUrl=queue.url, WaitTimeSeconds=1))
    assert "Messages" not in reply
    assert 0.95 < seconds < 5


def test_what_is_there_is_not_waited_for(queue: Queue) -> None:
    queue.send_batch("a", "b")
    bodies, seconds = timed(lambda: queue.bodies(10, wait=20))
    assert bodies == ["a", "b"]
    assert seconds < 5


@json_only
def test_the_wait_of_a_queue(sqs: Any, make: Make) -> None:
    queue = make(ReceiveMessageWaitTimeSeconds="1")
    _, seconds = timed(lambda: sqs.receive_message(QueueUrl=queue.url))
    assert 0.95 < seconds < 5
    queue.set(ReceiveMessageWaitTimeSeconds="20")
    _, seconds = timed(lambda: sqs.receive_message(QueueUrl=queue.url, WaitTimeSeconds=0))
    assert seconds < 10


@json_only
def test_a_wait_ends_with_a_delay_or_a_timeout(make: Make) -> None:
    delayed, timed_out = make(), make()
    delayed.send("late", DelaySeconds=1)
    timed_out.send("back")
    timed_out.one(VisibilityTimeout=1)
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(timed, lambda: delayed.bodies(wait=20))
        back = pool.submit(timed, lambda: timed_out.bodies(wait=20))
        for result, body in ((late, "late"), (back, "back")):
            bodies, seconds = result.result(30)
            assert bodies == [body]
            assert seconds < 5


@json_only
def test_those_who_wait_take_turns(queue: Queue) -> None:
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(queue.bodies, 1, 20) for _ in range(4)]
        for body in "abcd":
            queue.send(body)
        assert sorted(body for each in waiting for body in each.result(30)) == list("abcd")


@json_only
def test_a_wait_on_fifo_ends_when_the_group_is_free(fifo: Queue) -> None:
    for body in ("a", "b"):
        fifo.send(body, MessageGroupId="g", MessageDeduplicationId=body)
    first = fifo.one()
    timer = Timer(0.2, fifo.delete, [first])
    timer.start()
    bodies, seconds = timed(lambda: fifo.bodies(wait=20))
    timer.join()
    assert bodies == ["b"]
    assert seconds < 5


@json_only
def test_who_hangs_up_takes_nothing_along(broker: ServedBroker, queue: Queue) -> None:
    """A client that is gone must not get the next message, which would then be hidden."""
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port)
        body = json.dumps({"QueueUrl": queue.url, "WaitTimeSeconds": 20})
        headers = {
            "X-Amz-Target": "AmazonSQS.ReceiveMessage",
            "Content-Type": "application/x-amz-json-1.0",
        }
        connection.request("POST", "/", body, headers)
        connection.close()
    for _ in range(20):  # turns in which the broker reads the ends of the connections
        queue.counts()
    queue.send("for the living")
    assert queue.bodies(wait=5) == ["for the living"]
