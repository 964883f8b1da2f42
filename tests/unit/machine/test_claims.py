"""Claims: a query asks again and gets the same batch, until it acks or somebody releases it."""

import msgspec
import pytest

from nexo.machine import claims
from nexo.machine.apply import apply
from nexo.machine.deadlines import run_due
from nexo.machine.image import ClaimImage, Image, decode_image, encode_image, image_of, revive
from nexo.machine.peek import info
from nexo.machine.pop import messages
from nexo.machine.queue import Queue
from nexo.vocabulary import limits
from nexo.vocabulary.changes import (
    ClaimAcked,
    Claimed,
    ClaimForgotten,
    ClaimOpened,
    decode_queue_changes,
)
from nexo.vocabulary.errors import Fenced, InvalidArgument, LeaseLost
from nexo.vocabulary.states import State
from tests.unit.machine.orders import commit, orders, put, take

TIMEOUT_MS = 100


@pytest.fixture
def queue() -> Queue:
    queue = orders()
    put(queue, b"0", b"1", b"2", b"3")
    return queue


def claim(queue: Queue, after: int, epoch: int = 1, now_ms: int = 1_000) -> tuple[int, int]:
    got = claims.claim(queue, "query", epoch, after, 2, now_ms, TIMEOUT_MS)
    return got.number, got.count


def held(queue: Queue, number: int, epoch: int = 1) -> list[int]:
    spans = claims.held_by(queue, "query", epoch, number)
    return [seq for span in spans for seq in range(span.first, span.end)]


