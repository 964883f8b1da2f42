"""The model's deliveries: who is next in line, and what a consumer says of what it holds.

The rules choose freely in two places, and there the model checks the promise, not the choice:
which of several quiet or noisy groups a fair queue serves next beyond "quiet before noisy, and
arrival order between the quiet", and how many empty bodies still go with a full pop.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument, StaleReceipt, WrongState
from nexo.vocabulary.states import Cause, State
from tests.property.model.state import IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.property.model.state import Item, Model

HELD = (State.SENT, State.RECEIVED)


# -- Who is next ------------------------------------------------------------------------------


def in_line(model: Model) -> list[Item]:
    """What may be delivered now, in order: priority, then number."""
    ready = [item for item in model.in_state(State.READY) if item.settled]
    if model.settings.fifo:
        locked = model.locked()
        held: dict[str | None, int] = {}
        for item in model.in_state(State.SCHEDULED):
            held[item.group] = min(item.seq, held.get(item.group, item.seq))
        ready = [
            item
            for item in ready
            if item.seq < min(m.get(item.group, item.seq + 1) for m in (locked, held))
        ]
    return sorted(ready, key=lambda item: (-item.priority, item.seq))


def allowed(model: Model, count: int, now: int) -> int:
    """What the receive rate leaves of a wish for `count` messages."""
    rate = model.settings.max_receive_rate
    if rate is None:
        return count
    exact = Fraction(rate)
    capacity = max(Fraction(1), exact / 10)  # a burst of 100 ms
    if model.tokens is None:
        model.tokens = capacity
    else:
        model.tokens = min(capacity, model.tokens + exact * (now - model.tokens_at) / 1000)
    model.tokens_at = now
    return min(count, int(model.tokens))


def check_choice(
    model: Model,
    chosen: Sequence[int],
    count: int,
    bytes_max: int,
    noisy_min: int | None = None,
    enough: bool = True,
) -> None:
    """Whether a pop that took `chosen` took the right messages in the right order, and `enough`
    of them. `noisy_min` is given for fair queues: below it a group is certainly quiet."""
    line = in_line(model)
    if model.settings.fifo:
        check_turns(line, chosen)
    elif noisy_min is None:
        expected = [item.seq for item in line[: len(chosen)]]
        assert list(chosen) == expected, f"delivered {list(chosen)}, next in line are {expected}"
    else:
        check_fair(model, chosen, noisy_min)
    sizes = [model.items[seq].size for seq in chosen]
    assert len(chosen) <= count, f"{len(chosen)} messages for a pop of {count}"
    assert sum(sizes) <= bytes_max or len(chosen) == 1, f"{sum(sizes)} bytes, limit {bytes_max}"
    left = [item for item in line if item.seq not in set(chosen)]
    if enough and len(chosen) < count and sum(sizes) < bytes_max and left:
        # Which message a fair queue would have taken next is its choice: one of them is too big.
        free = noisy_min is not None or model.settings.fifo
        largest = max(item.size for item in (left if free else left[:1]))
        assert chosen, f"nothing delivered although {left[0].seq} is in line"
        assert sum(sizes) + largest > bytes_max, (
            f"{len(chosen)} of {count} messages and {sum(sizes)} of {bytes_max} bytes delivered "
            f"although {left[0].seq} would have fitted"
        )


def check_turns(line: Sequence[Item], chosen: Sequence[int]) -> None:
    """Each group in its order, and all that it has before the next group: whose turn it is, the
    rules may say."""
    by_group: dict[str | None, list[int]] = {}
    for item in line:
        by_group.setdefault(item.group, []).append(item.seq)
    group_of = {item.seq: item.group for item in line}
    at = 0
    while at < len(chosen):
        assert chosen[at] in group_of, f"{chosen[at]} was delivered and is not in line"
        waiting = by_group.pop(group_of[chosen[at]], [])
        taken = list(chosen[at : at + len(waiting)])
        assert waiting, f"{chosen[at]} was delivered after messages of another group"
        assert taken == waiting[: len(taken)], f"delivered {taken}, next in line are {waiting}"
        at += len(taken)


def check_fair(model: Model, chosen: Sequence[int], noisy_min: int) -> None:
    """Quiet groups before noisy ones, arrival order between the quiet and inside each group."""
    flying: dict[str | None, int] = {}
    for item in model.in_state(*IN_FLIGHT):
        flying[item.group] = flying.get(item.group, 0) + 1
    total = sum(flying.values())
    # A group that was noisy stays behind until one of its messages comes back or goes, so between
    # "certainly quiet" and "noisy" there are groups that the rules may serve either way.
    quiet = [i for i in in_line(model) if i.group is None or flying.get(i.group, 0) < noisy_min]
    taken: list[Item] = []
    for seq in chosen:
        item = model.items[seq]
        waiting = [i for i in in_line(model) if i not in taken]
        assert item in waiting, f"{seq} was delivered and is not in line"
        best = waiting[0].priority
        assert item.priority == best, f"{seq} was delivered before priority {best}"
        same = [i for i in waiting if i.priority == best]
        first = next(i for i in same if i.group == item.group)
        assert item is first, f"{seq} overtook {first.seq} of its group {item.group}"
        quiet_left = [i for i in same if i in quiet]
        count = flying.get(item.group, 0)
        if item in quiet:
            assert item is quiet_left[0], f"{seq} overtook {quiet_left[0].seq}: both are quiet"
        elif count >= noisy_min and count * 10 > total:
            assert not quiet_left, f"noisy {seq} ({item.group}) went before {quiet_left[0].seq}"
        taken.append(item)


def lease_out(
    model: Model,
    seqs: Sequence[int],
    lease: int,
    state: State,
    deadline: int,
    visibility: int,
    consumer: str,
) -> None:
    """A delivery, which counts as an attempt."""
    for seq in seqs:
        item = model.items[seq]
        item.state, item.lease, item.deadline = state, lease, deadline
        item.visibility, item.consumer = visibility, consumer
        item.was_due = 0
        item.attempts += 1
        item.first_delivered = item.first_delivered or model.now
    model.totals["delivered"] += len(seqs)
    if model.tokens is not None:
        model.tokens -= len(seqs)


# -- What a consumer says ---------------------------------------------------------------------


def held(model: Model, lease: int, first: int, end: int, *states: State) -> list[Item]:
    """The messages of a delivery that are still its consumer's."""
    found = [i for i in model.of_lease(lease) if first <= i.seq < end and i.state in HELD]
    if not found:
        raise StaleReceipt("outdated")
    if any(item.state not in states for item in found):
        raise WrongState("out of order")
    return found


