"""Durations as people write them: seconds, or a number with a unit (`250ms`, `10s`, `5m`, `4h`,
`30d`)."""

from __future__ import annotations

import re

from nexo.vocabulary.errors import InvalidArgument

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d)?", re.IGNORECASE)


def parse_seconds(text: str) -> float:
    """Seconds from a text; refuses what is no duration."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(
            f"{text!r:.40} is not a duration", "write seconds, or 250ms, 10s, 5m, 4h, 30d"
        )
    return float(found[1]) * _SECONDS[(found[2] or "").lower()]


def show_duration(seconds: float) -> str:
    """The same the other way round, as short as it can be read."""
    if seconds <= 0:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0)):
        if seconds >= size:
            whole = seconds / size
            return f"{whole:.0f}{unit}" if whole == int(whole) else f"{whole:.1f}{unit}"
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds:.1f}s"
