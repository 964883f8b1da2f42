"""What consumers say of many deliveries at once. Each range is taken for itself: what cannot be
applied is told, and the rest is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import NexoError, StaleReceipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.machine.queue import Queue

    Ranges = Iterable[tuple[int, int, int]]  # lease, first, end
    Refused = list[tuple[int, int, int, str]]  # the same, and the code of the error


def refused_of(ranges: Ranges, rule: Callable[..., list[int]], queue: Queue, *more: Any) -> Refused:
    """Apply a rule to each range; returns what it refused."""
    refused: Refused = []
    for lease, first, end in ranges:
        try:
            applied = rule(queue, lease, first, end, *more)
        except NexoError as error:
            refused.append((lease, first, end, error.code))
            continue
        if len(applied) != 2 or applied[0] != first or applied[1] != end:
            refused += _rest(lease, first, end, applied)
    return refused


def _rest(lease: int, first: int, end: int, applied: list[int]) -> Refused:
    """What of a range was not applied: it was outdated."""
    rest: Refused = []
    for low, high in sorted(zip(applied[::2], applied[1::2], strict=True)):
        if first < low:
            rest.append((lease, first, low, StaleReceipt.code))
        first = high
    if first < end:
        rest.append((lease, first, end, StaleReceipt.code))
    return rest
