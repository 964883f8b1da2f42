"""Values that nobody sends who means well: extreme, of the wrong type, huge, deep."""

from __future__ import annotations

from typing import Any

TEXT_BYTES = 300_000
DEPTH = 3_000

INTEGERS: tuple[int, ...] = (
    -1,
    0,
    -(2**63),
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
)
FLOATS: tuple[float, ...] = (float("nan"), float("inf"), -0.5, 1e308)
TEXTS: tuple[str, ...] = (
    "",
    "x" * TEXT_BYTES,
    "\r\n\x1b[2J\x00",
    "../../etc/passwd",
    "{}",
    "ñ💥" * 50,
    "99999999999999999999",
    "NaN",
)


def deep(leaf: Any = 1) -> list[Any]:
    """A list in a list in a list …"""
    for _ in range(DEPTH):
        leaf = [leaf]
    return [leaf]


def hostile() -> tuple[Any, ...]:
    """What any field is tried with. Wide and deep ones last: they cost the most."""
    return (
        None,
        True,
        *INTEGERS,
        *FLOATS,
        *TEXTS,
        b"\xff\xfe\x00",
        [],
        {},
        [None],
        {"": None},
        [2**63 - 1] * 1_000,
        {str(number): number for number in range(1_000)},
    )


def hostile_json() -> tuple[Any, ...]:
    """Those that JSON can say."""
    return tuple(each for each in hostile() if not isinstance(each, bytes))