def test_asking_again_gives_the_same_batch(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    assert claim(queue, 0) == (1, 2)
    assert claim(queue, 0) == (1, 2)
    assert held(queue, 1) == [0, 1]
    assert queue.ready == 2


@pytest.mark.parametrize("timeout_ms", [-1, limits.TIMEOUT_MS_MAX + 1, 2**64 - 1])
def test_a_claim_does_not_last_for_ever(queue: Queue, timeout_ms: int) -> None:
    claims.open_claims(queue, "query")
    queue.changes.clear()
    with pytest.raises(InvalidArgument, match="timeout_ms"):
        claims.claim(queue, "query", 1, 0, 2, 1_000, timeout_ms)
    with pytest.raises(InvalidArgument, match="timeout_ms"):
        claims.keep_claims(queue, "query", 1, 1_000, timeout_ms)
    assert not queue.changes


@pytest.mark.parametrize("number", [-1, 2**63, 2**64 - 1])
def test_numbers_of_batches_fit_the_journal(queue: Queue, number: int) -> None:
    claims.open_claims(queue, "query")
    queue.changes.clear()
    with pytest.raises((InvalidArgument, LeaseLost)):
        claims.claim(queue, "query", 1, number, 2, 1_000, TIMEOUT_MS)
    with pytest.raises(InvalidArgument, match="number"):
        claims.ack_claims(queue, "query", 1, number, 1_000)
    assert not queue.changes


def test_only_so_many_consumers(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLAIM_CONSUMERS_MAX", 2)
    for name in ("one", "two", "one"):
        claims.open_claims(queue, name)
    with pytest.raises(InvalidArgument, match="maximum of 2 Spark consumers"):
        claims.open_claims(queue, "three")
    assert set(queue.claims) == {"one", "two"}


def test_next_batch_acks_those_before_it(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    claims.seal(queue, "query", 1, 1, 1_000)
    assert claim(queue, 1) == (2, 2)
    assert (held(queue, 2), queue.depth, queue.totals.acked) == ([2, 3], 2, 2)
    with pytest.raises(LeaseLost, match="acked already"):
        claim(queue, 0)


def test_nothing_to_claim_is_batch_0() -> None:
    queue = orders()
    claims.open_claims(queue, "query")
    assert claim(queue, 0) == (0, 0)


def test_second_driver_fences_the_first(queue: Queue) -> None:
    assert claims.open_claims(queue, "query") == 1
    claim(queue, 0)
    assert claims.open_claims(queue, "query") == 2
    for step in (claims.seal, claims.ack_claims):
        with pytest.raises(Fenced):
            step(queue, "query", 1, 1, 1_000)
    with pytest.raises(Fenced):
        claims.keep_claims(queue, "query", 1, 1_000, TIMEOUT_MS)
    assert claim(queue, 0, epoch=2) == (1, 2)


def test_unsealed_claim_lapses_without_a_heartbeat(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    claims.keep_claims(queue, "query", 1, 1_050, TIMEOUT_MS)
    run_due(queue, 1_149)
    assert queue.in_flight == 2
    run_due(queue, 1_150)
    assert (queue.in_flight, queue.ready) == (0, 4)
    with pytest.raises(LeaseLost):
        claims.seal(queue, "query", 1, 1, 1_150)
    (message,) = messages(queue, take(queue, 1, now_ms=1_150))
    assert (message.body, message.attempts) == (b"0", 1), "a lapsed claim is no attempt"
    assert claim(queue, 0, now_ms=1_150) == (1, 2)
    assert held(queue, 1) == [1, 2]


def test_sealed_claim_is_held_for_ever(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    claims.seal(queue, "query", 1, 1, 1_000)
    run_due(queue, 1_000_000)
    assert (queue.in_flight, held(queue, 1)) == (2, [0, 1])


def test_replay_counts_as_an_attempt(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    for attempts in (1, 2, 3):
        claims.seal(queue, "query", 1, 1, 1_000)
        (span,) = claims.held_by(queue, "query", 1, 1)
        assert span.history is not None
        assert span.history.attempts == attempts


def test_released_batch_reads_as_empty_and_the_query_goes_on(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    claims.seal(queue, "query", 1, 1, 1_000)
    assert claims.release(queue, "query", 1_000) == 2
    assert queue.ready == 4
    assert claim(queue, 0) == (1, 0)
    assert claims.seal(queue, "query", 1, 1, 1_000).count == 0
    assert claim(queue, 1) == (2, 2)
    assert held(queue, 2) == [0, 1]


def test_release_may_send_to_the_dead_letters(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    assert claims.release(queue, "query", 1_000, dead_letter=True) == 2
    (doomed,) = queue.doomed
    assert (doomed.span.state, doomed.reason) == (State.DOOMED, "released by an operator")


def test_forgotten_consumer_gives_everything_back(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    claims.forget_claims(queue, "query", 1_000)
    assert (queue.ready, queue.claims) == (4, {})


def test_consumer_holds_a_limited_number_of_batches() -> None:
    queue = orders()
    put(queue, *[b"x"] * (limits.CLAIM_BATCHES_MAX + 1))
    claims.open_claims(queue, "query")
    for number in range(2, limits.CLAIM_BATCHES_MAX + 2):
        # A driver that acks nothing: each batch is asked for as if it were the first.
        queue.claims["query"].acked_through = 0
        claims.claim(queue, "query", 1, 0, 1, 1_000, TIMEOUT_MS)
        queue.claims["query"].batches[number] = queue.claims["query"].batches.pop(1)
    with pytest.raises(InvalidArgument, match="too many"):
        claims.claim(queue, "query", 1, 0, 1, 1_000, TIMEOUT_MS)


@pytest.mark.parametrize("fifo", [False, True])
def test_batch_reads_in_the_same_order_after_a_restart(fifo: bool) -> None:
    """Its slices are read by tasks, some before and some after."""
    queue = orders(fifo=fifo)
    groups, priority = (["a", "b", "a", "b"], 0) if fifo else (None, bytes([1, 9, 1, 9]))
    put(queue, b"0", b"1", b"2", b"3", groups=groups, priority=priority)
    claims.open_claims(queue, "query")
    claims.claim(queue, "query", 1, 0, 4, 1_000, TIMEOUT_MS)
    claims.seal(queue, "query", 1, 1, 1_000)
    revived = orders(fifo=fifo)
    revive(revived, decode_image(encode_image(image_of(queue))))
    assert held(revived, 1) == held(queue, 1)
    assert len(held(queue, 1)) == 4


DAY_MS = 24 * 3_600_000


def test_how_long_messages_are_held(queue: Queue) -> None:
    """From the claim on, also through a restart; an ack ends it."""
    claims.open_claims(queue, "query", 1_000)
    claim(queue, 0, now_ms=1_000)
    claims.seal(queue, "query", 1, 1, 1_500)
    commit(queue)
    again = orders()
    revive(again, decode_image(encode_image(image_of(queue))))
    for each in (queue, again):
        told = info(each, 61_000)
        assert (told.claimed, told.claimed_age_ms) == ({"query": 2}, {"query": 60_000})
    claims.ack_claims(queue, "query", 1, 1, 70_000)
    assert info(queue, 80_000).claimed_age_ms == {}


def test_who_holds_nothing_is_forgotten_after_a_month(queue: Queue) -> None:
    claims.open_claims(queue, "query", 1_000)
    for name in ("idle", "holds", "asks"):
        claims.open_claims(queue, name, 1_000)
    claims.claim(queue, "holds", 1, 0, 4, 1_000, TIMEOUT_MS)
    claims.seal(queue, "holds", 1, 1, 1_000)
    claims.claim(queue, "asks", 1, 0, 4, 1_000 + 20 * DAY_MS, TIMEOUT_MS)
    month_ms = 1_000 + limits.CLAIM_CONSUMER_IDLE_MS
    assert set(info(queue, month_ms - 1).claimed) == {"query", "idle", "holds", "asks"}
    assert set(info(queue, month_ms).claimed) == {"holds", "asks"}
    claims.open_claims(queue, "query", month_ms)
    assert set(queue.claims) == {"query", "holds", "asks"}
    assert queue.claims["query"].epoch == 2, "who comes back is not forgotten on the way"
    told = [change for change in queue.changes if isinstance(change, ClaimForgotten)]
    assert told == [ClaimForgotten("idle")]


def test_that_one_asks_is_noted_once_a_day(queue: Queue) -> None:
    """A query that gets nothing for a month must not be forgotten; nor fill the journal."""
    take(queue, 4)
    claims.open_claims(queue, "query", 1_000)
    commit(queue)
    for hour in range(50):
        claims.claim(queue, "query", 1, 0, 4, 1_000 + hour * 3_600_000, TIMEOUT_MS)
    told = [change for change in queue.changes if isinstance(change, ClaimOpened)]
    assert told == [ClaimOpened("query", 1, 1_000 + day * DAY_MS) for day in (1, 2)]
    again = orders()
    apply(again, [[ClaimOpened("query", 1, 1_000)], told])
    assert again.claims["query"].seen_ms == queue.claims["query"].seen_ms


def test_what_an_older_broker_has_kept_of_claims_is_read() -> None:
    """It did not note when: nobody is forgotten for that, and ages count from its last moment."""
    old = Image(now_ms=5_000, claims={"query": ClaimImage(3, 7, {})})
    fields = msgspec.msgpack.decode(encode_image(old))
    fields["claims"]["query"] = fields["claims"]["query"][:3]
    queue = orders()
    revive(queue, decode_image(msgspec.msgpack.encode(fields)))
    assert queue.claims["query"].seen_ms == 5_000
    records = msgspec.msgpack.encode([[10, "q", 1], [11, "q", 1, 5], [13, "q", 1]])
    assert decode_queue_changes(records) == [
        ClaimOpened("q", 1),
        Claimed("q", 1, 5),
        ClaimAcked("q", 1),
    ]


def test_forgetting_may_send_to_the_dead_letters(queue: Queue) -> None:
    claims.open_claims(queue, "query")
    claim(queue, 0)
    assert claims.forget_claims(queue, "query", 1_000, dead_letter=True) == 2
    assert claims.forget_claims(queue, "query", 1_000) == 0
    assert (queue.ready, "query" in queue.claims) == (2, False)
