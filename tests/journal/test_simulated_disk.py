"""The simulated disk fails as it says: what is proven on it rests on that."""

from __future__ import annotations

from random import Random

import apsw
import pytest

from nexo.simulation.disk import SECTOR_BYTES, Crashed, Fault, FaultKind, SimulatedDisk

NEW = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_WAL
OLD = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL
PAGE = 8 * SECTOR_BYTES


def opened(disk: SimulatedDisk, name: str = "file", flags: int = NEW) -> apsw.VFSFile:
    return apsw.VFSFile(disk.name, name, [flags, 0])


def outcomes(strike: FaultKind | None, times: int = 200) -> set[bytes]:
    """What a file of zeros may hold after ones were written over it and the power went, if
    the write was followed by an fsync that meets this fault, or by none."""
    found = set()
    for seed in range(times):
        disk = SimulatedDisk(Random(seed))
        file = opened(disk)
        file.xWrite(bytes(PAGE), 0)
        file.xSync(0)
        file.xWrite(b"\1" * PAGE, 0)
        if strike is not None:
            disk.faults[disk.operations + 1] = strike
            with pytest.raises(apsw.IOError):
                file.xSync(0)
            assert file.xRead(PAGE, 0) == b"\1" * PAGE, "the cache shows what was written"
            file.xSync(0)  # succeeds, and writes nothing
        file.xClose()
        disk.restart()
        again = opened(disk, flags=OLD)
        found.add(again.xRead(PAGE, 0))
        again.xClose()
        disk.close()
    return found


@pytest.mark.parametrize("strike", [None, FaultKind.FAIL])
def test_what_was_not_synchronized_is_kept_lost_or_torn(strike: FaultKind | None) -> None:
    found = outcomes(strike)
    assert bytes(PAGE) in found
    assert b"\1" * PAGE in found
    torn = found - {bytes(PAGE), b"\1" * PAGE}
    assert len(torn) > 20
    for data in torn:
        sectors = [data[at : at + SECTOR_BYTES] for at in range(0, PAGE, SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors), "torn inside a sector"


def test_what_was_synchronized_survives() -> None:
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        file = opened(disk)
        file.xWrite(b"safe", 0)
        file.xSync(0)
        file.xWrite(b"lost", 4)
        file.xClose()
        disk.restart()
        again = opened(disk, flags=OLD)
        assert again.xRead(4, 0) == b"safe"
        again.xClose()
        disk.close()


def test_writing_the_bytes_again_mends_a_failed_fsync() -> None:
    for seed in range(50):
        disk = SimulatedDisk(Random(seed), [Fault(4, FaultKind.FAIL)])
        file = opened(disk)  # 1
        file.xSync(0)  # 2
        file.xWrite(b"data", 0)  # 3
        with pytest.raises(apsw.IOError):
            file.xSync(0)  # 4
        file.xWrite(file.xRead(4, 0), 0)
        file.xSync(0)
        file.xClose()
        disk.restart()
        again = opened(disk, flags=OLD)
        assert again.xRead(4, 0) == b"data"
        again.xClose()
        disk.close()


def test_a_deletion_may_be_undone_until_the_directory_is_synchronized() -> None:
    found = set()
    for seed in range(40):
        for syncdir in (False, True):
            disk = SimulatedDisk(Random(seed))
            file = opened(disk)
            file.xSync(0)
            file.xClose()
            disk.xDelete("file", syncdir)
            disk.restart()
            found.add((syncdir, disk.xAccess("file", 0)))
            disk.close()
    assert found == {(False, False), (False, True), (True, False)}


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimulatedDisk(Random(1), capacity_bytes=10)
    file = opened(disk)
    file.xWrite(b"12345678", 0)
    with pytest.raises(apsw.FullError):
        file.xWrite(b"abcd", 8)
    assert file.xFileSize() == 10
    file.xWrite(b"over", 0)  # in place: no room needed
    file.xTruncate(4)
    file.xWrite(b"abcdef", 4)
    assert file.xRead(20, 0)[:10] == b"overabcdef"
    file.xClose()
    disk.close()


def test_without_power_nothing_works() -> None:
    disk = SimulatedDisk(Random(1), [Fault(2, FaultKind.CRASH)])
    file = opened(disk)
    with pytest.raises(Crashed):
        file.xWrite(b"x", 0)
    with pytest.raises(Crashed):
        file.xRead(1, 0)
    disk.restart()
    with pytest.raises(apsw.IOError):
        file.xRead(1, 0)
    file.xClose()
    disk.close()


def test_slowness_is_counted_not_slept() -> None:
    disk = SimulatedDisk(Random(1), write_ms=2.0, sync_ms=5.0)
    file = opened(disk)
    file.xWrite(b"x", 0)
    file.xSync(0)
    file.xClose()
    assert disk.elapsed_ms == 7.0
    disk.close()
