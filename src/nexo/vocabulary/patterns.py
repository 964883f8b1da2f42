"""Patterns of topic names: `*` stands for one word between dots, `>` for all that follow."""

from __future__ import annotations

import re
from functools import lru_cache

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import PATTERN_CHARS_MAX
from nexo.vocabulary.names import RESERVED_PREFIX

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
    if len(pattern) > PATTERN_CHARS_MAX:
        raise _wrong(pattern)
    words = pattern.split(".")
    if ">" in words[:-1]:
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


class PatternTree:
    """Patterns word by word, to find those that a name matches without trying each of them."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str) -> None:
        compiled(pattern)
        node = self._root
        for word in pattern.split("."):
            node = node.children.setdefault(word, _Node())
        node.pattern = pattern

    def discard(self, pattern: str) -> None:
        """Forget a pattern, and the words that only it has."""
        path, node = [], self._root
        for word in pattern.split("."):
            if word not in node.children:
                return
            path.append((node, word))
            node = node.children[word]
        node.pattern = None
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.children or child.pattern is not None:
                break
            del parent.children[word]

    def matching(self, name: str) -> list[str]:
        """The patterns that mean this topic, as `matches_pattern` says."""
        found: list[str] = []
        nodes, words = [self._root], name.split(".")
        for at, word in enumerate(words):
            following: list[_Node] = []
            has_rest = word != "" or at + 1 < len(words)
            for node in nodes:
                rest = node.children.get(">")
                if rest is not None and rest.pattern is not None and has_rest:
                    found.append(rest.pattern)
                if word and "*" in node.children:
                    following.append(node.children["*"])
                if word in node.children:
                    following.append(node.children[word])
            nodes = following
        found += [node.pattern for node in nodes if node.pattern is not None]
        if name.startswith(RESERVED_PREFIX):
            found = [pattern for pattern in found if pattern.startswith(RESERVED_PREFIX)]
        return found


class _Node:
    __slots__ = ("children", "pattern")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.pattern: str | None = None  # the one that ends here


def _wrong(pattern: str) -> InvalidArgument:
    return InvalidArgument(
        f"{pattern!r:.100} is not a pattern of topic names",
        "* is one word between dots, > at the end the rest: fleet.*.position, fleet.>",
    )
