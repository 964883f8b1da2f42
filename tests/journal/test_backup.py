"""A copy of a journal that is in use, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.journal import backup
from nexo.journal.memory import MemoryJournal
from nexo.journal.port import Write
from nexo.journal.sqlite import JOURNAL_FILE, SqliteJournal
from nexo.journal.verify import verify
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, NotReady, ReadOnly
from tests.journal.places import change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nexo.journal.port import Copy

BODY = bytes(6_000)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "data")
    journal.open()
    for row in range(1, 401):
        journal.commit(change(Write(1, b"pushed %d" % row), rows={row: batch_of([BODY])}))
    yield journal
    journal.close()


def fetched(copy: Copy) -> bytes:
    pieces, offset = [], 0
    while piece := copy.read(offset, 100_000):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def restored(copy: Copy, tmp_path: Path) -> SqliteJournal:
    (tmp_path / "kept").write_bytes(fetched(copy))
    copy.close()
    heard: list[tuple[int, int]] = []
    backup.restore(
        tmp_path / "kept", tmp_path / "new", JOURNAL_FILE, lambda *told: heard.append(told)
    )
    assert heard[-1][0] == heard[-1][1] == (tmp_path / "kept").stat().st_size
    assert verify(tmp_path / "new").is_sound
    return SqliteJournal(tmp_path / "new")


def test_it_is_the_journal_as_of_the_end_of_the_copy(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    copy = journal.copy()
    steps = 1
    while not copy.step().done:
        number = 400 + steps
        # New rows, rows that were copied already and are gone now, and records in between.
        journal.commit(
            change(Write(1, b"more"), rows={number: batch_of([b"late"])}, dropped_rows=[steps])
        )
        steps += 1
    assert steps > 3
    again = restored(copy, tmp_path)
    again.open()
    assert again.load(1) == journal.load(1)
    assert again.last_row() == journal.last_row() == 400 + steps - 1
    kept = list(range(steps, 400 + steps))
    assert [batch.payload for batch in again.fetch(kept)] == [
        batch.payload for batch in journal.fetch(kept)
    ]
    again.close()


def test_a_restored_journal_skips_the_epochs_that_others_may_have_used(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    copy = journal.copy()
    while not copy.step().done:
        pass
    latest = max(journal.open() for _ in range(3))
    again = restored(copy, tmp_path)
    assert again.open() > latest
    again.close()


def test_progress_is_told_in_bytes(journal: SqliteJournal) -> None:
    copy = journal.copy()
    told = [copy.step()]
    while not told[-1].done:
        told.append(copy.step())
    assert [each.copied_bytes for each in told] == sorted({each.copied_bytes for each in told})
    assert told[-1].copied_bytes == told[-1].total_bytes == len(fetched(copy))
    copy.close()


def test_a_copy_ends_with_the_connection(journal: SqliteJournal, tmp_path: Path) -> None:
    copy = journal.copy()
    copy.step()
    journal.close()
    with pytest.raises(NotReady, match="interrupted"):
        copy.step()
    copy.close()
    journal.open()
    assert {each.name for each in (tmp_path / "data").iterdir()} <= {
        JOURNAL_FILE,
        f"{JOURNAL_FILE}-wal",
        "journal.lock",
        "journal.reserve",
    }


def test_there_must_be_room_beside_the_journal(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.journal.directory.DataDirectory.free_bytes", lambda _: 1_000)
    with pytest.raises(ReadOnly, match="1,000 are free"):
        journal.copy()


def test_a_journal_in_memory_has_nothing_to_back_up() -> None:
    journal = MemoryJournal()
    journal.open()
    with pytest.raises(InvalidArgument, match="in memory"):
        journal.copy()


def test_nothing_is_overwritten(journal: SqliteJournal, tmp_path: Path) -> None:
    copy = journal.copy()
    while not copy.step().done:
        pass
    (tmp_path / "kept").write_bytes(fetched(copy))
    before = (tmp_path / "data" / JOURNAL_FILE).stat()
    with pytest.raises(InvalidArgument, match="already holds the data of a broker"):
        backup.restore(tmp_path / "kept", tmp_path / "data", JOURNAL_FILE, lambda *_: None)
    assert (tmp_path / "data" / JOURNAL_FILE).stat().st_mtime_ns == before.st_mtime_ns
    copy.close()


@pytest.mark.parametrize("content", [b"", b"not a journal at all" * 100])
def test_what_is_no_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept").write_bytes(content)
    with pytest.raises(InvalidArgument, match="not a backup"):
        backup.restore(tmp_path / "kept", tmp_path / "new", JOURNAL_FILE, lambda *_: None)
    assert not (tmp_path / "new" / JOURNAL_FILE).exists()


def test_a_backup_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no backup"):
        backup.restore(tmp_path / "kept", tmp_path / "new", JOURNAL_FILE, lambda *_: None)
