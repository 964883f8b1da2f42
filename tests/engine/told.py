"""What `nexo.events` told, read back and added up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nexo.vocabulary.events import Event, decode_event
from nexo.vocabulary.names import EVENTS_TOPIC
from tests.engine.rig import bodies_of

if TYPE_CHECKING:
    from nexo.engine.engine import Engine


async def told(engine: Engine) -> list[Event]:
    await engine.drain()
    events: list[Event] = []
    offset = 0
    while True:
        reading = await engine.topic(EVENTS_TOPIC).read(offset, 1_000)
        if not reading.parts:
            return events
        events += [decode_event(body) for part in reading.parts for body in bodies_of(part)]
        offset = reading.next


def sums(events: list[Event], queue: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for event in events:
        if event.queue == queue:
            counted[event.kind.value] += event.count
    return counted


async def check_totals(engine: Engine) -> None:
    """What the events add up to is what the figures of every queue say."""
    events = await told(engine)
    for queue in engine.queues.values():
        info, counted = queue.info(), sums(events, queue.name)
        for kind in (
            "pushed",
            "delivered",
            "acked",
            "nacked",
            "timed_out",
            "expired",
            "dead_lettered",
        ):
            figure = getattr(info, kind)
            assert counted[kind] == figure, f"{queue.name}: {counted[kind]} {kind}, not {figure}"
        left = sum(counted[kind] for kind in ("acked", "dead_lettered", "redriven", "purged"))
        left += sum(
            event.count
            for event in events
            if event.queue == queue.name and event.reason == "retention"
        )
        assert info.depth == counted["pushed"] - left, f"{queue.name}: {counted}"
