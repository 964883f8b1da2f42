"""A busy loop of pops and acks: what it writes, and what becomes of a message asked for in vain."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.client.blocking import connection, handle
from nexo.vocabulary import limits
from nexo.wire import commands
from nexo.wire.frame import Kind
from tests.client.eventually import eventually
from tests.client.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_S = 600.0
CYCLES = 4


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """However slow this machine is, the loops here are busy, and nothing is due by itself."""
    for name in ("CLIENT_BUSY_S", "CLIENT_HOT_S", "CLIENT_AHEAD_S", "CLIENT_AHEAD_LATE_S"):
        monkeypatch.setattr(handle, name, LONG_S)
    for name in ("CLIENT_HOT_S", "CLIENT_RECEPTION_S", "CLIENT_TICK_S"):
        monkeypatch.setattr(connection, name, LONG_S)
    return monkeypatch


@pytest.fixture
def quick(unhurried: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A loop is a busy one after few messages."""
    unhurried.setattr(handle, "CYCLES", CYCLES)
    return unhurried


@pytest.fixture
def client(relay: Relay) -> Iterator[nexo.Client]:
    with nexo.connect(relay.url, timeout=20, heartbeat=60.0) as connected:
        yield connected


@pytest.fixture
def other(broker: Any) -> Iterator[Any]:
    """The queue as somebody else sees it."""
    with nexo.connect(broker.url, timeout=20) as connected:
        yield connected.queue("q")


def _queue(client: nexo.Client, count: int, **settings: Any) -> nexo.Queue:
    """A queue where nothing comes back by itself, and a single failed attempt is told."""
    times: dict[str, Any] = {"visibility_timeout": LONG_S, "retransmit_timeout": LONG_S}
    queue = client.create_queue("q", max_attempts=1, **times | settings)
    queue.push_batch([str(number) for number in range(count)])
    return queue


def _work(queue: nexo.Queue, count: int) -> list[str]:
    seen = []
    for _ in range(count):
        message = queue.pop()
        assert message is not None
        assert message.attempts == 1
        seen.append(message.text)
        message.ack()
    return seen


def _numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


@pytest.mark.usefixtures("unhurried")
def test_receptions_travel_with_acks(client: nexo.Client, relay: Relay) -> None:
    """A loop of pops and acks is two writes a message, not three."""
    queue = _queue(client, 100)
    before = relay.reads["on_request"]
    _work(queue, 60)
    assert relay.requests[Kind.RECEIVED] >= 60
    assert relay.reads["on_request"] - before <= 2 * 60 + 5


@pytest.mark.usefixtures("unhurried")
def test_a_busy_loop_asks_ahead(client: nexo.Client, relay: Relay, other: Any) -> None:
    """Then a message is one write; what was asked for in vain is back at once, uncounted."""
    queue = _queue(client, 400)
    seen = _work(queue, 100)
    before = relay.reads["on_request"]
    seen += _work(queue, 150)
    assert relay.reads["on_request"] - before <= 150 + 5
    assert relay.requests[Kind.GIVE_BACK] == 0
    info = queue.info()  # anything but a pop gives back first
    assert (info.in_flight, info.ready) == (0, 150)
    assert relay.requests[Kind.GIVE_BACK] == 1
    seen += _work(queue, 100)
    assert seen == _numbers(0, 350)
    eventually(lambda: bool(other.info().in_flight == 1))
    client.close()  # and so does closing
    eventually(lambda: bool(other.info().ready == 50))
    assert [message.attempts for message in other.pop_batch(100)] == [1] * 50


@pytest.mark.usefixtures("quick")
def test_asking_ahead_comes_to_an_end(client: nexo.Client) -> None:
    queue = _queue(client, 20)
    assert _work(queue, 20) == _numbers(0, 20)
    assert queue.pop() is None
    queue.push_batch(_numbers(20, 40))
    _work(queue, 10)
    held = queue.pop(visibility_timeout=60.0)  # not what was asked for
    assert held is not None
    assert held.text == "30"
    assert (queue.info().in_flight, queue.info().ready) == (1, 9)


def test_what_nobody_comes_for_goes_back_by_itself(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay, other: Any
) -> None:
    """Though nothing else calls the keeper: it is not even time for a heartbeat."""
    quick.setattr(handle, "CLIENT_AHEAD_S", 0.005)
    quick.setattr(connection, "CLIENT_HOT_S", 0.0)
    quick.setattr(connection, "CLIENT_TICK_S", 0.005)
    queue = _queue(client, 200)
    asked = _aheads(relay)
    taken = 0
    while not asked:
        taken += len(_work(queue, 1))
    eventually(lambda: bool(other.info().ready == 200 - taken))
    assert other.pop().attempts == 1


def test_a_loop_with_long_work_does_not_ask_ahead(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay
) -> None:
    """It would gain nothing."""
    quick.setattr(handle, "CLIENT_HOT_S", 0.02)
    queue = _queue(client, 20)
    asked = _aheads(relay)
    for _ in range(3 * CYCLES):
        message = queue.pop()
        assert message is not None
        time.sleep(0.03)
        message.ack()
    assert not asked


