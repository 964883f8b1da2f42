"""Numbers, times and texts as the pages show them. Live values and templates both come here, so a
number looks the same when the page opens and when it changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from nexo.vocabulary.units import show_duration, show_size

NOTHING = "\u2013"  # in place of a number that there is not
# What a terminal or a browser would obey instead of showing: control characters, and those that
# turn the direction of the text around them or hide in it.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


def number(value: float) -> str:
    return f"{value:,.0f}"


def rate(per_second: float) -> str:
    """Messages a second."""
    if per_second <= 0:
        return "0"
    return f"{per_second:,.1f}" if per_second < 10 else f"{per_second:,.0f}"


def size(count: float) -> str:
    """Bytes."""
    return show_size(count)


def span(milliseconds: float) -> str:
    """How long something takes or is ago."""
    return show_duration(milliseconds / 1000)


def moment(unix_ms: int | None) -> str:
    """A time of day with its date, in UTC."""
    if not unix_ms:
        return NOTHING
    try:
        at = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # delays of centuries
        return "never"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def iso(unix_ms: int | None) -> str:
    """The same for programs, and for the `datetime` of an HTML `time`."""
    if not unix_ms:
        return ""
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ""


def visible(text: str) -> str:
    """The text with everything in it that would act instead of being seen written out."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shown(value: Any) -> Any:
    """Whatever a template prints: texts come from strangers unless they are marked as ours."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value
