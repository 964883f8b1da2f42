"""Patterns of topic names."""

from __future__ import annotations

import pytest

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.patterns import compiled, is_pattern, matches_pattern

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
