"""A scripted workload and a plain model of what a journal must hold after each of its commits."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.journal.connection import Tuning
from nexo.journal.port import Commit, Stored, Write
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import DataCorrupt

if TYPE_CHECKING:
    from random import Random

    from nexo.journal.port import Journal

# Small pages and early checkpoints: a short script then meets every kind of operation.
SMALL = Tuning(
    page_bytes=1024, cache_bytes=64 * 1024, checkpoint_pages=24, vacuum_pages=4, free_pages_kept=4
)


class State(msgspec.Struct):
    """Everything that a journal shows."""

    owners: dict[int, Stored] = {}
    rows: dict[int, list[bytes]] = {}
    last_row: int = 0


class Model:
    """A journal as a few dicts."""

    def __init__(self) -> None:
        self.state = State()

    def apply(self, commit: Commit) -> None:
        state = self.state
        for write in commit.writes:
            before = state.owners.get(write.owner, Stored(None, []))
            state.owners[write.owner] = (
                Stored(before.snapshot, [*before.records, write.record])
                if write.snapshot is None
                else Stored(bytes(write.snapshot), [])
            )
        for row, batch in commit.rows:
            state.rows[row] = batch.bodies()
            state.last_row = max(state.last_row, row)
        for row in commit.dropped_rows:
            state.rows.pop(row, None)
        for owner in commit.dropped_owners:
            state.owners.pop(owner, None)

    def copy(self) -> Model:
        return deepcopy(self)


def shown_by(journal: Journal) -> State:
    """The state of a journal, read through its port. Every row number ever used is tried."""
    rows = {}
    for row in range(1, journal.last_row() + 1):
        try:
            rows[row] = journal.fetch([row])[0].bodies()
        except DataCorrupt as error:
            if "missing" not in error.message:
                raise
    owners = {owner: journal.load(owner) for owner in journal.owners()}
    return State(owners, rows, journal.last_row())


def script(random: Random, commits: int = 24) -> list[Commit]:
    """Commits that push, ack, fold and delete; small and large, with every number unique."""
    made: list[Commit] = []
    live: list[int] = []
    last = 0
    for step in range(commits):
        rows = []
        for _ in range(random.choice([0, 1, 1, 2])):
            last += 1
            size = random.choice([10, 300, 3_000])
            rows.append((last, batch_of([b"%d:%d" % (step, n) + bytes(size) for n in range(3)])))
            live.append(last)
        dropped = sorted(random.sample(live, min(len(live), random.choice([0, 0, 1, 3]))))
        live = [row for row in live if row not in dropped]
        writes = []
        for owner in random.sample([0, 1, 2, 3], random.choice([1, 1, 2])):
            folded = b"folded %d" % step if random.random() < 0.2 else None
            writes.append(Write(owner, b"record %d of %d" % (step, owner), folded))
        gone = [3] if random.random() < 0.1 else []
        made.append(Commit(writes, rows, dropped, gone))
    # The end drains everything: a file that shrinks is a file that is written to.
    made.append(Commit([Write(1, b"drained")], [], live, []))
    return made


def assert_same(found: State, expected: State, note: str) -> None:
    if found != expected:
        pytest.fail(f"{note}\n  found:    {_brief(found)}\n  expected: {_brief(expected)}")


def _brief(state: State) -> str:
    rows = {row: (len(bodies), bodies[0][:8]) for row, bodies in state.rows.items()}
    return f"last_row={state.last_row} rows={rows} owners={state.owners}"
