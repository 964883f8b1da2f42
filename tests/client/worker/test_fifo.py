"""A worker on a FIFO queue: nothing of a group overtakes a message that failed."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from nexo.client.worker.batch import sort
from nexo.client.worker.invocation import Verdict
from tests.client.eventually import eventually

if TYPE_CHECKING:
    import nexo


def test_after_a_failure_the_rest_of_the_group_goes_back(client: nexo.Client) -> None:
    queue = client.create_queue("q.fifo", fifo=True)
    bodies = ["a1", "b1", "a2", "b2", "a3"]
    queue.push_batch(bodies, group_id=[body[0] for body in bodies])
    batch = list(queue.pop_batch(10))
    failed = next(each for each in batch if each.text == "a2")
    found = sort(batch, Verdict({failed.id: "no"}), fifo=True)
    assert sorted(each.text for each in found.done) == ["a1", "b1", "b2"]
    assert [each.text for each in found.failed["no"]] == ["a2"]
    assert [each.text for each in found.behind] == ["a3"]
    assert not sort(batch, Verdict({failed.id: "no"}), fifo=False).behind


def test_order_holds_through_failures(client: nexo.Client, work: Any) -> None:
    """Each message fails once, in any of several slots. What the handler let pass of a group
    before and up to its first failure is in order, without a gap."""
    queue = client.create_queue("q.fifo", fifo=True, max_attempts=None)
    groups, length = "abcdef", 20
    for number in range(length):
        queue.push_batch([f"{group}{number}" for group in groups], group_id=list(groups))
    done: dict[str, list[int]] = defaultdict(list)
    failed: set[str] = set()
    lock = threading.Lock()

    def handle(event: Any, context: Any) -> Any:
        bad: list[str] = []
        broken: set[str] = set()
        for record in event["Records"]:
            body = record["body"]
            group = record["attributes"]["MessageGroupId"]
            with lock:
                if group in broken:
                    continue
                if body in failed:
                    done[group].append(int(body[1:]))
                    continue
                failed.add(body)
            broken.add(group)
            bad.append(record["messageId"])
        return {"batchItemFailures": [{"itemIdentifier": each} for each in bad]}

    running = work("q.fifo", handle, concurrency=3, batch_size=4)
    eventually(lambda: queue.info().depth == 0, 40)
    figures = running.stop()
    assert {group: list(range(length)) for group in groups} == done
    assert figures.handled == figures.failed == len(groups) * length
    assert figures.returned > 0
    assert figures.lost == 0


def test_what_waits_behind_a_poisoned_message_keeps_its_attempts(
    client: nexo.Client, work: Any
) -> None:
    queue = client.create_queue("q.fifo", fifo=True, max_attempts=3)
    queue.push_batch(["poison", "good", "fine"], group_id="g")
    handled: list[tuple[str, str]] = []

    def handle(event: Any, context: Any) -> Any:
        for record in event["Records"]:
            if record["body"] == "poison":
                return {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
            count = record["attributes"]["ApproximateReceiveCount"]
            handled.append((record["body"], count))
        return None

    work("q.fifo", handle)
    eventually(lambda: queue.info().acked == 2)
    assert handled == [("good", "1"), ("fine", "1")]
    eventually(lambda: queue.info().dead_lettered == 1)
    letter = client.queue("q_dlq.fifo").pop(wait=10.0)
    assert letter is not None
    assert (letter.text, letter.dead_letter and letter.dead_letter.attempts) == ("poison", 3)


def test_one_batch_of_a_group_at_a_time(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q.fifo", fifo=True)
    for number in range(60):
        queue.push(str(number), group_id="only")
    at_once = 0
    most: list[int] = []
    seen: list[int] = []
    lock = threading.Lock()

    def handle(event: Any, context: Any) -> None:
        nonlocal at_once
        with lock:
            at_once += 1
            most.append(at_once)
        seen.extend(int(record["body"]) for record in event["Records"])
        with lock:
            at_once -= 1

    work("q.fifo", handle, concurrency=4, batch_size=5)
    eventually(lambda: queue.info().depth == 0)
    assert max(most) == 1
    assert seen == list(range(60))
