"""What the property tests draw: batches of all shapes, and settings for each kind of queue."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import TIME_TYPE, Batch, Origin, batch_of
from nexo.vocabulary.settings import Backoff, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

BODIES = st.sampled_from([b"", b"a", b"bc", b"def", b"nine long", b"a body of some length"])
# Times are of the order of the timeouts, so that everything meets everything else.
WAITS = st.sampled_from([0, 1, 5, 10, 20, 50])
DELAYS = st.sampled_from([0, 0, 10, 25])
YES_OR_NO = st.booleans()
ATTRIBUTES = st.sampled_from([None, *map(encode_attributes, ({"a": "red"}, {"b": "x" * 90}))])

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


@dataclass(frozen=True, eq=False)  # two of them are never the same, so each is a key of a cache
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


# To build a strategy takes longer than to draw from it, so each is built once.
@cache
def any_of(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@cache
def each_of(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=count, max_size=count)


@cache
def column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    """A column of a batch: absent or constant, or a value a message."""
    return values | each_of(values, count)


@cache
def optional_column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    return st.none() | column(values, count)


SOME_BODIES = st.lists(BODIES, min_size=1, max_size=8)


@st.composite
def _batches(draw: Callable[[st.SearchStrategy[Any]], Any], profile: Profile) -> Batch:
    bodies = draw(SOME_BODIES)
    count = len(bodies)
    priority: int | bytes = profile.priorities[0]
    if len(profile.priorities) > 1:
        priorities = any_of(profile.priorities)
        mixed = draw(column(priorities, count))
        priority = bytes(mixed) if isinstance(mixed, list) else mixed
    groups = draw(column(any_of(profile.groups), count)) if any(profile.groups) else None
    keys = None
    if any(profile.keys) and draw(YES_OR_NO):
        keys = draw(each_of(any_of(profile.keys), count))
    return msgspec.structs.replace(
        batch_of(bodies),
        priority=priority,
        delay_ms=draw(optional_column(DELAYS, count)),
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
