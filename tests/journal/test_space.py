"""A drained backlog gives its space back, and a busy journal does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.journal.port import Write
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.batch import batch_of
from tests.journal.places import change

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTE = 1024 * 1024


def test_a_drained_backlog_gives_its_space_back_in_short_steps(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    file = tmp_path / "journal.db"
    for row in range(1, 61):
        journal.commit(change(Write(1, b"push"), rows={row: batch_of([bytes(MEGABYTE)])}))
    assert file.stat().st_size > 30 * MEGABYTE
    journal.commit(change(Write(1, b"", b"empty"), dropped_rows=list(range(1, 61))))
    full = journal.usage()
    assert full.free_bytes > 50 * MEGABYTE
    given_back, has_more = [], True
    while has_more:
        free_bytes = journal.usage().free_bytes
        has_more = journal.tidy()
        given_back.append(free_bytes - journal.usage().free_bytes)
    assert len(given_back) > 10
    assert max(given_back) <= MEGABYTE  # counted, not timed: the machine may be loaded
    assert file.stat().st_size < 8 * MEGABYTE
    assert journal.usage().free_bytes < 8 * MEGABYTE
    assert journal.last_row() == 60
    assert journal.load(1).snapshot == b"empty"
    assert not journal.tidy()
    journal.close()


def test_space_is_reused_while_busy(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    batch = batch_of([bytes(100)] * 1_000)
    for row in range(1, 1_201):
        dropped = [row - 20] if row > 20 else []
        folded = b"state" if row % 100 == 0 else None
        write = Write(1, bytes(60), folded)
        journal.commit(change(write, rows={row: batch}, dropped_rows=dropped))
    # 120 MB went through; the file holds 20 rows, the WAL about one checkpoint's worth.
    assert (tmp_path / "journal.db").stat().st_size < 16 * MEGABYTE
    assert (tmp_path / "journal.db-wal").stat().st_size < 64 * MEGABYTE
    journal.close()


def test_the_wal_of_a_huge_commit_is_cut_back(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    journal.commit(change(rows={row: batch_of([bytes(10 * MEGABYTE)]) for row in range(1, 11)}))
    wal = tmp_path / "journal.db-wal"
    assert wal.stat().st_size > 90 * MEGABYTE
    assert journal.next_is_long
    journal.commit(change(Write(1, b"a")))  # it folds the WAL …
    assert not journal.next_is_long
    journal.commit(change(Write(1, b"b")))  # … and this one begins it anew
    assert wal.stat().st_size < 70 * MEGABYTE
    journal.close()


def test_the_wal_has_its_length_from_the_start(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    wal = tmp_path / "journal.db-wal"
    laid_out_bytes = wal.stat().st_size
    assert laid_out_bytes > 30 * MEGABYTE
    for row in range(1, 200):  # 20 MB and more: short of a checkpoint
        rows = {row: batch_of([bytes(100_000)])}
        journal.commit(change(Write(1, b"push"), rows=rows))
        assert wal.stat().st_size == laid_out_bytes
    journal.close()
    assert not wal.exists()