def received(model: Model, lease: int, first: int, end: int, now: int) -> list[int]:
    now = model.advance(now)
    items = held(model, lease, first, end, *HELD)
    for item in items:
        if item.state is State.SENT:
            item.state, item.deadline = State.RECEIVED, now + item.visibility
    return [item.seq for item in items]


def ack(model: Model, lease: int, first: int, end: int) -> list[int]:
    items = held(model, lease, first, end, State.RECEIVED)
    for item in items:
        model.totals["acked"] += 1
        model.land(item)
        model.remove(item)
    return [item.seq for item in items]


def extend(model: Model, lease: int, first: int, end: int, timeout: int, now: int) -> list[int]:
    now = model.advance(now)
    if not 0 <= timeout <= limits.TIMEOUT_MS_MAX:
        raise InvalidArgument("timeout")
    items = held(model, lease, first, end, State.RECEIVED)
    for item in items:
        item.deadline = now + timeout
    return [item.seq for item in items]


def nack(
    model: Model, lease: int, first: int, end: int, now: int, delay: int | None, reason: str
) -> list[int]:
    now = model.advance(now)
    if delay is not None and not 0 <= delay < model.settings.retention_ms:
        raise InvalidArgument("delay")
    items = held(model, lease, first, end, *HELD)
    for item in items:
        fail(model, item, Cause.NACKED, reason or "nacked", delay)
    return [item.seq for item in items]


def give_back(model: Model, lease: int, first: int, end: int, now: int) -> list[int]:
    model.advance(now)
    items = held(model, lease, first, end, *HELD)
    for item in items:
        come_back_unseen(model, item)
    return [item.seq for item in items]


def holder_of(model: Model, seq: int) -> int | None:
    """The lease on which a consumer holds a message."""
    item = model.items.get(seq)
    return item.lease if item is not None and item.state in HELD else None


def discard(model: Model, seq: int, now: int) -> bool:
    """A late consumer says that the work is done: the message goes from the line, the schedule or
    another consumer. Claims and moves keep what they have."""
    model.advance(now)
    item = model.items.get(seq)
    if item is None or item.state not in (State.READY, State.SCHEDULED, *HELD):
        return False
    if item.state in HELD:
        model.land(item)
    model.totals["acked"] += 1
    model.remove(item)
    return True


# -- Coming back ------------------------------------------------------------------------------


def fail(model: Model, item: Item, cause: Cause, reason: str, delay: int | None = None) -> None:
    """A delivery failed: dead letter, or back after a wait."""
    model.totals["nacked" if cause is Cause.NACKED else "timed_out"] += 1
    limit = model.settings.max_attempts
    if limit is not None and item.attempts >= limit:
        mark_doomed(model, item, reason)
        return
    come_back(model, item)
    earliest, latest = (delay, delay) if delay is not None else backoff(model, item.attempts)
    if latest:
        item.state = State.SCHEDULED
        item.due, item.due_latest = model.now + earliest, model.now + latest


def mark_doomed(model: Model, item: Item, reason: str) -> None:
    item.state, item.deadline, item.reason = State.DOOMED, model.now, reason


def come_back(model: Model, item: Item) -> None:
    item.state = State.READY
    item.first_failed = item.first_failed or model.now
    model.land(item)


def come_back_unseen(model: Model, item: Item) -> None:
    """As if it had never been delivered."""
    item.state = State.READY
    item.attempts -= 1
    if not item.attempts:
        item.first_delivered = item.first_failed = 0
    model.land(item)


def backoff(model: Model, attempts: int) -> tuple[int, int]:
    """The shortest and the longest wait after that many attempts."""
    wanted = model.settings.backoff
    if wanted is None:
        return 0, 0
    wait = min(wanted.max_ms, wanted.initial_ms * wanted.factor ** (attempts - 1))
    return int(wait * (1 - wanted.jitter)), int(wait)
