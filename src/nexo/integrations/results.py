"""Results of tasks, kept in a topic: one event for each, and time takes them away.

A broker of queues has no table to look things up in, and a queue for each result would be an actor
and a binding for each. A topic keeps what is published for as long as it is told, tells everyone
who waits, and costs one publish. Whoever looks for results reads on from where it stopped, and
remembers which task has its result at which offset.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import nexo

TTL_S = 86_400.0  # a day, as Celery keeps them
KNOWN_MAX = 200_000  # results whose place a process remembers; it looks for older ones in the topic
READ_EVENTS = 1_000  # at once
TASK, KIND = "task", "kind"  # attributes of an event


class ResultIndex:
    """Where the results of a topic are, as far as it was read."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.next_offset: int = 0
        self.is_whole: bool = True  # whether nothing was forgotten

    def add(self, events: Iterable[nexo.Event]) -> None:
        for event in events:
            attributes = event.attributes
            key = (attributes.get(KIND, ""), attributes.get(TASK, ""))
            self._offsets[key] = event.offset
            self._offsets.move_to_end(key)
            self.next_offset = event.offset + 1
        while len(self._offsets) > KNOWN_MAX:
            self._offsets.popitem(last=False)
            self.is_whole = False

    def offset_of(self, kind: str, task: str) -> int | None:
        return self._offsets.get((kind, task))


def find(events: Iterable[nexo.Event], kind: str, task: str) -> nexo.Event | None:
    """The last event of a task among these."""
    found = None
    for event in events:
        if event.attributes.get(TASK) == task and event.attributes.get(KIND, "") == kind:
            found = event
    return found
