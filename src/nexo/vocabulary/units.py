"""Sizes, durations and times as people write them, in every command, page and file: `64 MB`, `90s`,
`2026-05-31T14:30`.

What is written here can be read here: "64 MB" and "64MB" are one size, 1.5h is a duration.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from nexo.vocabulary.errors import InvalidArgument

# 1 KB is 1,024 bytes here, with or without the i: memory and pages come in such steps.
_STEP_BYTES = 1024
_SIZES = ("B", "KB", "MB", "GB", "TB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_PER_NEXT = {"s": 60, "m": 60, "h": 24}  # how many of a unit make the next one
_MS_MAX = 2**62


def parse_size(text: str) -> int:
    """A number of bytes from a text; refuses what is not one."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"{text!r:.40} is not a size", "write bytes, or 64KB, 512MB, 2GB")
    return int(float(found[1]) * _STEP_BYTES ** _POWERS[found[2].lower()])


def show_size(size_bytes: float) -> str:
    """The shortest way to write a size: whole if it is, else with one digit."""
    size = float(size_bytes)
    for unit in _SIZES[:-1]:
        if round(size, 1) < _STEP_BYTES:
            return f"{_short(size)} {unit}"
        size /= _STEP_BYTES
    return f"{_short(size)} {_SIZES[-1]}"


def parse_duration(text: str) -> float:
    """Seconds from a text, a number or one with a unit; refuses what is no duration."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(
            f"{text!r:.40} is not a duration", "write seconds, or 250ms, 10s, 5m, 4h, 30d"
        )
    return float(found[1]) * _SECONDS[(found[2] or "").lower()]


def show_duration(seconds: float) -> str:
    """The shortest way to write a duration: whole if it is, else with one digit."""
    if seconds <= 0:
        return "0s"
    if round(seconds * 1000) < 1000:
        return f"{seconds * 1000:.0f}ms"
    for unit, count in _PER_NEXT.items():
        if round(seconds / _SECONDS[unit], 1) < count:
            return f"{_short(seconds / _SECONDS[unit])}{unit}"
    return f"{_short(seconds / _SECONDS['d'])}d"


def milliseconds(seconds: float, name: str, ms_max: int = _MS_MAX) -> int:
    """A duration as the broker counts it; refuses by its name what is none, or too long."""
    if isinstance(seconds, bool) or type(seconds) not in (int, float):
        raise InvalidArgument(f"{name} must be a number of seconds, not {seconds!r:.40}")
    if not 0 <= seconds <= ms_max / 1000:  # not a number is neither
        raise InvalidArgument(f"{name} is {seconds} s, allowed is 0 to {ms_max / 1000:.0f} s")
    return round(seconds * 1000)


def count_of(count: int, noun: str = "message") -> str:
    """A number with its noun: 1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A time in UTC; `ago` is how it was written, if that was how long ago."""

    at: datetime
    ago: str | None = None


def parse_moment(text: str, now: datetime) -> Moment:
    """A time such as `2026-05-31T14:30`, or a duration: so long before now."""
    text = text.strip()
    try:
        return Moment(parse_time(text))
    except InvalidArgument:
        pass
    try:
        return Moment(now - timedelta(seconds=parse_duration(text)), text)
    except (InvalidArgument, OverflowError):
        raise InvalidArgument(
            f"{text!r:.40} is not a time", "write 2026-05-31T14:30, or 2h for two hours ago"
        ) from None


def parse_time(text: str) -> datetime:
    """A date or a time of ISO 8601. It is UTC unless it says otherwise: the same text is the same
    instant on every machine."""
    try:
        found = datetime.fromisoformat(text.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{text!r:.40} is not a time", "write 2026-05-31T14:30") from None
