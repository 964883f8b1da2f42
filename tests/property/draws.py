"""What the property tests draw: batches of all shapes, and settings for each kind of queue."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st

from nexo.vocabulary.batch import TIME_TYPE, Batch, Origin, batch_of
from nexo.vocabulary.settings import Backoff, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

BODIES = st.sampled_from([b"", b"a", b"bc", b"def", b"nine long", b"a body of some length"])
# Times are of the order of the timeouts, so that everything meets everything else.
WAITS = st.sampled_from([0, 1, 5, 10, 20, 50])
DELAYS = st.sampled_from([0, 0, 10, 25])
ATTRIBUTES = st.sampled_from([None, b"red", b"blue"])

SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "visibility_timeout_ms": st.sampled_from([50, 0]),
    "retransmit_timeout_ms": st.just(20),
    "max_attempts": st.sampled_from([None, None, 1, 3]),
    "delay_ms": st.sampled_from([0, 0, 0, 15]),
    "backoff": st.sampled_from(
        [None, None, Backoff(10, 2.0, 35, 0.0), Backoff(10, 2.0, 100, 1.0), Backoff(0)]
    ),
    "retention_ms": st.just(100_000),
}


@dataclass(frozen=True)
class Profile:
    """A kind of queue: which settings it may have, and what its messages look like."""

    priorities: tuple[int, ...] = (0,)
    groups: tuple[str | None, ...] = (None,)
    keys: tuple[str | None, ...] = (None,)
    same_bodies: bool = False
    changed: dict[str, st.SearchStrategy[Any]] = field(default_factory=dict)

    def settings(self) -> st.SearchStrategy[QueueSettings]:
        return st.builds(QueueSettings, **{**SETTINGS, **self.changed})

    def batches(self) -> st.SearchStrategy[Batch]:
        return _batches(self)


def column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    """A column of a batch: absent or constant, or a value a message."""
    return values | st.lists(values, min_size=count, max_size=count)


@st.composite
def _batches(draw: Callable[[st.SearchStrategy[Any]], Any], profile: Profile) -> Batch:
    bodies = draw(st.lists(BODIES, min_size=1, max_size=8))
    count = len(bodies)
    priority: int | bytes = profile.priorities[0]
    if len(profile.priorities) > 1:
        priority = draw(st.sampled_from(profile.priorities))
        if draw(st.booleans()):
            each = st.sampled_from(profile.priorities)
            priority = bytes(draw(st.lists(each, min_size=count, max_size=count)))
    groups = draw(column(st.sampled_from(profile.groups), count)) if any(profile.groups) else None
    keys = None
    if any(profile.keys) and draw(st.booleans()):
        each_key = st.sampled_from(profile.keys)
        keys = draw(st.lists(each_key, min_size=count, max_size=count))
    return msgspec.structs.replace(
        batch_of(bodies),
        priority=priority,
        delay_ms=draw(st.none() | column(DELAYS, count)),
        groups=groups,
        deduplication_ids=keys,
        attributes=draw(column(ATTRIBUTES, count)),
    )


def marked(batch: Batch, serial: int) -> Batch:
    """The batch with a number at the end of each body, so that no two messages look the same."""
    bodies = [b"%s#%d" % (body, serial + index) for index, body in enumerate(batch.bodies())]
    return msgspec.structs.replace(
        batch, payload=b"".join(bodies), offsets=batch_of(bodies).offsets
    )


def moved(batch: Batch, serial: int) -> Batch:
    """The batch as it comes from another queue: with ids and times of an earlier life."""
    origins: list[Origin | None] = [
        Origin(f"earlier-{serial + index}", 500 + index) for index in range(batch.count)
    ]
    created = array(TIME_TYPE, [500] * batch.count)
    return msgspec.structs.replace(batch, origins=origins, delay_ms=0, created=created)


SPOILED = ("priority", "delay", "long delay", "group", "key", "size", "empty")


def spoiled(batch: Batch, how: str) -> Batch:
    """The batch with something that a queue refuses."""
    changes: dict[str, Any] = {
        "priority": {"priority": 256},
        "delay": {"delay_ms": -1},
        "long delay": {"delay_ms": 100_000_000},
        "group": {"groups": ""},
        "key": {"deduplication_ids": ["k" * 129] * batch.count},
        "size": {"payload": bytes(101), "offsets": array("i", [0, 101])},
        "empty": {"payload": b"", "offsets": array("i", [0])},
    }
    if how in ("size", "empty"):  # the other columns do not fit them any more
        return Batch(**changes[how])
    return msgspec.structs.replace(batch, **changes[how])
