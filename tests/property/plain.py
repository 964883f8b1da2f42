"""What the rules know of each message, spread out of their spans, in the form of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nexo.machine.queue import Queue
    from nexo.machine.span import Span
    from tests.property.model.state import Item

# What a message has besides its history depends on where it is.
ON_LEASE = (State.SENT, State.RECEIVED, State.CLAIMED, State.SEALED, State.DOOMED)


def seen(queue: Queue) -> dict[int, dict[str, Any]]:
    """Every message of the queue by its number."""
    found: dict[int, dict[str, Any]] = {}
    for span, state, lease, due in _places(queue):
        history = span.history
        for seq in range(span.first, span.end):
            assert seq not in found, f"{seq} is in two places"
            found[seq] = {
                "state": state.name,
                "group": span.group,
                "attempts": history.attempts if history else 0,
                "first_delivered": history.first_delivered_ms if history else 0,
                "first_failed": history.first_failed_ms if history else 0,
            }
            if state in ON_LEASE:
                found[seq]["deadline"] = span.deadline_ms
                found[seq]["visibility"] = span.visibility_ms
                found[seq]["consumer"] = span.consumer
            if lease:
                found[seq]["lease"] = lease
            if state is State.SCHEDULED:
                found[seq]["due"] = due
    for doomed in queue.doomed:
        for seq in range(doomed.span.first, doomed.span.end):
            found[seq]["reason"] = doomed.reason
    return found


def plain(item: Item) -> dict[str, Any]:
    """A message of the model in the same form."""
    known = {
        "state": item.state.name,
        "group": item.group,
        "attempts": item.attempts,
        "first_delivered": item.first_delivered,
        "first_failed": item.first_failed,
    }
    if item.state in ON_LEASE:
        known |= {
            "deadline": item.deadline,
            "visibility": item.visibility,
            "consumer": item.consumer,
        }
    if item.lease:
        known["lease"] = item.lease
    if item.state is State.SCHEDULED:
        known["due"] = item.due
    if item.state is State.DOOMED:
        known["reason"] = item.reason
    return known


def differences(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    """What differs between the rules and the model, a line each."""
    lines = []
    for key in sorted(found.keys() | expected.keys()):
        rules, model = found.get(key), expected.get(key)
        if rules == model:
            continue
        if isinstance(rules, dict) and isinstance(model, dict):
            names = rules.keys() | model.keys()
            rules, model = (
                {n: side.get(n) for n in sorted(names) if rules.get(n) != model.get(n)}
                for side in (rules, model)
            )
        lines.append(f"{key}: the rules have {rules}, the model {model}")
    return "the rules and the model differ:\n  " + "\n  ".join(lines)


def _places(queue: Queue) -> Iterator[tuple[Span, State, int, int]]:
    for lane in queue.lanes:
        for span in lane.line.spans():
            yield span, State.READY, 0, 0
    for due, _, span in queue.scheduled:
        if span.first < span.end:
            yield span, State.SCHEDULED, 0, due
    for lease, held in queue.leases.items():
        for span in held:
            yield span, span.state, lease, 0
