"""A client goes where a node sends it, between nodes that are none; and stays if it cannot."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.client import requests
from nexo.client.address import Address, Tls, address_of, place_of
from nexo.client.blocking import connection
from nexo.client.redirects import Greeting, Redirects
from nexo.client.requests import LongRequest
from nexo.client.session import Session
from nexo.client.subscriptions import SubscriptionState
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import Unreachable
from nexo.vocabulary.limits import CLIENT_MOVES_S, CLIENT_UNREACHED_S
from nexo.wire import commands as c
from nexo.wire.columns import WirePart, encode_parts
from nexo.wire.frame import FrameReader, Kind, frame, frame_parts
from tests.client.eventually import eventually
from tests.client.stub import Stub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.wire.frame import Frame


class StubNode:
    """It takes pushes, and tells whoever pushes to go to another place."""

    def __init__(self, cluster: str = "ours", told: str = "") -> None:
        self.cluster, self.told = cluster, told
        self.hellos: list[c.Hello] = []
        self.pushed: list[int] = []  # numbers
        self.beats = 0
        self.stub = Stub(self._answer)
        self.place = self.stub.url.removeprefix("nexo://")

    def _answer(self, arrived: Frame) -> bytes:
        if arrived.kind is Kind.HELLO:
            self.hellos.append(c.unpack(arrived.head, c.Hello))
            welcome = c.Welcome(1, "stub", 1_000, 7, cluster=self.cluster)
            return frame(Kind.WELCOME, 1, c.pack(welcome))
        if arrived.kind is Kind.HEARTBEAT:
            self.beats += 1
            return frame(Kind.HEARTBEAT, 0)  # else it counts as gone after three seconds
        if arrived.kind is not Kind.PUSH:
            return frame(Kind.OK, arrived.correlation) if arrived.correlation else b""
        self.pushed.append(c.unpack_push(arrived.head).number)
        number = self.pushed[-1]
        answer = frame(Kind.OK, arrived.correlation, c.pack_accepted(1, 0, [number, number + 1]))
        moved = frame(Kind.MOVED, 0, c.pack(c.Moved(self.told))) if self.told else b""
        return answer + moved


@pytest.fixture
def two() -> Iterator[tuple[StubNode, StubNode]]:
    here, there = StubNode(), StubNode()
    with here.stub, there.stub:
        here.told = there.place
        yield here, there


def test_it_goes_and_nothing_is_lost_or_doubled(twin: Any, two: Any) -> None:
    here, there = two
    queue = twin.connect(here.stub.url).queue("q")
    count = 0
    while not there.pushed:
        queue.push("x")
        count += 1
    for _ in range(10):
        queue.push("x")
    assert here.pushed + there.pushed == list(range(1, count + 11))
    assert (here.stub.connections, there.stub.connections) == (1, 1)
    assert here.hellos[0].follows
    assert there.hellos[0].follows


def test_it_is_not_sent_back_and_forth(twin: Any, two: Any) -> None:
    here, there = two
    there.told = here.place
    queue = twin.connect(here.stub.url).queue("q")
    for _ in range(300):
        queue.push("x")
    while not there.pushed:
        queue.push("x")
    for _ in range(50):
        queue.push("x")
    assert (here.stub.connections, there.stub.connections) == (1, 1)


def test_it_comes_back_to_the_address_of_the_user(twin: Any, two: Any) -> None:
    here, there = two
    queue = twin.connect(here.stub.url).queue("q")
    while not there.pushed:
        queue.push("x")
    there.stub.__exit__()
    before = len(here.pushed)
    queue.push("x")
    assert len(here.pushed) == before + 1


def test_one_that_does_not_follow(twin: Any, two: Any) -> None:
    here, there = two
    queue = twin.connect(here.stub.url, follow_redirects=False).queue("q")
    for _ in range(50):
        queue.push("x")
    time.sleep(0.1)
    assert not here.hellos[0].follows
    assert (here.stub.connections, there.stub.connections) == (1, 0)


def test_a_broker_that_is_no_node_of_this_cluster(twin: Any, caplog: Any) -> None:
    """Such as one on the client's own machine, where a node is known as localhost."""
    caplog.set_level(logging.INFO, "nexo.client")
    here, other = StubNode(), StubNode("theirs")
    here.told = other.place
    with here.stub, other.stub:
        queue = twin.connect(here.stub.url).queue("q")
        for _ in range(50):
            queue.push("x")
        eventually(lambda: "not a node of the same cluster" in caplog.text)
        for _ in range(50):
            queue.push("x")
        assert here.pushed == list(range(1, 101))
        assert (here.stub.connections, other.stub.connections) == (1, 1)
    assert caplog.text.count("cannot be reached at") == 1


