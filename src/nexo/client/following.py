"""The shared half of a plain subscription: where to begin, and where it is.

It follows one topic, or all that match a pattern. The broker keeps nothing about it, so a broken
connection or a restarted broker is only a pause: the next read says again how far it is.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from nexo.client import asking
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.patterns import compiled, is_pattern
from nexo.vocabulary.start import EARLIEST, LATEST, Start

if TYPE_CHECKING:
    from nexo.client.event import Event
    from nexo.client.operation import Request

    StartAt = Literal["latest", "earliest"] | int | datetime

READ_MESSAGES = 1_000  # that one read of a subscription takes
POLL_MS = 20_000  # how long one read waits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Following:
    """`events` is what was read and not handed out yet."""

    def __init__(self, name: str, start: StartAt) -> None:
        self._name = name
        self._start = start_of(start)
        self._is_pattern = is_pattern(name)
        if self._is_pattern:
            compiled(name)
        self._offsets: dict[str, int] | None = None
        self.events: deque[Event] = deque()
        if not self._is_pattern and self._start.offset is not None:
            self._offsets = {name: self._start.offset}

    def opening(self) -> Request | None:
        """What has to be asked first; None if nothing has."""
        return None if self._offsets is not None else asking.starts(self._name, self._start)

    def opened(self, offsets: dict[str, int]) -> None:
        if not self._is_pattern and self._name not in offsets:
            raise TopicNotFound(f"there is no topic {self._name!r:.100}", "create it first")
        self._offsets = offsets

    def read(self, wait_ms: int) -> Request:
        """What is new; the result is for `take`."""
        assert self._offsets is not None, "it was not opened"
        if self._is_pattern:
            return asking.follow(self._name, self._offsets, READ_MESSAGES, wait_ms)
        return asking.read(self._name, self._offsets[self._name], READ_MESSAGES, False, wait_ms)

    def take(self, result: tuple[list[Event], Any]) -> None:
        events, following = result
        assert self._offsets is not None
        self._offsets.update(following if self._is_pattern else {self._name: following})
        self.events.extend(events)


def start_of(start: StartAt) -> Start:
    """Where to begin, as it travels."""
    if isinstance(start, str) and start in ("latest", "earliest"):
        return LATEST if start == "latest" else EARLIEST
    if isinstance(start, datetime):
        return Start(time_ms=time_ms_of(start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start(offset=start)
    raise InvalidArgument(
        f"start is {start!r:.40}", "write 'latest', 'earliest', an offset or a datetime"
    )


def time_ms_of(moment: object) -> int:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidArgument(
            f"{moment!r:.60} is not a moment", "give a datetime with a time zone: datetime.now(UTC)"
        )
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
