"""Patterns of topic names."""

from __future__ import annotations

from itertools import product

import pytest

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.patterns import PatternTree, compiled, is_pattern, matches_pattern

NAMES = [
    "fleet",
    "fleet.7",
    "fleet.7.position",
    "fleet.8.position",
    "fleet.7.fuel.left",
    "fleets.7",
]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("fleet.*.position", ["fleet.7.position", "fleet.8.position"]),
        ("fleet.>", ["fleet.7", "fleet.7.position", "fleet.8.position", "fleet.7.fuel.left"]),
        ("fleet.7.>", ["fleet.7.position", "fleet.7.fuel.left"]),
        ("*", ["fleet"]),
        ("*.7", ["fleet.7", "fleets.7"]),
        (">", NAMES),
        ("*.*.>", ["fleet.7.position", "fleet.8.position", "fleet.7.fuel.left"]),
        ("fleet.7", ["fleet.7"]),
    ],
)
def test_what_a_pattern_stands_for(pattern: str, meant: list[str]) -> None:
    assert [name for name in NAMES if matches_pattern(pattern, name)] == meant


def test_the_brokers_own_topics_are_asked_for_by_name() -> None:
    for pattern in ("*.events", ">", "*.>"):
        assert not matches_pattern(pattern, "nexo.events")
    for pattern in ("nexo.events", "nexo.*", "nexo.>"):
        assert matches_pattern(pattern, "nexo.events")


@pytest.mark.parametrize("pattern", ["a.>.b", ">.a", "fleet.x*", "a b", "a.**", "a.>>", "x" * 300])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="not a pattern"):
        compiled(pattern)


def test_a_name_is_no_pattern() -> None:
    assert not is_pattern("fleet.7.position")
    assert is_pattern("fleet.*.position")
    assert is_pattern("fleet.>")


def test_a_tree_finds_the_same_patterns_as_trying_each() -> None:
    words = ["a", "b", "*", "", "nexo"]
    patterns = [".".join(each) for size in (1, 2, 3) for each in product(words, repeat=size)]
    patterns += [f"{each}.>" for each in patterns if each.count(".") < 2] + [">"]
    names = [
        ".".join(each)
        for size in (1, 2, 3, 4)
        for each in product(["a", "c", "", "nexo"], repeat=size)
    ]
    tree = PatternTree()
    for pattern in patterns:
        tree.add(pattern)
    for left in (patterns, patterns[::2], patterns[::6], []):
        for pattern in patterns:
            if pattern not in left:
                tree.discard(pattern)
        for name in names:
            meant = sorted(each for each in left if matches_pattern(each, name))
            assert sorted(tree.matching(name)) == meant, name
    assert not tree._root.children  # nothing is left of what was discarded
