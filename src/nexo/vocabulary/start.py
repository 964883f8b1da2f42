"""Where to begin in a topic."""

from __future__ import annotations

import msgspec

from nexo.vocabulary import fields
from nexo.vocabulary.errors import InvalidArgument


class Start(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """At an offset, at the first message of a time, or with neither: behind the latest one. An
    offset below what is kept stands for the oldest, so 0 is the earliest of all."""

    offset: fields.Number | None = None
    time_ms: fields.TimeMs | None = None


LATEST = Start()
EARLIEST = Start(offset=0)


def check_start(start: Start) -> None:
    if start.offset is not None and start.time_ms is not None:
        raise InvalidArgument("a start is an offset or a time, not both")
    if (start.offset or 0) < 0 or (start.time_ms or 0) < 0:
        raise InvalidArgument("a start must not be negative")
