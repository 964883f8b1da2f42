"""Rotten bits: found by the checksum of what is read, and by the verifier in any case."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import apsw
import pytest

from nexo.journal.layout import FORMAT_VERSION
from nexo.journal.port import Stored, Write
from nexo.journal.sqlite import SqliteJournal
from nexo.journal.verify import Severity, verify
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, NexoError, NotReady
from tests.journal.places import bodies, change
from tests.journal.workload import shown_by

if TYPE_CHECKING:
    from pathlib import Path


def filled(path: Path, rows: int = 20) -> SqliteJournal:
    journal = SqliteJournal(path, reserve_bytes=0)
    journal.open()
    for row in range(1, rows + 1):
        batch = batch_of([b"needle-%d-%d;" % (row, n) * 50 for n in range(10)])
        journal.commit(change(Write(1, b"record-%d;" % row), rows={row: batch}))
    journal.commit(change(Write(2, b"", b"a-snapshot;" * 20)))
    return journal


def flip(file: Path, needle: bytes, bit: int = 1) -> None:
    """Turn a bit of the first place where these bytes stand."""
    data = bytearray(file.read_bytes())
    data[data.index(needle)] ^= 1 << bit
    file.write_bytes(data)


def test_a_flipped_bit_in_a_payload_is_named_and_only_that_row_suffers(tmp_path: Path) -> None:
    filled(tmp_path).close()
    flip(tmp_path / "journal.db", b"needle-7-3;")
    journal = SqliteJournal(tmp_path)
    journal.open()
    with pytest.raises(DataCorrupt, match="table payload, row 7: the checksum"):
        journal.fetch([6, 7, 8])
    assert [batch.count for batch in journal.fetch([6, 8])] == [10, 10]
    journal.close()
    report = verify(tmp_path)
    assert [finding.problem for finding in report.findings] == [
        "table payload, row 7: the checksum does not match"
    ]
    assert not report.is_sound


def test_a_flipped_bit_in_a_record_or_snapshot_is_named(tmp_path: Path) -> None:
    filled(tmp_path).close()
    flip(tmp_path / "journal.db", b"record-13;")
    flip(tmp_path / "journal.db", b"a-snapshot;")
    journal = SqliteJournal(tmp_path)
    journal.open()
    with pytest.raises(DataCorrupt, match="table record, owner 1, number 13"):
        journal.load(1)
    with pytest.raises(DataCorrupt, match="table snapshot, owner 2"):
        journal.load(2)
    journal.close()
    problems = " ".join(finding.problem for finding in verify(tmp_path).findings)
    assert "owner 1, number 13" in problems
    assert "snapshot, owner 2" in problems


def test_the_boot_epoch_has_a_checksum_too(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with_sqlite(tmp_path, "UPDATE meta SET value = value + 1 WHERE name = 'boot_epoch'")
    with pytest.raises(DataCorrupt, match="table meta, boot_epoch"):
        SqliteJournal(tmp_path).open()
    assert not verify(tmp_path).is_sound


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE payload SET row = 99 WHERE row = 5", "row 99: the checksum"),
        ("UPDATE payload SET extras = x'90' WHERE row = 5", "row 5: the checksum"),
        ("UPDATE payload SET count = 9 WHERE row = 5", "row 5: the checksum"),
        ("DELETE FROM record WHERE number = 4", "5 follows 3"),
        ("UPDATE record SET owner = 2, number = 2 WHERE number = 1", "owner 2, number 2"),
        ("UPDATE snapshot SET owner = 4", "snapshot, owner 4"),
        ("DELETE FROM meta", "boot epoch is missing"),
    ],
)
def test_what_is_moved_or_missing_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    filled(tmp_path).close()
    assert verify(tmp_path).findings == []
    with_sqlite(tmp_path, statement)
    report = verify(tmp_path)
    assert any(problem in finding.problem for finding in report.findings), report.findings


def test_any_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    """Whatever rots, the journal shows the truth, or the verifier says that it does not."""
    journal = filled(tmp_path / "data", rows=6)
    truth = shown_by(journal)
    journal.close()
    file = tmp_path / "data" / "journal.db"
    sound = file.read_bytes()
    random = Random(3)
    found = 0
    for _ in range(250):
        data = bytearray(sound)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        file.write_bytes(data)
        is_sound = verify(tmp_path / "data").is_sound
        journal = SqliteJournal(tmp_path / "data", reserve_bytes=0)
        try:
            journal.open()
            shown = shown_by(journal)
        except NexoError:
            shown = None
        journal.close()
        assert shown == truth or not is_sound, "untrue, and called sound"
        found += not is_sound
        file.write_bytes(sound)
    assert found > 40  # the rest fell into unused parts of pages


def test_a_torn_wal_in_the_middle_ends_before_the_tear(tmp_path: Path) -> None:
    """SQLite stops at the first frame whose checksum is wrong: a prefix, never a mixture."""
    journal = filled(tmp_path)
    wal = (tmp_path / "journal.db-wal").read_bytes()
    database = (tmp_path / "journal.db").read_bytes()
    journal.close()
    other = tmp_path / "other"
    other.mkdir()
    (other / "journal.db").write_bytes(database)
    torn = bytearray(wal)
    torn[len(wal.rstrip(b"\0")) // 2] ^= 255  # zeros follow the last frame
    (other / "journal.db-wal").write_bytes(torn)
    journal = SqliteJournal(other)
    journal.open()
    records = journal.load(1).records
    assert records == [b"record-%d;" % row for row in range(1, len(records) + 1)]
    assert 0 < len(records) < 20
    journal.close()
    assert verify(other).is_sound


class RowsByName:
    """A fold for tests: a record names the row that it refers to."""

    def rows_of(self, owner: int, stored: Stored) -> tuple[set[int], list[str]]:
        complaints = ["it has a snapshot"] if stored.snapshot else []
        return {int(record) for record in stored.records}, complaints


def test_rows_are_compared_with_what_the_owners_refer_to(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    journal.commit(change(Write(1, b"1"), Write(2, b"2"), rows={1: bodies("a"), 2: bodies("b")}))
    journal.commit(change(Write(1, b"8"), rows={3: bodies("c", "d")}))
    journal.close()
    report = verify(tmp_path, RowsByName())
    assert [(finding.severity, finding.problem) for finding in report.findings] == [
        (Severity.ERROR, "owner 1 refers to row 8, which is missing"),
        (Severity.WARNING, "row 3 belongs to no owner"),
    ]
    counts = (report.rows, report.messages, report.payload_bytes, report.owners, report.records)
    assert counts == (3, 4, 4, 2, 3)
    told = (report.format_version, report.boot_epoch, report.last_row)
    assert told == (FORMAT_VERSION, 1, 3)


def test_complaints_of_the_fold_are_findings(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    journal.commit(change(Write(4, b"", b"snapshot")))
    journal.close()
    findings = verify(tmp_path, RowsByName()).findings
    assert [finding.problem for finding in findings] == ["owner 4: it has a snapshot"]


def test_the_verifier_changes_nothing_and_reads_the_wal(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("journal.db", "journal.db-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    journal.close()
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    report = verify(copy)
    assert report.rows == 20
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


def test_the_verifier_leaves_no_file_behind(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = sorted(file.name for file in tmp_path.iterdir())
    assert verify(tmp_path).is_sound
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_damage_that_no_checksum_covers_is_found(tmp_path: Path) -> None:
    filled(tmp_path).close()
    file = tmp_path / "journal.db"
    data = bytearray(file.read_bytes())
    data[39] += 1  # the number of free pages, in the header of the file
    file.write_bytes(data)
    problems = [finding.problem for finding in verify(tmp_path).findings]
    assert len(problems) == 1
    assert "structure of the file" in problems[0]


def test_the_verifier_refuses_a_journal_in_use_and_a_missing_one(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    with pytest.raises(NotReady):
        verify(tmp_path)
    journal.close()
    with pytest.raises(InvalidArgument, match="no broker data"):
        verify(tmp_path / "elsewhere")


def test_the_verifier_reports_what_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no database at all" * 100)
    assert not verify(tmp_path).is_sound


def with_sqlite(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path / "journal.db"))
    connection.execute(statement)
    connection.close()
