"""What a Spark query does: it claims numbered batches, seals them, and acks them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import rule

from nexo.machine import claims as rules
from nexo.vocabulary.changes import Delivered
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.limits import POP_BYTES_MAX
from nexo.vocabulary.states import State
from tests.property.model import claims, delivery
from tests.property.model.state import ClaimedBatch
from tests.property.operator_steps import OperatorSteps
from tests.property.small import CLAIM_BATCHES_MAX

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span

NAMES = st.sampled_from(["query", "query", "other"])
# A driver that lost its place asks for what is behind or ahead of it.
STEPS = st.sampled_from([0, 0, 0, 0, 1, -1, 2])
TIMEOUTS = st.sampled_from([30, 30, 0])


def delivered(queue: Queue, lease: int) -> list[int]:
    """What a lease was given, in the order in which it stood in line."""
    granted = next(
        change
        for change in reversed(queue.changes)
        if isinstance(change, Delivered) and change.lease == lease
    )
    return [
        seq
        for low, high in zip(granted.ranges[::2], granted.ranges[1::2], strict=True)
        for seq in range(low, high)
    ]


def in_order(spans: list[Span]) -> list[int]:
    return [seq for span in spans for seq in range(span.first, span.end)]


class ClaimSteps(OperatorSteps):
    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}

    def epoch(self, name: str, outdated: int) -> int:
        return self.epochs.get(name, 1) - outdated

    def crash(self, commits_lost: int) -> None:
        super().crash(commits_lost)
        self.epochs = {name: consumer.epoch for name, consumer in self.pair.model.consumers.items()}

    def acked(self, name: str) -> int:
        consumer = self.pair.model.consumers.get(name)
        return consumer.acked_through if consumer is not None else 0

    @rule(
        name=NAMES,
        what=st.sampled_from(["claim", "claim", "seal", "ack", "batch", "batch"]),
        outdated=st.sampled_from([0, 0, 0, 0, 1]),
        step=STEPS,
        count=st.sampled_from([1, 3, 3, 10, 10, 0]),
        bytes_max=st.sampled_from([POP_BYTES_MAX, POP_BYTES_MAX, 20]),
        timeout=TIMEOUTS,
    )
    def drive(
        self,
        name: str,
        what: str,
        outdated: int,
        step: int,
        count: int,
        bytes_max: int,
        timeout: int,
    ) -> None:
        """A driver's step; "batch" is the usual round up to the ack, which comes with the next."""
        if name not in self.epochs:
            self.other_claim_steps(name, "open", 0, 0)
        if what == "batch":
            self.claim(name, 0, 0, count, bytes_max, timeout)
            self.seal(name, 0, 0)
        elif what == "claim":
            self.claim(name, outdated, step, count, bytes_max, timeout)
        elif what == "seal":
            self.seal(name, outdated, step)
        else:
            self.ack_claims(name, outdated, step)

    drive_on = drive

    def claim(
        self, name: str, outdated: int, step: int, count: int, bytes_max: int, timeout: int
    ) -> None:
        queue, model, now = self.pair.queue, self.pair.model, self.now
        epoch, after = self.epoch(name, outdated), self.acked(name) + step
        chunks = [chunk for lane in queue.lanes for chunk in lane.log.chunks.values()]
        is_resident = all(chunk.content is not None for chunk in chunks)
        self.pair.sort()
        got, known = self.pair.both(
            lambda: rules.claim(queue, name, epoch, after, count, now, timeout, bytes_max),
            lambda: (
                claims.known_batch(
                    model, name, epoch, after, count, now, timeout, CLAIM_BATCHES_MAX
                ),
            ),
        )
        if got is None:
            return
        batch: ClaimedBatch | None = known[0]
        if batch is not None:
            held = len(model.of_lease(batch.lease))
            assert (got.number, got.count) == (after + 1, held), f"{got}, not {held} messages"
            return
        wanted = 0 if model.paused else delivery.allowed(model, count, model.now)
        seqs: list[int] = []
        if got.number:
            assert got.number == after + 1, f"batch {got.number} instead of {after + 1}"
            lease = queue.claims[name].batches[got.number].lease
            seqs = delivered(queue, lease)
            held_seqs = in_order(rules.held_by(queue, name, epoch, got.number))
            assert held_seqs == sorted(seqs, key=lambda seq: (-priority_of(seq), seq)), (
                f"claimed {seqs}, a reader gets {held_seqs}"
            )
        # Of content on disk a claim knows the mean size: a small limit is met roughly then.
        exact = is_resident or bytes_max == POP_BYTES_MAX
        limit = bytes_max if exact else POP_BYTES_MAX
        delivery.check_choice(model, seqs, wanted, limit, self.noisy_min, exact and wanted > 0)
        assert got.count == len(seqs), f"{got.count} claimed, {len(seqs)} held"
        if seqs:
            lease = queue.claims[name].batches[got.number].lease
            assert not model.of_lease(lease), f"lease {lease} was given out twice"
            deadline = model.now + timeout
            delivery.lease_out(model, seqs, lease, State.CLAIMED, deadline, 0, name)
            model.consumers[name].batches[got.number] = ClaimedBatch(lease)

    def seal(self, name: str, outdated: int, step: int) -> None:
        queue, model, now = self.pair.queue, self.pair.model, self.now
        epoch, number = self.epoch(name, outdated), self.acked(name) + 1 + step
        got, batch = self.pair.both(
            lambda: rules.seal(queue, name, epoch, number, now),
            lambda: claims.seal(model, name, epoch, number, now),
        )
        if got is not None:
            held = len(model.of_lease(batch.lease))
            assert (got.number, got.count) == (number, held), f"{got}, not {held} messages"

    def ack_claims(self, name: str, outdated: int, step: int) -> None:
        queue, model, now = self.pair.queue, self.pair.model, self.now
        epoch, through = self.epoch(name, outdated), self.acked(name) + 1 + step
        got, expected = self.pair.both(
            lambda: rules.ack_claims(queue, name, epoch, through, now),
            lambda: claims.ack_claims(model, name, epoch, through, now),
        )
        assert got == expected, f"{got} messages acked, not {expected}"

    @rule(
        name=NAMES,
        what=st.sampled_from(["open", "open", "keep", "keep", "release", "bury", "forget"]),
        outdated=st.sampled_from([0, 0, 0, 1]),
        timeout=TIMEOUTS,
    )
    def other_claim_steps(self, name: str, what: str, outdated: int, timeout: int) -> None:
        queue, model, now = self.pair.queue, self.pair.model, self.now
        if what == "open":
            epoch, expected = self.pair.both(
                lambda: rules.open_claims(queue, name, now),
                lambda: claims.open_claims(model, name, now),
            )
            assert epoch == expected, f"epoch {epoch}, not {expected}"
            self.epochs[name] = epoch
        elif what == "keep":
            epoch = self.epoch(name, outdated)
            self.pair.both(
                lambda: rules.keep_claims(queue, name, epoch, now, timeout),
                lambda: claims.keep_claims(model, name, epoch, now, timeout),
            )
        elif what == "forget" and name in model.consumers:
            rules.forget_claims(queue, name, now)
            claims.forget_claims(model, name, now)
            del self.epochs[name]
        else:
            got = rules.release(queue, name, now, what == "bury")
            expected = claims.release(model, name, now, what == "bury")
            assert got == expected, f"{got} messages released, not {expected}"
