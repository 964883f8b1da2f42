"""What some seconds change. Each scenario sets the stage and yields; all of them wait together.

Three, not one, so that a stage is still as it was set on a machine that stands still for a second.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Make, Queue, maker
from tests.compliance.refusals import INVALID_VALUE, refused

WHILE_S = 3
A_WHILE = str(WHILE_S)
Scenario = Callable[[Make], Iterator[None]]
EXPIRED = "Value {} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."


def fill(fifo: Queue, *bodies: str, group: str = "g") -> None:
    for body in bodies:
        fifo.send(body, MessageGroupId=group, MessageDeduplicationId=body)


def the_timeout_of_the_queue(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout=A_WHILE)
    queue.send()
    first = queue.one()
    yield
    again = queue.one()
    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def the_timeout_of_a_receive(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout="43200")
    queue.send_batch("short", "long")
    queue.one(VisibilityTimeout=WHILE_S)
    queue.one()
    yield
    assert queue.bodies() == ["short"]


def a_longer_timeout(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout=A_WHILE)
    queue.send()
    message = queue.one()
    queue.change(message, 60)
    yield
    assert queue.receive() == []
    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def a_shorter_timeout(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout="60")
    queue.send()
    queue.change(queue.one(), WHILE_S)
    yield
    queue.one()
    # The timeout "reverts to the original timeout value the next time the message is received".
    assert queue.counts() == (0, 1, 0)


def a_late_delete(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout=A_WHILE)
    queue.send()
    message = queue.one()
    yield
    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def a_late_change(make: Make) -> Iterator[None]:
    queue = make(VisibilityTimeout=A_WHILE)
    queue.send()
    message = queue.one()
    yield
    queue.change(message, 30)  # AWS says yes to who is late, and the message stays in line
    assert queue.counts() == (1, 0, 0)


def a_late_delete_on_fifo(make: Make) -> Iterator[None]:
    fifo = make(fifo=True, VisibilityTimeout=A_WHILE)
    fill(fifo, "a")
    message = fifo.one()
    yield
    with refused(INVALID_VALUE, EXPIRED.format(message["ReceiptHandle"])):
        fifo.delete(message)
    again = fifo.one()
    with refused(INVALID_VALUE, EXPIRED.format(message["ReceiptHandle"])):
        fifo.delete(message)
    fifo.delete(again)
    assert fifo.counts() == (0, 0, 0)


def a_delete_in_extended_time_on_fifo(make: Make) -> Iterator[None]:
    fifo = make(fifo=True, VisibilityTimeout=A_WHILE)
    fill(fifo, "a")
    message = fifo.one()
    fifo.change(message, 60)
    yield
    fifo.delete(message)
    assert fifo.counts() == (0, 0, 0)


def order_after_a_timeout_on_fifo(make: Make) -> Iterator[None]:
    fifo = make(fifo=True, VisibilityTimeout=A_WHILE)
    fill(fifo, "a", "b", "c", "d")
    assert fifo.bodies(3) == ["a", "b", "c"]
    assert fifo.bodies() == []
    yield
    assert fifo.bodies() == ["a", "b", "c", "d"]


def one_of_a_group_held_longer(make: Make) -> Iterator[None]:
    """What stands before it in its group comes back; it, and what stands behind it, does not."""
    fifo = make(fifo=True, VisibilityTimeout=A_WHILE)
    fill(fifo, "a", "b", "c")
    held = fifo.receive()
    fifo.change(held[1], 60)
    yield
    assert fifo.bodies() == ["a"]


def delays(make: Make) -> Iterator[None]:
    queue, slow = make(), make(DelaySeconds=A_WHILE)
    queue.send("a", DelaySeconds=WHILE_S)
    queue.send("b", DelaySeconds=60)
    slow.send("c")
    assert queue.counts() == (0, 0, 2)
    assert slow.bodies() == []
    yield
    assert queue.bodies() == ["a"]
    assert queue.counts() == (0, 1, 1)
    assert slow.bodies() == ["c"]


def a_delay_of_the_queue_on_fifo(make: Make) -> Iterator[None]:
    fifo = make(fifo=True, DelaySeconds=A_WHILE)
    fill(fifo, "a", "b")
    fifo.send("c", MessageGroupId="g", MessageDeduplicationId="c", DelaySeconds=0)
    assert fifo.bodies() == []
    assert fifo.counts() == (0, 0, 3)
    yield
    assert fifo.bodies() == ["a", "b", "c"]


def dead_letters_by_timeout(make: Make) -> Iterator[None]:
    queue, dead = make(VisibilityTimeout=A_WHILE), make()
    queue.redrive_to(dead, attempts=1)
    sent = queue.send("a")
    queue.one()
    yield
    assert queue.receive() == []
    message = dead.one(wait=5)
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn


def a_receive_that_is_repeated_late(make: Make) -> Iterator[None]:
    """A ReceiveRequestAttemptId gives the same messages and receipts, and resets the timeout."""
    fifo = make(fifo=True, VisibilityTimeout=str(2 * WHILE_S))
    fill(fifo, "a")
    first = fifo.one(ReceiveRequestAttemptId="attempt")
    ends = time.monotonic() + 2 * WHILE_S
    yield
    again = fifo.one(ReceiveRequestAttemptId="attempt")
    assert again["ReceiptHandle"] == first["ReceiptHandle"]
    time.sleep(max(0.0, ends + 0.2 - time.monotonic()))  # past the time of the first
    fifo.delete(again)
    assert fifo.counts() == (0, 0, 0)


def a_change_of_the_timeout(make: Make) -> Iterator[None]:
    """It counts for what is received from then on."""
    queue = make(VisibilityTimeout=A_WHILE)
    queue.send_batch("before", "after")
    queue.one()
    queue.set(VisibilityTimeout="60")
    queue.one()
    yield
    assert queue.bodies() == ["before"]


SCENARIOS: list[Scenario] = [
    the_timeout_of_the_queue,
    the_timeout_of_a_receive,
    a_longer_timeout,
    a_shorter_timeout,
    a_late_delete,
    a_late_change,
    a_late_delete_on_fifo,
    a_delete_in_extended_time_on_fifo,
    order_after_a_timeout_on_fifo,
    one_of_a_group_held_longer,
    delays,
    a_delay_of_the_queue_on_fifo,
    dead_letters_by_timeout,
    a_receive_that_is_repeated_late,
    a_change_of_the_timeout,
]


@pytest.fixture(scope="module")
def a_second_later(broker: ServedBroker) -> Iterator[dict[Scenario, Iterator[None]]]:
    """Every scenario up to its pause, and the pause behind it; a stage that cannot be set fails
    the test of its own scenario alone."""
    sqs = clients.client(broker.endpoint)
    begun: dict[Scenario, Iterator[None]] = {}
    for scenario in SCENARIOS:
        acts = scenario(maker(sqs, scenario.__name__))
        try:
            next(acts)
        except (AssertionError, ValueError, sqs.exceptions.ClientError) as failure:
            acts = _failed(failure)
        begun[scenario] = acts
    time.sleep(WHILE_S + 0.2)
    yield begun
    sqs.close()


def _failed(failure: Exception) -> Iterator[None]:
    raise failure
    yield


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_after_a_second(a_second_later: dict[Scenario, Iterator[None]], scenario: Scenario) -> None:
    with pytest.raises(StopIteration):
        next(a_second_later[scenario])


def test_scenarios_are_all_run() -> None:
    here = {
        each
        for each in globals().values()
        if callable(each) and getattr(each, "__annotations__", {}).get("make") is Make
    }
    assert here == set(SCENARIOS)
