"""The check of `nexo.events`: what the broker told adds up to what its queues count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.vocabulary.events import decode_event
from nexo.vocabulary.names import EVENTS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.engine.engine import Engine
    from nexo.vocabulary.events import Event

_COUNTED = ("pushed", "delivered", "acked", "nacked", "expired", "dead_lettered")
_GONE = ("acked", "dead_lettered", "redriven", "purged")


async def check_lives(engine: Engine, queues: Iterable[str], is_exact: bool) -> None:
    """`is_exact` unless events may have waited when the broker crashed: those are lost, so then
    there may be fewer. There are never more."""
    await engine.drain()
    counts, expired = Counter[tuple[str, str]](), Counter[str]()
    for event in await _read_all(engine):
        counts[event.queue, event.kind] += event.count
        if event.reason == "retention":
            expired[event.queue] += event.count
    for name in queues:
        info = engine.queue(name).info()
        for kind in _COUNTED:
            told, figure = counts[name, kind], getattr(info, kind)
            if told > figure or (is_exact and told < figure):
                raise Violation(
                    "events add up to the totals", f"{told} {kind} in {name} are told, not {figure}"
                )
        left = counts[name, "pushed"] - sum(counts[name, kind] for kind in _GONE) - expired[name]
        if is_exact and left != info.depth:
            raise Violation("events add up to the depth", f"{left} are left in {name}: {info}")


async def _read_all(engine: Engine) -> list[Event]:
    topic, events, offset = engine.topic(EVENTS_TOPIC), [], 0
    while offset < topic.info().end:
        reading = await topic.read(offset, 1_000)
        if reading.parts and reading.parts[0].first != offset:
            raise Violation("events are kept", f"{reading.parts[0].first} follows {offset}")
        for part in reading.parts:
            events += [decode_event(body) for body in part.batch().bodies()]
        offset = reading.next
    return events
