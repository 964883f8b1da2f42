"""Power loss and I/O errors at every single operation of a workload."""

from __future__ import annotations

from random import Random

import pytest

from nexo.journal.port import Commit, Journal, Write
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import Crashed, Fault, FaultKind, SimulatedDisk
from nexo.vocabulary.errors import NexoError, ReadOnly
from tests.journal.workload import SMALL, Model, assert_same, script, shown_by

SEEDS = [1, 2, 3]


def journal_on(disk: SimulatedDisk, reserve_bytes: int = 0) -> SqliteJournal:
    return SqliteJournal("data", vfs=disk.name, tuning=SMALL, reserve_bytes=reserve_bytes)


def run(journal: Journal, commits: list[Commit], states: list[Model]) -> None:
    """The whole life of a broker; `states` gets a model for each commit that was confirmed."""
    journal.open()
    for number, commit in enumerate(commits):
        journal.commit(commit)
        states.append(states[-1].copy())
        states[-1].apply(commit)
        if number % 8 == 7:
            journal.tidy()
        if number == len(commits) // 2:
            journal.close()
            journal.open()
    while journal.tidy():
        pass
    journal.close()


def in_doubt(states: list[Model], commits: list[Commit]) -> list[Model]:
    """The last confirmed state, and the one with the next commit: no other may be found."""
    allowed = [states[-1]]
    if len(states) <= len(commits):
        following = states[-1].copy()
        following.apply(commits[len(states) - 1])
        allowed.append(following)
    return allowed


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_at_every_operation_leaves_all_that_was_confirmed(seed: int) -> None:
    commits = script(Random(seed))
    operation = 0
    while True:
        operation += 1
        disk = SimulatedDisk(Random(seed * operation), [Fault(operation, FaultKind.CRASH)])
        states = [Model()]
        journal = journal_on(disk)
        try:
            run(journal, commits, states)
        except (Crashed, NexoError):
            assert disk.is_down
        else:
            disk.close()
            break
        disk.restart()
        journal.close()
        journal = journal_on(disk)
        journal.open()
        found = shown_by(journal)
        allowed = in_doubt(states, commits)
        note = f"seed {seed}, power lost at operation {operation}, {len(states) - 1} confirmed"
        if found != allowed[-1].state:
            assert_same(found, allowed[0].state, note)
        journal.commit(Commit([Write(9, b"life goes on")], [], [], []))
        assert journal.load(9).records == [b"life goes on"]
        journal.close()
        disk.close()
    assert operation > 200, "the workload is too small to show anything"


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_while_recovering_from_a_power_loss(seed: int) -> None:
    random = Random(seed)
    commits = script(random)
    for attempt in range(150):
        disk = SimulatedDisk(random, [Fault(random.randrange(60, 300), FaultKind.CRASH)])
        states = [Model()]
        journal = journal_on(disk)
        try:
            run(journal, commits, states)
        except (Crashed, NexoError):
            assert disk.is_down
        for _ in range(random.randrange(1, 5)):
            disk.restart()
            journal.close()
            disk.faults[disk.operations + random.randrange(1, 25)] = FaultKind.CRASH
            journal = journal_on(disk)
            try:
                journal.open()
                journal.close()
            except (Crashed, NexoError):
                assert disk.is_down
        disk.restart()
        journal.close()
        disk.faults.clear()
        journal = journal_on(disk)
        journal.open()
        found = shown_by(journal)
        allowed = in_doubt(states, commits)
        if found != allowed[-1].state:
            assert_same(found, allowed[0].state, f"seed {seed}, attempt {attempt}")
        journal.close()
        disk.close()


def open_again(journal: Journal) -> None:
    """As the engine does: until it works. The fault of these tests strikes once."""
    try:
        journal.open()
    except ReadOnly:
        journal.open()


def go_on_through_a_fault(journal: Journal, commits: list[Commit], model: Model) -> int:
    """Run the script as the engine would: after `ReadOnly`, load anew and see what happened.
    Returns how often it was refused."""
    refused = 0
    open_again(journal)
    for number, commit in enumerate(commits):
        after = model.copy()
        after.apply(commit)
        while model.state != after.state:
            try:
                journal.commit(commit)
                model.state = after.state
            except ReadOnly:
                refused += 1
                open_again(journal)
                found = shown_by(journal)
                if found == after.state:
                    model.state = after.state  # it was in doubt, and has happened
                else:
                    assert_same(found, model.state, f"after the fault in commit {number}")
        if number == len(commits) // 2:
            journal.close()
            open_again(journal)
    return refused


@pytest.mark.parametrize("seed", SEEDS)
def test_an_io_error_at_any_operation_then_a_power_loss(seed: int) -> None:
    """The error may be a failed fsync, after which the system believes that all is written. What
    the journal confirms afterwards must still outlive the power."""
    commits = script(Random(seed))
    operation, refused = 0, 0
    while True:
        operation += 1
        disk = SimulatedDisk(Random(seed * operation), [Fault(operation, FaultKind.FAIL)])
        model = Model()
        journal = journal_on(disk)
        refused += go_on_through_a_fault(journal, commits, model)
        struck = disk.operations >= operation
        disk.faults.clear()
        disk.restart()
        journal.close()
        journal = journal_on(disk)
        journal.open()
        note = f"seed {seed}, operation {operation} failed, then the power"
        assert_same(shown_by(journal), model.state, note)
        journal.close()
        disk.close()
        if not struck:
            break
    assert refused > 50, "hardly any fault met a commit"


def test_a_broken_journal_writes_nothing_until_it_is_opened_again() -> None:
    disk = SimulatedDisk(Random(1))
    journal = journal_on(disk)
    journal.open()
    journal.commit(Commit([Write(1, b"a")], [], [], []))
    operations = disk.operations + 1
    disk.faults[operations] = FaultKind.FAIL
    with pytest.raises(ReadOnly, match="SQLITE_IOERR_WRITE"):
        journal.commit(Commit([Write(1, b"b")], [], [], []))
    assert disk.operations == operations, "it wrote on after the fault"
    with pytest.raises(ReadOnly, match="stopped after a fault"):
        journal.commit(Commit([Write(1, b"c")], [], [], []))
    journal.close()
    assert disk.operations == operations
    journal.open()
    journal.commit(Commit([Write(1, b"d")], [], [], []))
    assert journal.load(1).records == [b"a", b"d"]
    journal.close()
    disk.close()


def test_a_failed_fsync_is_reported_as_such() -> None:
    disk = SimulatedDisk(Random(1))
    journal = journal_on(disk)
    journal.open()
    probe = disk.operations
    journal.commit(Commit([Write(1, b"a")], [], [], []))
    writes = disk.operations - probe
    disk.faults[disk.operations + writes] = FaultKind.FAIL
    with pytest.raises(ReadOnly, match="SQLITE_IOERR_FSYNC") as caught:
        journal.commit(Commit([Write(1, b"b")], [], [], []))
    assert caught.value.hint
    journal.close()
    disk.close()


def test_a_killed_process_loses_nothing_even_unsynchronized() -> None:
    disk = SimulatedDisk(Random(1))
    journal = journal_on(disk)
    journal.open()
    journal.commit(Commit([Write(1, b"a")], [], [], []))
    disk.kill()
    again = journal_on(disk)
    assert again.open() == 2
    assert again.load(1).records == [b"a"]
    journal.close()
    again.close()
    disk.close()
