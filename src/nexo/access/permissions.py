"""What a token allows: `PATTERN:ACTION,…`, a pattern over names and what may be done with them.

What an action allows is in the table of `operations`; `*` stands for all of them. `admin` is of the
broker alone, so it goes with the pattern `*` only.

Whoever has any action on a name may also see its settings and figures, and finds it in lists.
A pattern is a name in which `*` stands for any characters, none included, and `?` for one.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import PERMISSION_PATTERN_CHARS_MAX, TOKEN_PERMISSIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYTHING = "*"

_PATTERN = re.compile(rf"[A-Za-z0-9_.*?/-]{{1,{PERMISSION_PATTERN_CHARS_MAX}}}", re.ASCII)
_HINT = "write PATTERN:ACTION,… such as 'orders.*:push,pop', or '*:*' for everything"


class Action(StrEnum):
    PUSH = "push"
    POP = "pop"
    PEEK = "peek"
    MANAGE = "manage"
    ADMIN = "admin"


ANY = frozenset(Action) - {Action.ADMIN}  # one of them is enough to know of a queue or topic
READ = frozenset({Action.POP, Action.PEEK})  # reading a topic removes nothing


class Permission(msgspec.Struct, frozen=True):
    """What may be done with the names that a pattern stands for."""

    pattern: str
    actions: frozenset[Action]

    @property
    def covers_broker(self) -> bool:
        """Only what is about everything is about the broker itself."""
        return self.pattern == EVERYTHING

    def __str__(self) -> str:
        every = ANY | {Action.ADMIN} if self.covers_broker else ANY
        if self.actions == every:
            return f"{self.pattern}:{EVERYTHING}"
        return f"{self.pattern}:{','.join(each for each in Action if each in self.actions)}"


class Permissions:
    """All that one token allows."""

    __slots__ = ("_granted", "is_admin")

    def __init__(self, permissions: Iterable[Permission]) -> None:
        self._granted = tuple(permissions)
        self.is_admin = any(
            each.covers_broker and Action.ADMIN in each.actions for each in self._granted
        )

    def allow(self, action: Action, name: str) -> bool:
        """Whether this may be done with the queue or topic of this name."""
        if action is Action.ADMIN:
            return self.is_admin
        return any(
            action in granted.actions and matches(granted.pattern, name)
            for granted in self._granted
        )


def parse_permission(text: str) -> Permission:
    """One permission as people write it. Everything that is not one is refused."""
    pattern, colon, listed = text.strip().rpartition(":")
    if not colon or not _PATTERN.fullmatch(pattern):
        raise InvalidArgument(f"{text!r:.200} is not a permission", _HINT)
    covers_broker = pattern == EVERYTHING
    actions: set[Action] = set()
    for word in listed.split(","):
        word = word.strip()
        if word == EVERYTHING:
            actions |= set(Action) if covers_broker else ANY
        else:
            actions.add(_action(word, text))
    if Action.ADMIN in actions and not covers_broker:
        raise InvalidArgument(
            f"{text!r:.200}: the permission admin is for the whole broker only",
            "write '*:admin', or leave it out",
        )
    return Permission(pattern, frozenset(actions))


def parse_permissions(texts: Iterable[str]) -> list[Permission]:
    """Those of one token: at least one, since a token that may nothing is of no use."""
    parsed = [parse_permission(text) for text in texts]
    if not 0 < len(parsed) <= TOKEN_PERMISSIONS_MAX:
        raise InvalidArgument(
            f"a token has 1 to {TOKEN_PERMISSIONS_MAX} permissions, not {len(parsed)}", _HINT
        )
    return parsed


def _action(word: str, text: str) -> Action:
    try:
        return Action(word)
    except ValueError:
        raise InvalidArgument(
            f"{text!r:.200}: unknown action {word!r:.40}",
            f"use {', '.join(Action)}, or * for all actions",
        ) from None


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a name. Time is at most the product of their lengths, whatever
    they are: names come from strangers, and regular expressions can be made to take for ever."""
    at = in_name = 0
    star, resume = -1, 0
    while in_name < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, in_name
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[in_name]):
            at += 1
            in_name += 1
        elif star >= 0:  # let the last star stand for one character more
            resume += 1
            at, in_name = star + 1, resume
        else:
            return False
    return not pattern[at:].strip("*")
