"""How the queries are doing: a small file that the pipeline writes and anybody may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class Batch(msgspec.Struct):
    """The last micro-batch of a query, and all rows that it has read since it was first started."""

    number: int = -1
    rows: int = 0
    milliseconds: int = 0
    rows_total: int = 0
    late_total: int = 0  # rows that came after their window was over


class Told(msgspec.Struct):
    state: str = "starting"
    process: int = 0
    ui: str = ""
    queries: dict[str, Batch] = {}


def read_progress(file: Path) -> Told | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Told)
    except FileNotFoundError:
        return None


def write_progress(file: Path, told: Told) -> None:
    """Whole or not at all: somebody may be reading it."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(told))
    fresh.replace(file)
