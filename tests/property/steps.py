"""What can happen to a queue, as steps of a state machine: push, pop, acks, time, commits, crashes.

Every step does the same to the rules and to the model; after each of them everything is compared.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nexo.machine import ack as ack_rules
from nexo.machine import deadlines as time_rules
from nexo.machine import fail, late_receipts
from nexo.machine import pop as pop_rules
from nexo.machine import push as push_rules
from nexo.machine.log import Place
from nexo.vocabulary.batch import TIME_TYPE, batch_of
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import LEASE_BITS, POP_BYTES_MAX
from nexo.vocabulary.message import Message
from nexo.vocabulary.states import State
from tests.property.draws import SPOILED, WAITS, Profile, marked, moved, spoiled
from tests.property.model import arrival, delivery, passing
from tests.property.pair import INCARNATION, Pair
from tests.property.plain import seen
from tests.property.small import NOISY_IN_FLIGHT_MIN, PRODUCER_RESULTS_KEPT

if TYPE_CHECKING:
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.settings import QueueSettings
    from tests.property.model.state import Item

RECEIPTS_KEPT = 12  # old ones are stale mostly, and stale receipts are soon tried enough


@cache  # to build strategies takes longer than to draw from them
def usual_steps(profile: Profile) -> st.SearchStrategy[tuple[Any, ...]]:
    """The steps that every queue takes all the time, with their arguments."""
    any_of = st.sampled_from
    batches, parts = profile.batches(), any_of(["all", "all", "first", "last", "middle", "more"])
    push = st.tuples(
        st.just("push"),
        batches,
        any_of(["", "", "p", "r"]),
        st.integers(0, 6),
        st.booleans(),
    )
    otherwise = st.tuples(
        st.just("push_otherwise"),
        batches,
        any_of(["one", "one", "refused", "moved", "shared"]),
        st.integers(0, 6),
    )
    pop = st.tuples(
        st.just("pop"),
        any_of([1, 2, 3, 10]),
        any_of([POP_BYTES_MAX, POP_BYTES_MAX, 12, 30, 1]),
        any_of([None, None, 30]),
        any_of([True, False]),
        any_of(["", "c"]),
    )
    say = st.tuples(
        st.just("say"),
        st.integers(0, RECEIPTS_KEPT - 1),
        parts,
        any_of(["received", "received", "ack", "nack", "extend", "give"]),
        any_of([None, None, 0, 15, 100_000_000]),
        any_of([0, 40, 40, 5_000_000_000]),
        any_of(["", "bad"]),
    )
    work = st.tuples(
        st.just("work"),
        any_of([1, 3, 10]),
        st.booleans(),
        any_of(["ack", "nack", "extend", "give", "received"]),
        any_of(["all", "first", "last", "middle"]),
        any_of([None, 0, 15]),
    )
    wait = st.tuples(st.just("wait"), WAITS, st.booleans(), st.booleans())
    disk = st.tuples(
        st.just("disk"), any_of(["commit", "begin", "begin", "end"]), any_of([0, 1, 2, 9])
    )
    late = st.tuples(st.just("discard"), st.integers(0, RECEIPTS_KEPT - 1))
    return st.one_of(push, otherwise, pop, say, say, work, work, wait, disk, late)


def usual_rule(name: str) -> Any:
    """A rule that takes one of the usual steps."""

    def take(self: QueueSteps, step: tuple[Any, ...]) -> None:
        method, *arguments = step
        getattr(self, method)(*arguments)

    take.__name__ = name
    return rule(step=st.runner().flatmap(lambda self: usual_steps(self.profile)))(take)


class QueueSteps(RuleBasedStateMachine):
    """The steps that every kind of queue takes."""

    profile: ClassVar[Profile]

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.serial = 0
        self.receipts: list[tuple[int, int, int]] = []  # lease, first, end

    @initialize(settings=st.runner().flatmap(lambda self: self.profile.settings()))
    def begin(self, settings: QueueSettings) -> None:
        self.pair = Pair(settings)

    @invariant()
    def agree(self) -> None:
        self.pair.check()
        queue, model = self.pair.queue, self.pair.model
        deliverable = not model.paused and bool(delivery.in_line(model))
        if queue.is_sorted or not deliverable:
            assert queue.has_ready() == deliverable, f"has_ready() is {queue.has_ready()}"
        self._check_alarm()

    def _check_alarm(self) -> None:
        """The time at which the engine wakes up is not after anything that is due."""
        due = passing.next_due(self.pair.model, self.pair.times())
        alarm = time_rules.next_ms(self.pair.queue)
        if due is not None:
            assert alarm is not None, f"no alarm although something is due at {due}"
            assert alarm <= due, f"the alarm is at {alarm}, something is due at {due}"

    # Four of a kind: hypothesis leaves out some rules in most runs, and without any of these the
    # rest would find nothing to do.
    usual_1 = usual_rule("usual_1")
    usual_2 = usual_rule("usual_2")
    usual_3 = usual_rule("usual_3")
    usual_4 = usual_rule("usual_4")

    @property
    def noisy_min(self) -> int | None:
        """Given for queues with groups that are not FIFO: they are fair."""
        queue = self.pair.queue
        fair = queue.busy is not None and not queue.settings.fifo
        return NOISY_IN_FLIGHT_MIN if fair else None

    # -- Coming in ----------------------------------------------------------------------------

    def fresh(self, batch: Batch) -> Batch:
        self.serial += batch.count
        return batch if self.profile.same_bodies else marked(batch, self.serial)

    def push(self, batch: Batch, producer: str, number: int, durable: bool) -> None:
        self._push(self.fresh(batch), producer, number)
        if durable:  # else most pops would find nothing
            self.pair.commit()

    def push_otherwise(self, batch: Batch, how: str, number: int) -> None:
        """The other ways in, in one rule: they are fewer in life than plain pushes too."""
        if how == "one":
            choices = [*self.profile.priorities, *self.profile.priorities, 1, 256]
            self.push_one(batch.body(0), choices[number % len(choices)])
        elif how == "refused":
            self._push(spoiled(batch, SPOILED[number]), "", 0)
        elif how == "moved":
            self.arrive_from_another_queue(batch)
        else:
            self.arrive_from_a_topic(batch, start=number % 2)

    def _push(self, batch: Batch, producer: str, number: int) -> None:
        model, kept = self.pair.model, PRODUCER_RESULTS_KEPT
        accepted, answer = self.pair.both(
            lambda: push_rules.push(self.pair.queue, batch, self.now, producer, number),
            lambda: arrival.push(model, batch, self.now, kept, producer, number),
        )
        if accepted is not None:
            got = (accepted.seqs(), accepted.duplicates)
            assert got == answer, f"the push was answered {got}, not {answer}"

    def push_one(self, body: bytes, priority: int) -> None:
        batch = msgspec.structs.replace(self.fresh(batch_of([body])), priority=priority)
        seq, answer = self.pair.both(
            lambda: push_rules.push_one(self.pair.queue, batch.body(0), self.now, priority),
            lambda: arrival.push(self.pair.model, batch, self.now, 0),
        )
        if answer is not None:
            assert seq == answer[0][0], f"the message got number {seq}, not {answer[0][0]}"

    def arrive_from_another_queue(self, batch: Batch) -> None:
        batch = moved(self.fresh(batch), self.serial)
        accepted = push_rules.push_moved(self.pair.queue, batch, self.now)
        answer = arrival.push_moved(self.pair.model, batch, self.now)
        assert accepted.seqs() == answer, f"moved to {accepted.seqs()}, not {answer}"

    def arrive_from_a_topic(self, batch: Batch, start: int) -> None:
        """The topic's row may hold more than what goes to this queue, and says when each message
        was published."""
        is_small = start or batch.count % 2  # a topic notes the times of small batches alone
        published = array(TIME_TYPE, [self.now - 9] * batch.count) if is_small else None
        batch = msgspec.structs.replace(
            self.fresh(batch), priority=0, delay_ms=None, created=published
        )
        start = start if start < batch.count else 0
        part = batch.slice(start, batch.count)
        row = next(self.pair.row_numbers)
        self.pair.queue.new_rows.append((row, batch))
        push_rules.push_shared(self.pair.queue, part, Place(row, start, not start), self.now)
        arrival.push_shared(self.pair.model, part, self.now)

    # -- Going out ----------------------------------------------------------------------------

    def pop(
        self, count: int, bytes_max: int, visibility: int | None, one_ack: bool, consumer: str
    ) -> None:
        pair, model = self.pair, self.pair.model
        pair.sort()
        got = pop_rules.pop(
            pair.queue,
            count,
            self.now,
            bytes_max=bytes_max,
            consumer=consumer,
            visibility_ms=visibility,
            one_ack=one_ack,
        )
        now = model.advance(self.now)
        messages = pop_rules.messages(pair.queue, got)
        seqs = [message.seq for message in messages]
        wanted = 0 if model.paused else delivery.allowed(model, count, now)
        whole = got.missing is None
        delivery.check_choice(model, seqs, wanted, bytes_max, self.noisy_min, whole)
        if seqs:
            assert got.lease >> LEASE_BITS == pair.boots, "a lease number of an earlier boot"
            assert not model.of_lease(got.lease), f"lease {got.lease} was given out twice"
            timeout = model.settings.visibility_timeout_ms if visibility is None else visibility
            wait = timeout if one_ack else model.settings.retransmit_timeout_ms
            delivery.lease_out(model, seqs, got.lease, got.state, now + wait, timeout, consumer)
            expected = [expected_message(model.items[seq], got.state) for seq in seqs]
            assert messages == expected, f"delivered:\n{messages}\nexpected:\n{expected}"
            self.receipts += [(got.lease, p.first, p.first + p.count) for p in got.parts]
            self.receipts += [(got.lease, min(seqs), max(seqs) + 1)] * (len(got.parts) > 1)
            del self.receipts[:-RECEIPTS_KEPT]
        if got.missing is not None:
            pair.read_back(got.missing)

    # -- What a consumer says -----------------------------------------------------------------

    def receipt(self, which: int, part: str) -> tuple[int, int, int]:
        """A receipt given out before, or part of it, or more than it."""
        lease, first, end = self.receipts[which % len(self.receipts)]
        if part == "first":
            return lease, first, first + 1
        if part == "last":
            return lease, end - 1, end
        if part == "middle":
            return lease, first + (end - first) // 3, end - (end - first) // 3
        if part == "more":
            return lease, max(0, first - 2), end + 2
        return lease, first, end

    def say(
        self, which: int, part: str, what: str, delay: int | None, timeout: int, reason: str
    ) -> None:
        if not self.receipts:
            return
        queue, model, now = self.pair.queue, self.pair.model, self.now
        at = self.receipt(which, part)
        commands: dict[str, tuple[Any, Any]] = {
            "received": (
                lambda: ack_rules.received(queue, *at, now),
                lambda: delivery.received(model, *at, now),
            ),
            "ack": (lambda: ack_rules.ack(queue, *at, now), lambda: delivery.ack(model, *at)),
            "nack": (
                lambda: fail.nack(queue, *at, now, delay, reason),
                lambda: delivery.nack(model, *at, now, delay, reason),
            ),
            "extend": (
                lambda: ack_rules.extend(queue, *at, timeout, now),
                lambda: delivery.extend(model, *at, timeout, now),
            ),
            "give": (
                lambda: fail.give_back(queue, *at, now),
                lambda: delivery.give_back(model, *at, now),
            ),
        }
        applied, expected = self.pair.both(*commands[what])
        if applied is not None:
            pairs = zip(applied[::2], applied[1::2], strict=True)
            seqs = sorted(seq for first, end in pairs for seq in range(first, end))
            assert seqs == sorted(expected), f"{what} applied to {seqs}, not {sorted(expected)}"

    def discard(self, which: int) -> None:
        """What SQS lets a late consumer do on a standard queue: the message goes, wherever it
        is."""
        queue, model = self.pair.queue, self.pair.model
        if not self.receipts or model.settings.fifo:
            return
        lease, seq, _ = self.receipts[which % len(self.receipts)]
        holder = late_receipts.lease_of(queue, seq)
        assert holder == delivery.holder_of(model, seq), f"{seq} is held by lease {holder}"
        is_late = late_receipts.has_timed_out(queue, lease, seq)
        assert not is_late or model.items[seq].state is State.READY, f"{seq} is not in line"
        gone = late_receipts.discard(queue, seq, self.now)
        assert gone == delivery.discard(model, seq, self.now), f"discarding {seq} gave {gone}"

    def work(self, count: int, one_ack: bool, outcome: str, part: str, delay: int | None) -> None:
        """A consumer's usual round in one step, so that queues move on also in short lives."""
        before = len(self.receipts)
        self.pop(count, POP_BYTES_MAX, None, one_ack, "c")
        for which in range(min(before, RECEIPTS_KEPT - 1), len(self.receipts)):
            if not one_ack and part != "last":  # else it is forgotten
                self.say(which, "all", "received", None, 0, "")
            self.say(which, part, outcome, delay, 40, "")
            self.pair.check()

    # -- Time ---------------------------------------------------------------------------------

    def wait(self, wait: int, run_due: bool, sleep: bool) -> None:
        """Time passes; or the engine sleeps until its alarm, and does what is due."""
        alarm = time_rules.next_ms(self.pair.queue)
        # Not for too long, or everything would end by retention.
        if sleep and alarm is not None and alarm <= self.now + 2_000:
            self.now = max(self.now, alarm)
        else:
            self.now += wait
        if run_due or sleep:
            self._run_due()

    def _run_due(self) -> None:
        queue, model = self.pair.queue, self.pair.model
        times = self.pair.times()
        time_rules.run_due(queue, self.now)
        passing.run_due(model, self.now)
        passing.retire(model, set(seen(queue)), times)
        alarm = time_rules.next_ms(queue)
        assert alarm is None or alarm > queue.now_ms, f"{alarm} is past, and the alarm is still set"
        self.pair.check()

    # -- The disk -----------------------------------------------------------------------------

    def disk(self, what: str, entries: int) -> None:
        """A commit, or a slow one: what happens between its begin and its end is not part of it.
        With `entries` a snapshot begins or goes on."""
        if what == "commit":
            self.pair.commit(entries)
        elif what == "begin":
            self.pair.begin_commit(entries)
        elif self.pair.under_way:
            self.pair.end_commit()


def expected_message(item: Item, state: State) -> Message:
    """The message as its consumer, or somebody who looks, has to see it."""
    origin = item.origin
    return Message(
        id=origin.id if origin else message_id(INCARNATION, item.seq),
        seq=item.seq,
        body=item.body,
        priority=item.priority,
        attempts=item.attempts,
        created_ms=origin.created_ms if origin else item.created,
        visible_ms=item.deadline,
        state=state,
        lease=item.lease,
        delayed_until_ms=item.due,
        first_delivered_ms=item.first_delivered,
        group_id=item.group,
        deduplication_id=item.deduplication_id,
        attributes=item.attributes,
        dead_letter=origin.dead_letter if origin else None,
    )
