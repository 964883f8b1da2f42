"""What is in the lake, read without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def position_ids(lake: Path) -> Iterator[str]:
    """The id of every row of `positions`. What is in that table is what the log of Spark's file
    sink names: a driver that was killed may have left other files behind."""
    for file in committed_files(lake / "positions" / "_spark_metadata"):
        yield from pq.ParquetFile(file).read(columns=["id"])["id"].to_pylist()


def next_offset(lake: Path, source: str) -> int:
    """Behind all that the lake has of a topic."""
    last = -1
    for file in committed_files(lake / "positions" / "_spark_metadata"):
        rows = pq.ParquetFile(file).read(columns=["source", "offset"]).to_pylist()
        last = max([last, *(row["offset"] for row in rows if row["source"] == source)])
    return last + 1


def alert_ids(lake: Path) -> Iterator[str]:
    """The id of every alert that the pipeline pushed. A batch folder is written whole or anew."""
    for marker in sorted((lake / "alerts").glob("batch=*/_SUCCESS")):
        for file in sorted(marker.parent.glob("part-*.parquet")):
            for body in pq.ParquetFile(file).read(columns=["body"])["body"].to_pylist():
                yield json.loads(body)["id"]


def committed_files(log: Path) -> Iterator[str]:
    """The files of a file sink by its own log: the last compacted entry, and those after it."""
    if not log.is_dir():
        return
    entries: dict[int, Path] = {}
    for entry in sorted(log.iterdir()):  # 9.compact comes after 9, and replaces it
        if entry.name.partition(".")[0].isdigit() and entry.suffix in ("", ".compact"):
            entries[int(entry.name.partition(".")[0])] = entry
    compacted = [number for number, entry in entries.items() if entry.suffix]
    for number in sorted(entries):
        if number >= max(compacted, default=0):
            for line in entries[number].read_text(encoding="utf-8").splitlines()[1:]:
                yield unquote(urlsplit(json.loads(line)["path"]).path)
