"""Reasons that differ in numbers and ids alone are one."""

from __future__ import annotations

import pytest

from nexo.vocabulary.reasons import folded


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("order 4711 not found", "order # not found"),
        ("took 12.5 s at 10:30:01", "took # s at #"),
        ("connect 10.0.0.1:5432: refused", "connect #: refused"),
        ("no user 3fa85f64-5717-4562-b3fc-2c963f66afa6", "no user #"),
        ("object at 0x7f3a2c", "object at #"),
        ("digest deadbee1 differs", "digest # differs"),
        ("key A1B2C3 unknown", "key # unknown"),
        ("order-4711 of run_12", "order-# of run_#"),
        ("the facade is a decade old", "the facade is a decade old"),
        ("two\n  lines", "two lines"),
        ("", ""),
    ],
)
def test_what_varies_is_folded(reason: str, expected: str) -> None:
    assert folded(reason) == expected
    assert folded(expected) == expected, "what is shown can be asked for"
