"""What the embedded journal costs on this machine: `python -m bench.journal [--directory DIR]`.

Durable commits as the engine makes them (pushes that waited together are one row and one record),
inline in one thread, with bodies of 100 bytes. Beside each stands the least that any store could
cost here: the same bytes appended to a file, and `fdatasync`. The two take turns in short slices,
so that the ratio comes from one run on one state of the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Protocol

import msgspec

from bench.result import Result
from nexo.journal.connection import Tuning
from nexo.journal.port import Commit, Write
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.limits import UNFOLDED_BYTES_MAX

BODY_BYTES = 100
RECORD_BYTES = 60
SLICE_S = 0.5
BACKLOG_COMMITS = 40  # pushed and not yet dropped
DROP_COMMITS = 10  # rows are dropped in bulk, once drained
TUNINGS = [
    Tuning(page_bytes=page_bytes, checkpoint_pages=wal_bytes // page_bytes)
    for page_bytes, wal_bytes in (
        (4_096, 32_768_000),
        (8_192, 32_768_000),
        (16_384, 32_768_000),
        (32_768, 32_768_000),
        (16_384, 8_192_000),
        (16_384, 131_072_000),
    )
]


class Shape(msgspec.Struct, frozen=True):
    """One commit: its rows, the messages in each, and the queues that write a record."""

    name: str
    rows: int
    count: int
    owners: int = 1
    bar: float | None = None  # thousand messages a second, as the prototype reached

    @property
    def messages(self) -> int:
        return self.rows * self.count


SHAPES = [
    Shape("1x1", 1, 1),
    Shape("64x1", 1, 64, bar=169),
    Shape("4x100", 4, 100, bar=876),
    Shape("2x1000", 2, 1000, bar=1_390),
    Shape("64 queues x1", 64, 1, owners=64),
]


class Contender(Protocol):
    name: str
    spent_s: list[float]

    def step(self) -> None: ...

    def close(self) -> None: ...


class JournalContender:
    """Commits of one shape, with the drops and snapshots that follow in a steady state."""

    def __init__(self, name: str, path: Path, shape: Shape, tuning: Tuning) -> None:
        self.name = name
        self.spent_s: list[float] = []
        self._rows = shape.rows
        self._owners = shape.owners
        self._batch = batch_of([os.urandom(BODY_BYTES)] * shape.count)
        self._journal = SqliteJournal(path, tuning=tuning)
        self._journal.open()
        self._number = 0
        self._row = 0

    def step(self) -> None:
        self._number += 1
        rows: list[tuple[int, Batch]] = []
        for _ in range(self._rows):
            self._row += 1
            rows.append((self._row, self._batch))
        dropped: list[int] = []
        end = self._row - BACKLOG_COMMITS * self._rows
        if self._number % DROP_COMMITS == 0 and end > 0:
            dropped = list(range(max(1, end - DROP_COMMITS * self._rows + 1), end + 1))
        records_before_snapshot = UNFOLDED_BYTES_MAX // RECORD_BYTES
        folded = bytes(1_000) if self._number % records_before_snapshot == 0 else None
        # A thousand queues take turns, unless there is one.
        first = self._number * self._owners % 1_000 if self._owners > 1 else 0
        writes = [Write(first + n, bytes(RECORD_BYTES), folded) for n in range(self._owners)]
        commit = Commit(writes, rows, dropped, [])
        began = perf_counter()
        self._journal.commit(commit)
        self.spent_s.append(perf_counter() - began)

    def close(self) -> None:
        self._journal.close()


class AppendContender:
    """The floor: the same bytes at the end of a file, and one fdatasync."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.name = "append"
        self.spent_s: list[float] = []
        row_bytes = shape.count * BODY_BYTES + (shape.count + 1) * 4
        self._data = os.urandom(shape.rows * row_bytes + shape.owners * RECORD_BYTES)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def step(self) -> None:
        began = perf_counter()
        os.write(self._file, self._data)
        os.fdatasync(self._file)
        self.spent_s.append(perf_counter() - began)

    def close(self) -> None:
        os.close(self._file)


def race(contenders: list[Contender], seconds: float) -> None:
    """Let them take turns until each has run for that long."""
    for _ in range(max(1, round(seconds / SLICE_S))):
        for contender in contenders:
            until = perf_counter() + SLICE_S
            while perf_counter() < until:
                contender.step()
    for contender in contenders:
        contender.close()


def percentile_ms(spent_s: list[float], share: float) -> float:
    return sorted(spent_s)[min(len(spent_s) - 1, int(len(spent_s) * share))] * 1e3


def rate(contender: Contender, messages: int) -> float:
    return len(contender.spent_s) * messages / sum(contender.spent_s)


