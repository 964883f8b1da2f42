"""Limits made small, so that a world of a few hundred messages meets every one of them.

The engine reads these limits where they are declared, each time. The rules import theirs by name,
because they are quick; those are changed in each module that uses them, and the list below says
which. `tests/simulation/test_squeeze.py` holds it to be complete.
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from nexo.vocabulary import limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random
    from types import ModuleType

USERS = {
    "CHUNK_BYTES_MAX": ("nexo.machine.log",),
    "CHUNK_MESSAGES_MAX": ("nexo.machine.log",),
    "CHUNK_ROWS_MAX": ("nexo.machine.log",),
    "PACKED_ROWS_MIN": ("nexo.machine.chunk",),
    "SMALL_PUSH_BYTES": ("nexo.machine.log",),
    "SMALL_PUSH_MESSAGES": ("nexo.machine.log",),
    "SPARSE_CHUNK_BYTES": ("nexo.machine.compact",),
    "NOISY_IN_FLIGHT_MIN": ("nexo.machine.groups",),
    "PRODUCER_RESULTS_KEPT": ("nexo.machine.producers",),
    "SWEPT_AT_ONCE": ("nexo.machine.queue",),
}

CHOICES = {
    "CHUNK_BYTES_MAX": (300, 2_000, 256 * 1024),
    "CHUNK_MESSAGES_MAX": (3, 8, 40, 4_096),
    "CHUNK_ROWS_MAX": (1, 3, 512),
    "PACKED_ROWS_MIN": (1, 2, 8),
    "SMALL_PUSH_BYTES": (200, 1_000, 32 * 1024),
    "SMALL_PUSH_MESSAGES": (2, 4, 12, 32),
    "SPARSE_CHUNK_BYTES": (1, 100, 64 * 1024),
    "MOVE_MESSAGES": (1, 3, 20, 1_000),
    "RECORD_BYTES_BEFORE_SNAPSHOT": (64, 256, 1_000, 1024 * 1024),
    "UNFOLDED_BYTES_MAX": (64, 256, 1_000, 1024 * 1024),
    "SNAPSHOT_BYTES_MIN": (1, 64, 256),
    "SNAPSHOT_STEP_ENTRIES": (1, 2, 5, 1_000),
    "UNSETTLED_BYTES_MAX": (200, 2_000, 64 * 1024 * 1024),
    "NOISY_IN_FLIGHT_MIN": (2, 5, 30),
    "EVENTS_PAUSE_MS": (0, 0, 20),
    "PRODUCER_RESULTS_KEPT": (4, 64),
    "CATALOG_STEP_DEFINITIONS": (1, 2, 500),
    "SWEPT_AT_ONCE": (0, 5, 1_000),
    "DUE_STEP_SPANS": (1, 3, 500),
    "GIVE_BACK_STEP_SPANS": (1, 3, 500),
    "UNWRITTEN_CHANGES_MAX": (1, 20, 2_000),
    "MOVE_RUNS": (1, 3, 200),
}


def draw(random: Random) -> dict[str, int]:
    """Values for all of them."""
    return {name: random.choice(choices) for name, choices in CHOICES.items()}


@contextlib.contextmanager
def squeezed(values: dict[str, int]) -> Iterator[None]:
    """Those values hold inside; what is not among them stays as it is."""
    before = []
    for name, value in values.items():
        for module in _users_of(name):
            before.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _users_of(name: str) -> list[ModuleType]:
    """The modules that have the limit: those that are listed, else all that are loaded."""
    if name in CHOICES:
        return [limits, *map(import_module, USERS.get(name, ()))]
    rooms = ("nexo.machine.", "nexo.engine.", "nexo.vocabulary.limits")
    return [
        module
        for user, module in list(sys.modules.items())
        if user.startswith(rooms) and hasattr(module, name)
    ]
