"""Patterns of topic names: `*` stands for one word between dots, `>` for all that follow."""

from __future__ import annotations

import re
from functools import lru_cache

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import RESERVED_PREFIX

PATTERN_CHARS_MAX = 256
_WORD = re.compile(r"[A-Za-z0-9_-]*")


def is_pattern(name: str) -> bool:
    """Whether it stands for any number of topics; else it names one."""
    return "*" in name or ">" in name


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether a topic is meant. The broker's own are meant only by who says `nexo.`."""
    if name.startswith(RESERVED_PREFIX) and not pattern.startswith(RESERVED_PREFIX):
        return False
    return compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1_000)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression; refuses what is none."""
    words = pattern.split(".")
    if len(pattern) > PATTERN_CHARS_MAX or ">" in words[:-1]:
        raise _wrong(pattern)
    parts = []
    for word in words:
        if word == "*":
            parts.append(r"[^.]+")
        elif word == ">":
            parts.append(r".+")
        elif _WORD.fullmatch(word):
            parts.append(re.escape(word))
        else:
            raise _wrong(pattern)
    return re.compile(r"\.".join(parts))


def _wrong(pattern: str) -> InvalidArgument:
    return InvalidArgument(
        f"{pattern!r:.100} is not a pattern of topic names",
        "* is one word between dots, > at the end the rest: fleet.*.position, fleet.>",
    )