def latency(contender: Contender, name: str) -> list[Result]:
    spent = contender.spent_s
    return [
        Result(f"{name}: p50", percentile_ms(spent, 0.5), "ms"),
        Result(f"{name}: p99", percentile_ms(spent, 0.99), "ms"),
        Result(f"{name}: worst", max(spent) * 1e3, "ms"),
    ]


def commits(directory: Path, seconds: float) -> list[Result]:
    results = []
    for shape in SHAPES:
        path = directory / "commits"
        path.mkdir()
        journal = JournalContender("journal", path / "data", shape, Tuning())
        append = AppendContender(path / "append", shape)
        race([journal, append], seconds)
        ours, floor = rate(journal, shape.messages) / 1e3, rate(append, shape.messages) / 1e3
        results += [
            Result(f"journal {shape.name}", ours, "k msg/s", shape.bar),
            Result(f"append and fdatasync {shape.name}", floor, "k msg/s"),
            Result(f"journal / append {shape.name}", ours / floor, "times"),
            *latency(journal, f"journal {shape.name}"),
            *latency(append, f"append and fdatasync {shape.name}"),
        ]
        shutil.rmtree(path)
    return results


def compare(directory: Path, seconds: float, tunings: list[Tuning]) -> list[Result]:
    """The same commits under several tunings, taking turns."""
    results = []
    for shape in SHAPES:
        contenders: list[Contender] = []
        for number, tuning in enumerate(tunings):
            label = f"{tuning.page_bytes // 1024} KiB, {tuning.checkpoint_pages} pages"
            contenders.append(JournalContender(label, directory / str(number), shape, tuning))
        race(contenders, seconds)
        for contender in contenders:
            value = rate(contender, shape.messages) / 1e3
            name = f"{shape.name} {contender.name}"
            results += [Result(name, value, "k msg/s"), *latency(contender, name)]
        shutil.rmtree(directory)
        directory.mkdir()
    return results


def long_run(directory: Path, messages: int = 10_000_000) -> list[Result]:
    """The room taken after many messages went through a small backlog."""
    contender = JournalContender("journal", directory / "data", Shape("long", 4, 1_000), Tuning())
    for _ in range(messages // 4_000):
        contender.step()
    files = ("journal.db", "journal.db-wal")
    size = sum((directory / "data" / name).stat().st_size for name in files)
    contender.close()
    closed = (directory / "data" / "journal.db").stat().st_size
    shutil.rmtree(directory / "data")
    return [
        Result("room after 10M messages, with the WAL", size / 1e6, "MB", 100, "most"),
        Result("room after 10M messages, once closed", closed / 1e6, "MB"),
    ]


def loading(directory: Path) -> list[Result]:
    """Opening after a clean stop, and reading the state of all owners."""
    path = directory / "data"
    journal = SqliteJournal(path)
    journal.open()
    owners, records = 100, 100
    for _ in range(records):
        writes = [Write(owner, bytes(RECORD_BYTES)) for owner in range(owners)]
        journal.commit(Commit(writes, [], [], []))
    for row in range(1, 1_001):
        journal.commit(Commit([], [(row, batch_of([bytes(BODY_BYTES)] * 1_000))], [], []))
    results = []
    for label in ("clean stop", "crash"):
        if label == "clean stop":
            journal.close()
        else:
            copy = directory / "copy"
            shutil.copytree(path, copy)
            journal.close()
            path = copy
        journal = SqliteJournal(path)
        began = perf_counter()
        journal.open()
        opened = perf_counter()
        for owner in journal.owners():
            journal.load(owner)
        loaded = perf_counter()
        results += [
            Result(
                f"open after a {label}, 1M messages in 1,000 rows", (opened - began) * 1e3, "ms"
            ),
            Result(
                f"load after a {label}, 10,000 records", (loaded - opened) * 1e3, "ms", 50, "most"
            ),
        ]
        for _ in range(200):  # leaves a WAL for the second round
            row = journal.last_row() + 1
            journal.commit(Commit([], [(row, batch_of([bytes(BODY_BYTES)] * 1_000))], [], []))
    journal.close()
    return results


def run(directory: Path | None = None, seconds: float = 3.0) -> list[Result]:
    """Everything; in a folder below the current one, because /tmp is memory on many systems."""
    above = directory or Path.cwd()
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=above, prefix="bench-") as name:
        place = Path(name)
        results = commits(place, seconds)
        results += long_run(place)
        results += loading(place)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, help="where to write (default: here)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per shape and contender")
    parser.add_argument("--tune", action="store_true", help="compare page sizes instead")
    arguments = parser.parse_args()
    if arguments.tune:
        place = Path(tempfile.mkdtemp(dir=arguments.directory or Path.cwd(), prefix="bench-"))
        results = compare(place, arguments.seconds, TUNINGS)
        shutil.rmtree(place)
    else:
        results = run(arguments.directory, arguments.seconds)
    for result in results:
        print(result.line())


if __name__ == "__main__":
    main()
