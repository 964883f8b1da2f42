"""A full disk: nothing is lost, acks go on in the reserve, and space heals everything."""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.journal.port import Write
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import FaultKind, SimulatedDisk
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import ReadOnly
from tests.journal.places import change
from tests.journal.workload import SMALL, Model, assert_same, script, shown_by

if TYPE_CHECKING:
    from collections.abc import Iterator

RESERVE_BYTES = 128 * 1024


@pytest.fixture
def disk() -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(Random(1))
    yield made
    made.close()


@pytest.fixture
def journal(disk: SimulatedDisk) -> Iterator[SqliteJournal]:
    made = journal_on(disk)
    made.open()
    yield made
    made.close()


def journal_on(disk: SimulatedDisk, reserve_bytes: int = RESERVE_BYTES) -> SqliteJournal:
    return SqliteJournal("data", vfs=disk.name, tuning=SMALL, reserve_bytes=reserve_bytes)


def test_pushes_are_refused_and_acks_go_on(disk: SimulatedDisk, journal: SqliteJournal) -> None:
    journal.commit(change(Write(1, b"push"), rows={1: batch_of([bytes(9_000)])}))
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(ReadOnly, match="full") as caught:
        journal.commit(change(Write(1, b"push"), rows={2: batch_of([bytes(9_000)])}))
    assert "free some space" in caught.value.hint
    assert journal.last_row() == 1
    for _ in range(20):
        journal.commit(change(Write(1, b"ack")))
    journal.commit(change(Write(1, b"ack"), dropped_rows=[1]))
    with pytest.raises(ReadOnly):
        journal.commit(change(Write(1, b"push"), rows={2: batch_of([b"small"])}))
    assert journal.load(1).records == [b"push"] + [b"ack"] * 21
    disk.restart()
    again = journal_on(disk)
    again.open()
    assert again.load(1).records == [b"push"] + [b"ack"] * 21
    assert again.last_row() == 1
    again.close()


def test_an_ack_that_meets_the_full_disk_first_is_stored(
    disk: SimulatedDisk, journal: SqliteJournal
) -> None:
    disk.capacity_bytes = disk.used_bytes
    journal.commit(change(Write(1, b"ack", bytes(20_000))))
    snapshot = journal.load(1).snapshot
    assert snapshot == bytes(20_000)


def test_pushes_go_on_by_themselves_when_space_returns(
    disk: SimulatedDisk, journal: SqliteJournal
) -> None:
    """More than fits into the WAL, which has its room from the start."""
    push = change(Write(1, b"push"), rows={1: batch_of([bytes(40_000)])})
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(ReadOnly):
        journal.commit(push)
    journal.commit(change(Write(1, b"ack")))
    disk.capacity_bytes += RESERVE_BYTES // 2  # not enough for the reserve: no flapping
    with pytest.raises(ReadOnly):
        journal.commit(push)
    disk.capacity_bytes = None
    journal.commit(push)
    assert journal.fetch([1])[0].bodies() == [bytes(40_000)]
    assert disk.size_bytes("data/journal.reserve") == RESERVE_BYTES


def test_a_wal_that_finds_no_room_is_not_laid_out(disk: SimulatedDisk) -> None:
    journal = journal_on(disk)
    journal.open()
    journal.commit(change(Write(1, b"push"), rows={1: batch_of([b"kept"])}))
    laid_out_bytes = disk.size_bytes("data/journal.db-wal")
    journal.close()
    disk.capacity_bytes = disk.used_bytes + laid_out_bytes // 2
    again = journal_on(disk)
    again.open()
    assert disk.size_bytes("data/journal.db-wal") < laid_out_bytes // 2
    again.commit(change(Write(1, b"ack")))
    assert again.load(1).records == [b"push", b"ack"]
    again.close()


def test_the_reserve_is_filled_again_while_idle(
    disk: SimulatedDisk, journal: SqliteJournal
) -> None:
    disk.capacity_bytes = disk.used_bytes
    journal.commit(change(Write(1, b"ack", bytes(20_000))))
    assert disk.size_bytes("data/journal.reserve") == 0
    disk.capacity_bytes = None
    journal.tidy()
    assert disk.size_bytes("data/journal.reserve") == RESERVE_BYTES


def test_when_the_reserve_is_used_up_acks_are_refused_and_nothing_is_lost(
    disk: SimulatedDisk, journal: SqliteJournal
) -> None:
    disk.capacity_bytes = disk.used_bytes
    stored = 0
    with contextlib.suppress(ReadOnly):
        while stored < 1_000:
            journal.commit(change(Write(1, bytes(3_000))))
            stored += 1
    with pytest.raises(ReadOnly, match="full"):
        journal.commit(change(Write(1, bytes(3_000))))
    assert stored < 1_000
    assert stored > 10
    assert len(journal.load(1).records) == stored
    disk.capacity_bytes = None
    journal.commit(change(Write(1, b"on")))
    assert len(journal.load(1).records) == stored + 1


