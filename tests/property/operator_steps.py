"""What an operator and the engine itself do: purge, pause, moves, looking, copying forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from nexo.machine import claims as claim_rules
from nexo.machine import compact, move, peek, purge
from nexo.vocabulary.batch import Batch
from nexo.vocabulary.limits import POP_BYTES_MAX
from nexo.vocabulary.states import Cause
from tests.property.model import arrival, claims, delivery, passing
from tests.property.pair import INCARNATION, NAME
from tests.property.steps import QueueSteps, expected_message

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.span import Span


RARE = ["purge", "purge", "pause", "resume", "resume", "work off", "clock", "crash", "crash"]
RARE += ["evict", "look"]


class OperatorSteps(QueueSteps):
    def __init__(self) -> None:
        super().__init__()
        self.picked: list[tuple[int, Span]] = []

    # One rule for what is rare, so that queues get to hold something in between.
    @rule(
        what=st.sampled_from(RARE),
        number=st.sampled_from([0, 1, 2, 1000]),
    )
    def rarely(self, what: str, number: int) -> None:
        if what == "purge":
            if number:
                self.pair.begin_commit()  # a purge must not trip over a commit under way
            self.purge()
        elif what in ("pause", "resume"):
            self.pause(what == "pause")
        elif what == "work off":
            self.work_everything_off()
        elif what == "clock":
            self.now -= 7
        elif what == "evict":
            self.pair.evict()
        elif what == "look":
            self.look(max(1, number))
        else:
            self.crash(number)

    def crash(self, commits_lost: int) -> None:
        if self.pair.making is not None and commits_lost < 2:
            self.pair.begin_commit(1000)  # right after the end of a snapshot, or right before it
        self.pair.crash(commits_lost)
        self.picked = []  # a move begins again after a crash

    def purge(self) -> None:
        gone = purge.purge(self.pair.queue, self.now)
        expected = self.pair.model.purge(self.now)
        assert gone == expected, f"purged {gone}, not {expected}"

    def pause(self, paused: bool) -> None:
        self.pair.queue.set_paused(paused)
        self.pair.model.paused = paused

    # -- Dead letters and redrive -------------------------------------------------------------

    @precondition(lambda self: self.pair.queue.doomed)
    @rule()
    def bury(self) -> None:
        """The oldest doomed messages arrive in the dead-letter queue."""
        queue, model = self.pair.queue, self.pair.model
        doomed = queue.doomed.pop(0)
        seqs = range(doomed.span.first, doomed.span.end)
        self.load(doomed.span)
        self.check_departing(move.dead_letters(queue, doomed), doomed.span, dead=True)
        there = move.take_out(
            queue, doomed.lease, doomed.span, Cause.DEAD_LETTERED, doomed.reason, self.now
        )
        assert there, f"{doomed.span} is doomed and not there"
        model.advance(self.now)
        passing.depart(model, seqs, dead=True)

    @precondition(lambda self: self.pair.model.items)
    @rule(count=st.sampled_from([1, 2, 5]))
    def pick(self, count: int) -> None:
        """A move takes messages from the head of the line; a pause and the rate do not stop it."""
        model = self.pair.model
        self.pair.sort()
        for lease, span in move.pick(self.pair.queue, count):
            seqs = range(span.first, span.end)
            delivery.check_choice(model, seqs, count, POP_BYTES_MAX, self.noisy_min, enough=False)
            assert not model.of_lease(lease), f"lease {lease} was given out twice"
            passing.pick(model, lease, seqs)
            self.picked.append((lease, span))
            count -= len(seqs)
        left = [item.seq for item in delivery.in_line(model)]
        assert not count or not left, f"the move takes {count} more, and {left} are in line"

    @precondition(lambda self: self.picked)
    @rule(arrive=st.booleans(), part=st.booleans())
    def end_of_a_move(self, arrive: bool, part: bool) -> None:
        """Picked messages depart, all or the first of them, or go back to the line."""
        queue, model = self.pair.queue, self.pair.model
        lease, span = self.picked.pop(0)
        there = bool(model.of_lease(lease))
        if part and there and span.end - span.first > 1:
            rest = lease, span
            lease, span = move.split(queue, lease, span, span.first + 1)
            model.items[span.first].lease = lease
            self.picked.insert(0, rest)
        if not arrive:
            move.unpick(queue, lease)
            passing.unpick(model, lease)
            return
        if there:
            self.load(span)
            self.check_departing(move.redriven(queue, span), span, dead=False)
        departed = move.take_out(queue, lease, span, Cause.REDRIVEN, "", self.now)
        assert departed == there, f"departed: {departed}, was there: {there}"
        model.advance(self.now)
        if there:
            passing.depart(model, range(span.first, span.end), dead=False)

    def load(self, span: Span) -> None:
        if span.chunk.content is None:
            self.pair.read_back(span.chunk)

    def check_departing(self, batch: Batch, span: Span, dead: bool) -> None:
        """What arrives in the other queue: the same messages, with their ids."""
        model = self.pair.model
        for index, seq in enumerate(range(span.first, span.end)):
            item = model.items[seq]
            found = (
                batch.body(index),
                batch.priority,
                batch.delay_ms,
                *(
                    arrival.value(column, index)
                    for column in (batch.groups, batch.deduplication_ids, batch.attributes)
                ),
                batch.origins[index] if batch.origins else None,
            )
            expected = (
                item.body,
                item.priority,
                0,
                item.group,
                item.deduplication_id,
                item.attributes,
                passing.origin_of(model, item, INCARNATION, NAME, dead),
            )
            assert found == expected, f"{seq} departs as {found}, not {expected}"

    # -- Looking ------------------------------------------------------------------------------

    def look(self, limit: int) -> None:
        queue, model = self.pair.queue, self.pair.model
        glances = peek.glance(queue, limit)
        for glance in glances:
            self.load(glance.span)
        shown = peek.show(queue, glances)
        items = sorted(model.items.values(), key=lambda item: (-item.priority, item.seq))
        settled = [item for item in items if item.settled][:limit]
        expected = [expected_message(item, item.state) for item in settled]
        assert shown == expected, f"shown:\n{shown}\nexpected:\n{expected}"
        info = peek.info(queue, queue.now_ms)
        held = {
            name: sum(len(model.of_lease(batch.lease)) for batch in consumer.batches.values())
            for name, consumer in model.consumers.items()
        }
        assert info.claimed == held, f"claimed {info.claimed}, not {held}"
        assert info.paused == model.paused
        oldest = min((item.created for item in items), default=queue.now_ms)
        age = queue.now_ms - oldest
        assert 0 <= info.oldest_age_ms <= age, f"the oldest is {info.oldest_age_ms} old, not {age}"

    def closed_chunks(self) -> list[Chunk]:
        return [
            chunk
            for lane in self.pair.queue.lanes
            for chunk in lane.log.chunks.values()
            if chunk.end <= lane.log.settled and isinstance(chunk.content, Batch)
        ]

    @precondition(lambda self: self.closed_chunks())
    @rule(which=st.integers(0, 3))
    def copy_forward(self, which: int) -> None:
        """The live messages of a chunk become a row of their own."""
        chunks = self.closed_chunks()
        compact.copy_forward(self.pair.queue, chunks[which % len(chunks)])

    # -- The end of all work ------------------------------------------------------------------

    def work_everything_off(self) -> None:
        """Whatever happened before, consumers that go on get everything, and nothing is left."""
        queue, model = self.pair.queue, self.pair.model
        while self.picked:
            self.end_of_a_move(arrive=False, part=False)
        for name in list(model.consumers):
            claim_rules.release(queue, name, self.now)
            claims.release(model, name, self.now, dead_letter=False)
        self.pause(False)
        for _ in range(200):
            while queue.doomed:
                self.bury()
            self.pair.commit()
            self.receipts.clear()
            self.pop(10, POP_BYTES_MAX, None, True, "")
            for which in range(len(self.receipts)):
                self.say(which, "all", "ack", None, 0, "")
            if not model.items:
                return
            self.now += round(1_000 / (queue.settings.max_receive_rate or 20))
            self._run_due()
        left = [(item.seq, item.state.name) for item in model.items.values()]
        raise AssertionError(f"these messages never leave: {left}")
