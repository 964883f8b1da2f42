"""Times as signatures write them: `20150830T123600Z`, or the Date header of HTTP."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

_BASIC = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_FORMAT = "%Y%m%dT%H%M%SZ"


def basic_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime(_FORMAT)


def parse_basic_time(text: str) -> int | None:
    """The time in milliseconds, None if this is none."""
    return _parse(text) if _BASIC.fullmatch(text) else None


@lru_cache(maxsize=64)  # clients that sign in the same second spell it alike
def _parse(text: str) -> int | None:
    try:
        moment = datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def parse_http_time(text: str) -> int | None:
    """A Date header, as HTTP writes it or in the basic form, in milliseconds."""
    if (basic_ms := parse_basic_time(text)) is not None:
        return basic_ms
    try:
        moment = parsedate_to_datetime(text)
        at_ms = round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
        basic_time(at_ms)  # a time that cannot be written again cannot have been signed
    except (ValueError, IndexError, OverflowError, TypeError):
        return None
    return at_ms