def test_acks_do_not_run_out_of_space_and_draining_heals_by_itself(
    disk: SimulatedDisk, journal: SqliteJournal
) -> None:
    for row in range(1, 101):
        journal.commit(change(Write(1, b"push"), rows={row: batch_of([bytes(9_000)])}))
    disk.capacity_bytes = disk.used_bytes
    for row in range(1, 101):
        for _ in range(20):
            journal.commit(change(Write(1, b"received")))
        journal.commit(change(Write(1, b"ack", b"folded"), dropped_rows=[row]))
    push = change(Write(1, b"push"), rows={101: batch_of([bytes(9_000)])})
    with pytest.raises(ReadOnly):
        journal.commit(push)
    while journal.tidy():
        pass
    journal.commit(push)
    assert journal.fetch([101])[0].count == 1


def test_a_reserve_as_large_as_the_wal_is_enough_for_ever(disk: SimulatedDisk) -> None:
    """The WAL is full of new pages when the disk is: all of them must still find room."""
    tuning = msgspec.structs.replace(SMALL, checkpoint_pages=62)
    journal = SqliteJournal("data", vfs=disk.name, tuning=tuning, reserve_bytes=64 * 1024)
    journal.open()
    journal.commit(change(Write(1, b"push"), rows={1: batch_of([bytes(46_000)])}))
    disk.capacity_bytes = disk.used_bytes
    for number in range(400):
        folded = b"folded" if number % 10 == 0 else None
        journal.commit(change(Write(1, b"received", folded)))
    assert disk.size_bytes("data/journal.reserve") == 0
    assert journal.fetch([1])[0].bodies() == [bytes(46_000)]
    journal.close()


def test_a_journal_opens_on_a_full_disk(disk: SimulatedDisk, journal: SqliteJournal) -> None:
    journal.commit(change(Write(1, b"a"), rows={1: batch_of([bytes(9_000)])}))
    journal.close()
    disk.capacity_bytes = disk.used_bytes
    assert journal.open() == 2
    assert journal.fetch([1])[0].bodies() == [bytes(9_000)]
    journal.commit(change(Write(1, b"ack"), dropped_rows=[1]))
    with pytest.raises(ReadOnly):
        journal.commit(change(rows={2: batch_of([bytes(9_000)])}))


def test_without_a_reserve_opening_on_a_full_disk_says_so_and_works_later(
    disk: SimulatedDisk,
) -> None:
    journal = journal_on(disk, reserve_bytes=0)
    journal.open()
    journal.commit(change(Write(1, b"a")))
    journal.close()
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(ReadOnly, match="full"):
        journal.open()
    disk.capacity_bytes = None
    assert journal.open() == 2
    assert journal.load(1).records == [b"a"]
    journal.close()


@pytest.mark.parametrize("reserve_bytes", [0, 16 * 1024])
def test_a_disk_that_fills_up_at_any_operation(reserve_bytes: int) -> None:
    """Refused means refused: not stored, now or after a power loss. And space heals it."""
    commits = script(Random(7))
    operation, refused = 0, 0
    while True:
        operation += 1
        disk = SimulatedDisk(Random(operation))
        journal = journal_on(disk, reserve_bytes)
        journal.open()
        disk.faults[operation + disk.operations] = FaultKind.FULL
        strikes_at = operation + disk.operations
        model = Model()
        for commit in commits:
            try:
                journal.commit(commit)
            except ReadOnly:
                refused += 1
                assert_same(shown_by(journal), model.state, f"full at operation {operation}")
                disk.capacity_bytes = None
                journal.commit(commit)
            model.apply(commit)
        struck = disk.operations >= strikes_at
        disk.capacity_bytes = None
        disk.restart()
        journal.close()
        journal.open()
        assert_same(shown_by(journal), model.state, f"full at operation {operation}, then power")
        journal.close()
        disk.close()
        if not struck:
            break
    assert refused > 20


def test_a_refused_commit_is_not_there_after_a_power_loss_at_once() -> None:
    commits = script(Random(5))
    refused = 0
    for operation in range(1, 120):
        disk = SimulatedDisk(Random(operation))
        journal = journal_on(disk, reserve_bytes=0)
        journal.open()
        disk.faults[operation + disk.operations] = FaultKind.FULL
        model = Model()
        for commit in commits:
            try:
                journal.commit(commit)
            except ReadOnly:
                refused += 1
                break
            model.apply(commit)
        disk.capacity_bytes = None
        disk.restart()
        journal.close()
        journal.open()
        assert_same(shown_by(journal), model.state, f"full at operation {operation}, then power")
        journal.close()
        disk.close()
    assert refused > 50