def test_a_broken_connection_returns_what_nobody_saw(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay, other: Any
) -> None:
    quick.setattr(limits, "AHEAD_KEPT_MS", 50)
    queue = _queue(client, 20)
    held = queue.pop()
    assert _work(queue, 10) == _numbers(1, 11)
    eventually(lambda: _has_come(queue))
    relay.cut()
    eventually(lambda: bool(other.info().ready == 9))
    assert other.info().in_flight == 1  # what was popped and seen is still ours
    quick.setattr(handle, "CLIENT_AHEAD_LATE_S", 0.05)
    assert _work(queue, 9) == _numbers(11, 20)
    assert held is not None
    held.ack()
    assert other.info().depth == 0


@pytest.mark.parametrize("kind", [None, Kind.RECEIVED, Kind.ACK])
def test_a_client_that_comes_back_goes_on(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay, kind: Kind | None
) -> None:
    """Whatever was under way when the connection broke."""
    quick.setattr(limits, "AHEAD_KEPT_MS", 1000 * LONG_S)
    queue = _queue(client, 20)
    _work(queue, 10)
    eventually(lambda: _has_come(queue))
    if kind is None:
        relay.cut()
    else:
        _cut_at(relay, kind)
    assert _work(queue, 10) == _numbers(10, 20)
    assert queue.info().depth == 0
    assert relay.connections == 2


def test_an_ack_whose_answer_was_lost_is_done(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay
) -> None:
    quick.setattr(limits, "AHEAD_KEPT_MS", 1000 * LONG_S)
    queue = _queue(client, 20)
    _work(queue, 10)
    message = queue.pop()
    assert message is not None
    cuts = iter([Relay.CUT])
    relay.on_answer = lambda _: next(cuts, Relay.PASS)
    message.ack()
    assert relay.connections == 2


@pytest.mark.usefixtures("quick")
def test_leaving_without_closing_returns_what_nobody_saw(broker: Any, other: Any) -> None:
    with nexo.connect(broker.url, timeout=20) as client:
        _queue(client, 20)
    child = os.fork()
    if child == 0:
        try:
            _work(nexo.connect(broker.url, timeout=20).queue("q"), 10)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    eventually(lambda: bool(other.info().ready == 10))
    assert [message.attempts for message in other.pop_batch(20)] == [1] * 10


@pytest.mark.usefixtures("quick")
def test_the_child_of_a_fork_asks_for_itself(broker: Any) -> None:
    with nexo.connect(broker.url, timeout=20) as client:
        queue = _queue(client, 20)
        _work(queue, 10)
        eventually(lambda: _has_come(queue))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, "".join(_work(queue, 1)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            assert pipe.read() == "11"
        assert _work(queue, 2) == ["10", "12"]


def test_what_waited_too_long_is_not_handed_out(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay
) -> None:
    """The process stood still: neither the user nor the keeper came in time."""
    queue = _queue(client, 20)
    _work(queue, 10)
    quick.setattr(handle, "CLIENT_AHEAD_LATE_S", 0.05)
    time.sleep(0.1)
    assert relay.requests[Kind.GIVE_BACK] == 0
    assert _work(queue, 1) == ["10"]
    assert relay.requests[Kind.GIVE_BACK] == 1


@pytest.mark.usefixtures("quick")
def test_what_the_broker_took_back_is_not_handed_out(client: nexo.Client, other: Any) -> None:
    queue = _queue(client, 20)
    queue.edit(max_attempts=None)
    _work(queue, 9)
    other.edit(retransmit_timeout=1.0)  # for what is delivered from here on: that which comes ahead
    _work(queue, 1)
    eventually(lambda: _has_come(queue))
    asked: Any = queue._ahead.asked
    while other.pop(wait=10).text != "10":  # in the end it comes to the other
        continue
    # The clock of the broker is known here but for the time that an answer takes.
    eventually(lambda: bool(client._connection.session.now_ms() >= asked.result.deadline_ms))
    message = queue.pop()
    assert message is None or message.text != "10"


def test_an_ack_that_was_lost_with_its_reception_is_told(
    quick: pytest.MonkeyPatch, client: nexo.Client, relay: Relay
) -> None:
    """The broker has taken the message back: it must not count as acked."""
    quick.setattr(limits, "AHEAD_KEPT_MS", 0)
    queue = _queue(client, 20)
    _work(queue, 10)
    message = queue.pop()
    assert message is not None
    _cut_at(relay, Kind.RECEIVED)
    with pytest.raises(nexo.StaleReceipt):
        message.ack()
    assert _work(queue, 1) == [message.text]


def _has_come(queue: nexo.Queue) -> bool:
    """Whether the message that was asked for is here."""
    queue._connection.read_idly()
    asked = queue._ahead.asked
    assert asked is not None
    return asked.done


def _cut_at(relay: Relay, kind: Kind) -> None:
    """Break the connection instead of passing the next frame of a kind on."""
    cuts = iter([Relay.CUT])
    relay.on_request = lambda frame: next(cuts, Relay.PASS) if frame.kind is kind else Relay.PASS


def _aheads(relay: Relay) -> list[Any]:
    """Pops that were sent before anybody asked, as they come."""
    seen: list[Any] = []

    def look(frame: Any) -> str:
        if frame.kind is Kind.POP and commands.unpack_pop(frame.head).ahead:
            seen.append(frame)
        return Relay.PASS

    relay.on_request = look
    return seen
