"""The shared half by itself: no sockets, and a clock that a test moves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import nexo
from nexo.client import requests
from nexo.client.handshake import Backoff
from nexo.client.receipts import AckOne
from nexo.client.redirects import Greeting
from nexo.client.session import Session
from nexo.client.subscriptions import SubscriptionState
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import CLIENT_AGAIN_S
from nexo.wire import commands as c
from nexo.wire.columns import WirePart, encode_parts
from nexo.wire.frame import FrameReader, Kind, frame, frame_parts

HEARTBEAT_S = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _session(clock: Clock) -> Session:
    session = Session(
        clock, name="me", producer="p", token=None, heartbeat_s=HEARTBEAT_S, merging_window=8
    )
    _connect(session)
    session.tick()
    return session


def _connect(session: Session, instance: int = 1) -> None:
    greeting = Greeting()
    welcome = c.pack(c.Welcome(1, "stub", round(HEARTBEAT_S * 1000), instance))
    assert greeting.feed(frame(Kind.WELCOME, 1, welcome))
    session.connect(greeting)


def _written(session: Session) -> list[Any]:
    return FrameReader().feed(b"".join(session.take_output()))


def _push(body: str) -> Any:
    return requests.push("q", body, 0, None, None, None, None)


def _delivery(lease: int, bodies: list[bytes], subscription: int = 0, state: int = 2) -> bytes:
    head = c.pack_delivery(c.DeliveryHead(lease, 50_000, state, 9, subscription, 40_000, 30_000))
    kind = Kind.DELIVER if subscription else Kind.OK
    part = WirePart(0, 1, 1, 1, batch_of(bodies))
    return b"".join(frame_parts(kind, 0, head, encode_parts([part])))


def test_heartbeats_and_silence() -> None:
    clock = Clock()
    session = _session(clock)
    clock.now += HEARTBEAT_S
    session.tick()
    assert [each.kind for each in _written(session)] == [Kind.HEARTBEAT]
    for _ in range(3):
        clock.now += HEARTBEAT_S
        pause = session.tick()
        assert 0 < pause <= HEARTBEAT_S
        if _ < 1:
            session.receive(frame(Kind.HEARTBEAT, 0))
    clock.now += HEARTBEAT_S * 0.9
    session.tick()
    clock.now += HEARTBEAT_S * 0.9
    with pytest.raises(nexo.Unreachable, match="no answer from the broker"):
        session.tick()


def test_a_process_that_slept_gives_the_broker_another_chance() -> None:
    clock = Clock()
    session = _session(clock)
    clock.now += 3_600
    session.tick()
    session.receive(frame(Kind.HEARTBEAT, 0))
    clock.now += HEARTBEAT_S
    session.tick()


def test_correlations_wrap_and_are_never_zero() -> None:
    session = _session(Clock())
    session._correlation = 0xFFFFFFFE
    for body in "abc":
        session.submit(requests.peek(body, 1))
    assert [each.correlation for each in _written(session)] == [0xFFFFFFFF, 1, 2]
    session._correlation = 0xFFFFFFFF
    session.submit(requests.peek("d", 1))
    assert [each.correlation for each in _written(session)] == [3]


def test_numbers_never_run_further_ahead_than_the_broker_remembers() -> None:
    session = _session(Clock())
    for number in range(100):
        asked = requests.push_batch("q", [str(number)], 0, None, None, None, None)
        assert asked is not None
        session.submit(asked)
    sent = _written(session)
    assert [c.unpack_push(each.head).number for each in sent] == list(range(1, 65))
    answer = c.pack_accepted(1, 0, [5, 6])
    session.receive(frame(Kind.OK, sent[10].correlation, answer))
    assert _written(session) == []  # the first is still open, however many others are not
    session.receive(frame(Kind.OK, sent[0].correlation, answer))
    assert [c.unpack_push(each.head).number for each in _written(session)] == [65]


def test_what_was_not_answered_is_sent_again_under_its_number() -> None:
    session = _session(Clock())
    pushes = [_push(body) for body in "abc"]
    for push in pushes:
        session.submit(push)
    (first,) = _written(session)
    session.lose()
    assert _written(session) == []
    session.submit(_push("d"))
    _connect(session)
    again, fresh = _written(session)
    assert (again.head, again.body) == (first.head, first.body)
    assert c.unpack_push(fresh.head).number == 2
    session.receive(frame(Kind.OK, again.correlation, c.pack_accepted(1, 3, [0, 3])))
    assert all(push.done and push.error is None for push in pushes)


def test_what_nobody_waits_for_is_not_sent_again() -> None:
    session = _session(Clock())
    push, waiting = _push("a"), _push("b")
    session.submit(push)
    _written(session)
    session.submit(waiting)
    session.lose()
    session.abandon(push)
    session.abandon(waiting)
    _connect(session)
    assert _written(session) == []


def test_a_broker_that_is_not_ready_is_asked_again() -> None:
    clock = Clock()
    session = _session(clock)
    asked = requests.peek("q", 1)
    session.submit(asked)
    (sent,) = _written(session)
    refusal = c.pack(c.Refusal("not_ready", "soon", "", True))
    session.receive(frame(Kind.ERROR, sent.correlation, refusal))
    assert not asked.done
    assert session.due <= clock.now + CLIENT_AGAIN_S
    assert _written(session) == []
    clock.now += CLIENT_AGAIN_S
    session.tick()
    (again,) = _written(session)
    assert again.body == sent.body


@pytest.mark.parametrize("reconnects", [False, True])
@pytest.mark.parametrize("answer", ["none", "not_ready"])
def test_an_ack_that_the_broker_was_not_ready_for_is_not_taken_as_done(
    answer: str, reconnects: bool
) -> None:
    """It may have loaded its journal anew, where the delivery is not: then the receipt is stale,
    though the ack came to nothing."""
    clock = Clock()
    session = _session(clock)
    popping = requests.pop("q", 1, 0.0, None, True)
    session.submit(popping)
    (sent,) = _written(session)
    delivered = bytearray(_delivery(7, [b"x"]))
    delivered[8:12] = sent.correlation.to_bytes(4, "little")
    session.receive(bytes(delivered))
    acking = AckOne(popping.outcome(), 1)
    session.submit(acking)
    acked = _written(session)[-1]
    if answer == "not_ready":
        refusal = c.pack(c.Refusal("not_ready", "the connection to PostgreSQL is lost", "", True))
        session.receive(frame(Kind.ERROR, acked.correlation, refusal))
        clock.now += CLIENT_AGAIN_S
        session.tick()
    if reconnects or answer == "none":
        session.lose()
        _connect(session)
    again = _written(session)[-1]
    assert again.kind is Kind.ACK
    stale = msgspec.msgpack.encode([(7, 1, 2, "stale_receipt")])
    session.receive(frame(Kind.OK, again.correlation, stale))
    assert (acking.result == []) is (answer == "none")


def _subscribed(
    session: Session, prefetch: int, *, auto_received: bool = True, auto_extend: bool = False
) -> SubscriptionState:
    subscribed, sent = _subscribing(session, prefetch, auto_received, auto_extend)
    session.receive(frame(Kind.OK, sent.correlation))
    return subscribed


def _subscribing(
    session: Session, prefetch: int, auto_received: bool = True, auto_extend: bool = False
) -> tuple[SubscriptionState, Any]:
    """What was sent has no answer yet."""
    subscribed = SubscriptionState(
        session.subscriptions,
        "q",
        prefetch,
        auto_received=auto_received,
        auto_extend=auto_extend,
        visibility_ms=None,
        wake=lambda: None,
    )
    session.subscriptions.open(subscribed)
    (sent,) = _written(session)
    return subscribed, sent


def _not_ready(session: Session, kind: str, sent: Any, subscribed: SubscriptionState) -> None:
    """The broker is not ready for a subscription that comes, or for one that it has."""
    refusal = c.Refusal("not_ready", "the connection to PostgreSQL is lost", "", True)
    if kind == "refused":
        session.receive(frame(Kind.ERROR, sent.correlation, c.pack(refusal)))
    else:
        session.receive(frame(Kind.OK, sent.correlation))
        session.receive(frame(Kind.ENDED, 0, c.pack(c.Ended(subscribed.number, refusal))))


@pytest.mark.parametrize("kind", ["refused", "ended"])
def test_a_subscription_that_the_broker_is_not_ready_for_is_opened_again(kind: str) -> None:
    """On the same connection: a broker that comes back has never closed it."""
    clock = Clock()
    session = _session(clock)
    subscribed, sent = _subscribing(session, 10)
    for _ in range(3):
        _not_ready(session, kind, sent, subscribed)
        assert session.due <= clock.now + CLIENT_AGAIN_S
        assert _written(session) == []
        clock.now += CLIENT_AGAIN_S
        session.tick()
        (sent,) = _written(session)
        assert sent.kind is Kind.SUBSCRIBE
    session.receive(frame(Kind.OK, sent.correlation))
    clock.now += CLIENT_AGAIN_S
    session.tick()
    assert _written(session) == []
    session.receive(_delivery(7, [b"x"], subscribed.number))
    assert subscribed.take(1) is not None


@pytest.mark.parametrize("kind", ["refused", "ended"])
@pytest.mark.parametrize("meanwhile", ["closed", "reconnected", "moved", "moved late"])
def test_it_is_opened_once_whatever_happens_meanwhile(kind: str, meanwhile: str) -> None:
    clock = Clock()
    session = _session(clock)
    subscribed, sent = _subscribing(session, 10)
    _not_ready(session, kind, sent, subscribed)
    if meanwhile == "closed":
        session.subscriptions.close(subscribed)
        assert [each.kind for each in _written(session)] == [Kind.UNSUBSCRIBE]
    elif meanwhile == "reconnected":
        session.lose()
        _connect(session)
    else:
        session.leave()
        if meanwhile == "moved late":
            clock.now += CLIENT_AGAIN_S
            session.tick()
        greeting = Greeting()
        welcome = c.pack(c.Welcome(1, "stub", round(HEARTBEAT_S * 1000), 2))
        assert greeting.feed(frame(Kind.WELCOME, 1, welcome))
        session.move(greeting)
    clock.now += CLIENT_AGAIN_S
    session.tick()
    wanted = [] if meanwhile == "closed" else [Kind.SUBSCRIBE]
    assert [each.kind for each in _written(session)] == wanted
    assert len(session._pending) == 1, "what is on its way: that, or the farewell"


def test_credits_are_given_in_bulk() -> None:
    session = _session(Clock())
    subscribed = _subscribed(session, 10)
    session.receive(_delivery(7, [b"x"] * 10, subscription=1))
    assert [each.kind for each in _written(session)] == [Kind.RECEIVED]
    granted = []
    for _ in range(10):
        taken = subscribed.take(1)
        assert taken is not None
        delivery, start, _ = taken
        delivery.give_credit(delivery.finish_one(delivery.parts[0].first + start))
        granted += [c.unpack_credit(f.head).count for f in _written(session)]
    assert granted == [5, 5]
    assert subscribed.held == {}


def test_leaving_gives_back_what_was_not_handed_out_and_what_comes_late() -> None:
    session = _session(Clock())
    subscribed = _subscribed(session, 10)
    session.receive(_delivery(7, [b"x"] * 5, subscription=1))
    subscribed.take(2)
    _written(session)
    session.subscriptions.close(subscribed)
    leave, back = _written(session)
    assert c.unpack_unsubscribe(leave.head) == c.Unsubscribe(1, keep=True)
    assert c.unpack_ranges(back.head) == c.Acked("q", [(7, 2, 5)])
    session.receive(_delivery(8, [b"late"], subscription=1))
    (late,) = _written(session)
    assert (late.kind, c.unpack_ranges(late.head).ranges) == (Kind.GIVE_BACK, [(8, 0, 1)])
    session.receive(frame(Kind.OK, leave.correlation))


@pytest.mark.parametrize("auto_extend", [False, True])
def test_extensions(auto_extend: bool) -> None:
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 10, auto_extend=auto_extend)
    session.receive(_delivery(7, [b"x"] * 4, subscription=1))
    subscribed.take(2)
    _written(session)
    clock.now += 11.0  # more than a third of the visibility timeout of 30 s
    session._heard = clock.now
    session.tick()
    extend = [f for f in _written(session) if f.kind is Kind.EXTEND]
    (head,) = [c.unpack(each.head, c.Extend) for each in extend]
    assert head.ranges == ([(7, 0, 4)] if auto_extend else [(7, 2, 4)])
    assert head.timeout_ms == 30_000


def _extensions(session: Session) -> list[Any]:
    extend = [each for each in _written(session) if each.kind is Kind.EXTEND]
    return [c.unpack(each.head, c.Extend).ranges for each in extend]


def _pass(session: Session, clock: Clock, seconds: float) -> None:
    """Time passes, and the broker is heard."""
    clock.now += seconds
    session._heard = clock.now


def test_what_has_waited_is_handed_out_with_all_of_its_time() -> None:
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 10)
    session.receive(_delivery(7, [b"x"] * 4, subscription=1))
    subscribed.take(1)
    assert _extensions(session) == []  # it just came
    _pass(session, clock, 9.0)
    taken = subscribed.take(1)
    assert taken is not None
    assert session.has_quiet
    assert _extensions(session) == [[(7, 1, 4)]]
    subscribed.take(1)
    assert _extensions(session) == []  # renewed together with the one before
    _pass(session, clock, 11.0)
    session.tick()
    assert _extensions(session) == [[(7, 3, 4)]]
    deadlines = [taken[0].deadline_of(seq) for seq in range(4)]
    assert deadlines == [70_000, 79_000, 79_000, 90_000]
    assert taken[0].latest_ms == 90_000


def test_what_has_waited_is_renewed_with_what_is_worked_on() -> None:
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 10, auto_extend=True)
    session.receive(_delivery(7, [b"x"] * 3, subscription=1))
    subscribed.take(1)
    _written(session)
    _pass(session, clock, 9.0)
    taken = subscribed.take(1)
    assert taken is not None
    assert _extensions(session) == [[(7, 0, 3)]]
    assert {taken[0].deadline_of(seq) for seq in range(3)} == {79_000}


@pytest.mark.parametrize("ticks", [False, True])
def test_what_the_broker_took_back_is_not_handed_out(ticks: bool) -> None:
    """This process stood still, and one of the messages was extended for long."""
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 4)
    session.receive(_delivery(7, [b"x"] * 4, subscription=1))
    taken = subscribed.take(1)
    assert taken is not None
    taken[0].move_deadline(0, 1, 400_000)
    _written(session)
    _pass(session, clock, 31.0)
    if ticks:
        session.tick()
    assert subscribed.take(1) is None
    written = _written(session)
    assert [c.unpack_credit(f.head).count for f in written if f.kind is Kind.CREDIT] == [3]
    assert Kind.EXTEND not in {each.kind for each in written}
    assert list(subscribed.held) == [7]  # the first is still worked on


@pytest.mark.parametrize("ticks", [False, True])
def test_without_a_reception_ack_what_nobody_takes_goes_back_in_time(ticks: bool) -> None:
    """Its attempt does not count then, and it comes anew."""
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 4, auto_received=False)
    session.receive(_delivery(7, [b"x"] * 4, subscription=1))
    assert session.due <= clock.now + 10.0 * 2 / 3
    assert subscribed.take(1) is not None
    _pass(session, clock, 6.0)
    session.tick()
    assert subscribed.take(1) is not None
    _written(session)
    _pass(session, clock, 1.0)
    if ticks:
        session.tick()
    else:
        assert subscribed.take(1) is None
    back, credit = _written(session)
    assert c.unpack_ranges(back.head) == c.Acked("q", [(7, 2, 4)])
    assert c.unpack_credit(credit.head).count == 2
    assert subscribed.take(1) is None


def test_what_the_user_has_received_is_extended() -> None:
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 4, auto_received=False, auto_extend=True)
    session.receive(_delivery(7, [b"x"] * 3, subscription=1))
    taken = subscribed.take(3)
    assert taken is not None
    for seq in (0, 2):
        taken[0].move_deadline(seq, seq + 1, session.now_ms() + 30_000)  # `received()` does
    _pass(session, clock, 11.0)
    session.tick()
    assert _extensions(session) == [[(7, 0, 1), (7, 2, 3)]]
    assert taken[0].deadline_of(2) == 81_000
    taken[0].finish_one(0)
    _pass(session, clock, 11.0)
    session.tick()
    assert _extensions(session) == [[(7, 2, 3)]]


def test_what_was_handed_out_is_extended_after_leaving() -> None:
    clock = Clock()
    session = _session(clock)
    subscribed = _subscribed(session, 10, auto_extend=True)
    session.receive(_delivery(7, [b"x"] * 4, subscription=1))
    taken = subscribed.take(2)
    assert taken is not None
    session.subscriptions.close(subscribed)
    _written(session)
    for left in ([(7, 0, 2)], [(7, 1, 2)]):
        _pass(session, clock, 11.0)
        session.tick()
        assert _extensions(session) == [left]
        taken[0].finish_one(left[0][1])
    assert len(session.subscriptions) == 1
    _pass(session, clock, 11.0)
    session.tick()
    assert _extensions(session) == []
    assert len(session.subscriptions) == 0


def test_what_breaks_the_protocol_is_raised() -> None:
    for wrong in (frame(Kind.PUSH, 1), frame(Kind.HELLO, 1), frame(Kind.DELIVER, 0, b"x")):
        with pytest.raises(nexo.InvalidArgument):
            _session(Clock()).receive(wrong)
    session = _session(Clock())
    asked = requests.pop("q", 1, 0, None, True)
    session.submit(asked)
    (sent,) = _written(session)
    with pytest.raises(nexo.InvalidArgument):
        session.receive(frame(Kind.OK, sent.correlation, b"", b"not parts"))
    assert asked.error is not None


def test_pauses_between_tries_double_up_to_a_limit() -> None:
    backoff = Backoff(lambda: 0.5, timeout=4.0)  # half is neither shorter nor longer
    assert backoff.pause(100.0) == 0, "the first try waits for nothing"
    pauses = []
    for _ in range(7):
        backoff.tried(100.0)
        pauses.append(backoff.pause(100.0))
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.connected(100.0)
    backoff.lost(100.5)  # too soon to have been a good one
    assert backoff.pause(100.0) > 0
    backoff.lost(102.0)
    assert backoff.pause(102.0) == 0
    backoff.tried(102.0)
    assert backoff.pause(102.0) == pytest.approx(0.05), "a good connection begins anew"