@pytest.mark.parametrize("kind", ["refused", "silent", "nonsense"])
def test_a_place_that_cannot_be_reached(twin: Any, kind: str) -> None:
    """Calls do not notice; it is tried once."""
    silent = socket.create_server(("127.0.0.1", 0))
    place = f"127.0.0.1:{silent.getsockname()[1]}"
    if kind == "refused":
        silent.close()
    here = StubNode(told="??:-1" if kind == "nonsense" else place)
    with here.stub:
        queue = twin.connect(here.stub.url).queue("q")
        longest, ends = 0.0, time.monotonic() + 0.7
        while time.monotonic() < ends:
            began = time.monotonic()
            queue.push("x")
            longest = max(longest, time.monotonic() - began)
        assert longest < 4.0  # a try takes 5 s
        assert here.pushed == list(range(1, len(here.pushed) + 1))
        assert here.stub.connections == 1
    silent.close()


def test_nobody_waits_for_the_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who calls, nor who sees to heartbeats: the connection would be given up."""
    there = "127.0.0.1:1"
    here = StubNode(told=there)
    began, ending = threading.Event(), threading.Event()
    dialled: Any = vars(connection)["dial"]

    def dial(address: Address, *more: Any) -> Any:
        if str(address) != there:
            return dialled(address, *more)
        began.set()
        ending.wait(20)
        raise OSError("nobody is there")

    monkeypatch.setattr(connection, "dial", dial)
    with here.stub, nexo.connect(here.stub.url) as client:
        queue = client.queue("q")
        try:
            calls = 0
            while not began.is_set():
                assert calls < 10_000, "it was not tried"
                queue.push("x")
                calls += 1
            queue.push("x")
            beats = here.beats
            eventually(lambda: here.beats >= beats + 2)  # one a second
            queue.push("x")
        finally:
            ending.set()
        assert here.pushed == list(range(1, calls + 3))
        assert here.stub.connections == 1


# -- Where to go, without anybody -----------------------------------------------------------------


def test_places() -> None:
    assert place_of("host-b:9325") == ("host-b", 9325)
    assert place_of("[fd00::2]:19325") == ("fd00::2", 19325)
    assert place_of("host-b") == ("host-b", 9325)
    for wrong in ("", ":9325", "host:0", "host:70000", "host:1/x", "x y"):
        assert place_of(wrong) is None, wrong


def test_the_list_of_the_user_is_kept() -> None:
    given = address_of("nexo://a:1,b:2")
    redirects = Redirects(given)
    to = redirects.target("c:3", given, 100.0)
    assert to == Address("c", 3, None, (("a", 1), ("b", 2)))
    redirects.moved(to, 100.0)
    again = redirects.target("b:2", to, 100.0 + CLIENT_MOVES_S)
    assert again == Address("b", 2, None, (("a", 1),))
    tls = Address("a", 1, Tls(None, False))
    assert tls.led_by(("[::1]", 2)).tls == tls.tls


def test_when_it_stays() -> None:
    given = address_of("nexo://a:1,b:2")
    redirects = Redirects(given)
    assert redirects.target("a:1", given, 100.0) is None  # it is there
    to = redirects.target("b:2", given, 100.0)
    assert to is not None
    redirects.failed(to, Unreachable("no"), 100.0)
    assert redirects.target("b:2", given, 100.0 + CLIENT_UNREACHED_S - 1) is None
    assert redirects.target("c:3", given, 100.0) is not None  # another may be reached
    assert redirects.target("b:2", given, 100.0 + CLIENT_UNREACHED_S) is not None
    redirects.moved(to, 1_000.0)
    assert redirects.target("c:3", to, 1_000.0 + CLIENT_MOVES_S - 0.1) is None
    assert redirects.target("c:3", to, 1_000.0 + CLIENT_MOVES_S) is not None
    assert Redirects(given, follows=False).target("b:2", given, 0.0) is None


# -- The session between two connections ----------------------------------------------------------


def _session() -> Session:
    session = Session(
        lambda: 1_000.0, name="me", producer="p", token=None, heartbeat_s=5.0, merging_window=8
    )
    session.connect(_greeting())
    return session


def _greeting() -> Greeting:
    greeting = Greeting()
    greeting.feed(frame(Kind.WELCOME, 1, c.pack(c.Welcome(1, "stub", 5_000, 1, cluster="ours"))))
    return greeting


def _written(session: Session) -> list[Frame]:
    return FrameReader().feed(b"".join(session.take_output()))


def _push(body: str) -> Any:
    return requests.push("q", body, 0, None, None, None, None)


def _accept(session: Session, sent: Frame) -> None:
    session.receive(frame(Kind.OK, sent.correlation, c.pack_accepted(1, 0, [1, 2])))


def _deliver(session: Session, lease: int, first: int, count: int) -> None:
    head = c.pack_delivery(c.DeliveryHead(lease, 1_030_000, 2, 9, 1, 1_000_000, 30_000))
    part = WirePart(first, 1, 1, 1, batch_of([b"x"] * count))
    session.receive(b"".join(frame_parts(Kind.DELIVER, 0, head, encode_parts([part]))))


def test_a_call_waits_while_the_old_node_answers() -> None:
    session = _session()
    session.submit(before := _push("before"))
    (sent,) = _written(session)
    leaving = session.leave()
    (goodbye,) = _written(session)
    assert goodbye.kind is Kind.GOODBYE
    session.submit(after := _push("after"))
    assert _written(session) == []
    session.receive(frame(Kind.OK, goodbye.correlation))
    assert not leaving.done
    _accept(session, sent)
    assert leaving.done
    assert before.done
    session.move(_greeting())
    (sent,) = _written(session)
    assert c.unpack_push(sent.head).number == 2
    _accept(session, sent)
    assert after.done


def test_what_was_not_answered_in_time_is_sent_again_in_its_order() -> None:
    session = _session()
    pushes = [requests.push_batch("q", [str(each)], 0, None, None, None, None) for each in range(5)]
    for push in pushes:
        assert push is not None
        session.submit(push)
    sent = _written(session)
    session.leave()
    _written(session)
    _accept(session, sent[1])
    session.submit(_push("after"))
    session.move(_greeting())
    assert [c.unpack_push(each.head).number for each in _written(session)] == [1, 3, 4, 5, 6]


def test_words_that_were_never_written_are_said_at_the_new_node() -> None:
    """The old one does not read any more."""
    session = _session()
    session.submit(_push("x"))
    session.leave()
    session.move(_greeting())
    assert [each.kind for each in _written(session)] == [Kind.PUSH]


def test_a_pop_that_waits_goes_along_with_the_rest_of_its_time() -> None:
    session = _session()
    session.submit(pop := requests.pop("q", 1, 20.0, None, True))
    (sent,) = _written(session)
    leaving = session.leave()
    (goodbye,) = _written(session)
    session.receive(frame(Kind.OK, goodbye.correlation))
    session.receive(frame(Kind.OK, sent.correlation, c.pack_delivery(c.DeliveryHead(0, 0, 1, 9))))
    assert leaving.done
    assert not pop.done
    session.move(_greeting())
    (again,) = _written(session)
    assert again.kind is Kind.POP


def test_a_read_that_waits_holds_nobody_up() -> None:
    session = _session()
    session.submit(LongRequest(Kind.READ, b"head", lambda _: None, wait_ms=20_000))
    _written(session)
    leaving = session.leave()
    (goodbye,) = _written(session)
    session.receive(frame(Kind.OK, goodbye.correlation))
    assert leaving.done
    session.move(_greeting())
    assert [each.kind for each in _written(session)] == [Kind.READ]


def _subscribed(session: Session) -> SubscriptionState:
    state = SubscriptionState(
        session.subscriptions,
        "q",
        10,
        auto_received=True,
        auto_extend=False,
        visibility_ms=None,
        wake=lambda: None,
    )
    session.subscriptions.open(state)
    (subscribe,) = _written(session)
    session.receive(frame(Kind.OK, subscribe.correlation))
    return state


def test_a_subscription_keeps_what_it_holds() -> None:
    session = _session()
    state = _subscribed(session)
    _deliver(session, 7, 0, 3)
    assert state.take(1) is not None
    session.leave()
    said = _written(session)
    assert [each.kind for each in said] == [Kind.RECEIVED, Kind.UNSUBSCRIBE, Kind.GOODBYE]
    assert c.unpack_unsubscribe(said[1].head).keep
    _deliver(session, 8, 3, 2)  # it was on its way
    for each in said[1:]:
        session.receive(frame(Kind.OK, each.correlation))
    session.move(_greeting())
    said = _written(session)
    assert [each.kind for each in said] == [Kind.SUBSCRIBE, Kind.RECEIVED]
    assert c.unpack(said[0].head, c.Subscribe).held == 5
    assert [state.take(9) is not None for _ in range(3)] == [True, True, False]


def test_a_subscription_that_was_not_left_in_time_begins_anew() -> None:
    """The broker gives its messages to others when the connection ends."""
    session = _session()
    state = _subscribed(session)
    _deliver(session, 7, 0, 3)
    session.leave()
    _written(session)
    session.move(_greeting())
    (subscribe,) = [each for each in _written(session) if each.kind is Kind.SUBSCRIBE]
    assert c.unpack(subscribe.head, c.Subscribe).held == 0
    assert state.take(1) is None


def test_a_connection_that_breaks_while_it_is_left() -> None:
    session = _session()
    session.submit(_push("x"))
    _written(session)
    leaving = session.leave()
    session.lose()
    assert leaving.done
    assert not session.is_leaving
    session.connect(_greeting())
    assert [each.kind for each in _written(session)] == [Kind.PUSH]


def test_a_subscription_that_is_closed_meanwhile_is_not_opened_again() -> None:
    session = _session()
    state = _subscribed(session)
    session.leave()
    said = _written(session)
    session.subscriptions.close(state)
    for each in said:
        session.receive(frame(Kind.OK, each.correlation))
    session.move(_greeting())
    assert Kind.SUBSCRIBE not in [each.kind for each in _written(session)]


# -- The broker's side ----------------------------------------------------------------------------


def test_a_goodbye_answers_pops_that_wait(broker: Any, twin: Any) -> None:
    """Else the next message goes to somebody who has left."""
    queue = twin.connect(broker.url).create_queue("q")
    hello = c.Hello(c.MAGIC, (1, 1), "test", None, 60_000)
    pop = c.pack_pop(c.Pop("q", 1, 1_000, wait_ms=60_000))
    words = [
        frame(Kind.HELLO, 1, c.pack(hello)),
        frame(Kind.POP, 2, pop),
        frame(Kind.GOODBYE, 3),
    ]
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as sock:
        sock.sendall(b"".join(words))
        reader = FrameReader()
        answers: dict[int, Frame] = {}
        while {1, 2, 3} - answers.keys():
            answers |= {each.correlation: each for each in reader.feed(sock.recv(4_096))}
        assert answers[2].kind is answers[3].kind is Kind.OK
        assert not answers[2].body
        queue.push("x")
        assert queue.info().in_flight == 0
