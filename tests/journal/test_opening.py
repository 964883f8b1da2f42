"""Who may open a file: the first, of the right version, and ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from nexo.journal.layout import APPLICATION_ID, FORMAT_VERSION, Layout
from nexo.journal.port import Write
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, NotReady, ReadOnly, VersionMismatch
from tests.journal.places import OnSimulatedDisk, bodies, change

NEXT = Layout(
    version=FORMAT_VERSION + 1,
    migrations={FORMAT_VERSION: "CREATE TABLE note (text); DELETE FROM record"},
)


def test_a_second_opener_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    first, second = SqliteJournal(tmp_path), SqliteJournal(tmp_path)
    first.open()
    with pytest.raises(NotReady, match=rf"{tmp_path}.*process {os.getpid()}") as caught:
        second.open()
    assert "data directory" in caught.value.hint
    first.commit(change(Write(1, b"a")))
    first.close()
    assert second.open() == 2
    assert second.load(1).records == [b"a"]
    second.close()


def test_another_process_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    code = (
        "import sys; from nexo.journal.sqlite import SqliteJournal\n"
        "from nexo.vocabulary.errors import NotReady\n"
        "try: SqliteJournal(sys.argv[1]).open()\n"
        "except NotReady as error: print(error.message)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert f"process {os.getpid()}" in answer.stdout
    journal.close()


def test_a_second_opener_on_the_simulated_disk_is_refused() -> None:
    place = OnSimulatedDisk()
    place.journal().open()
    with pytest.raises(NotReady, match="in use"):
        place.journal().open()
    place.leave()


def test_a_stale_lock_file_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "journal.lock").write_text("1\n")
    journal = SqliteJournal(tmp_path)
    assert journal.open() == 1
    assert (tmp_path / "journal.lock").read_text() == f"{os.getpid()}\n"
    journal.close()
    assert not (tmp_path / "journal.lock").exists()


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    newer = SqliteJournal(tmp_path, layout=NEXT)
    newer.open()
    newer.close()
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(VersionMismatch, match=f"version {NEXT.version}") as caught:
        SqliteJournal(tmp_path).open()
    assert caught.value.hint
    assert (tmp_path / "journal.db").read_bytes() == before


def test_an_older_format_is_migrated(tmp_path: Path) -> None:
    old = SqliteJournal(tmp_path)
    old.open()
    old.commit(change(Write(1, b"a"), rows={1: bodies("kept")}))
    old.close()
    new = SqliteJournal(tmp_path, layout=NEXT)
    assert new.open() == 2
    assert new.owners() == []  # the planted migration deletes the records
    assert new.fetch([1])[0].bodies() == [b"kept"]
    new.close()
    connection = apsw.Connection(str(tmp_path / "journal.db"))
    assert connection.pragma("user_version") == NEXT.version
    assert connection.pragma("application_id") == APPLICATION_ID
    connection.close()


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    old = SqliteJournal(tmp_path)
    old.open()
    old.commit(change(Write(1, b"a")))
    old.close()
    broken = Layout(
        version=NEXT.version,
        migrations={FORMAT_VERSION: "DELETE FROM record; INSERT INTO nowhere VALUES (1)"},
    )
    with pytest.raises(ReadOnly, match="nowhere"):
        SqliteJournal(tmp_path, layout=broken).open()
    old.open()
    assert old.load(1).records == [b"a"]
    old.close()


def test_a_version_without_a_way_up_is_refused(tmp_path: Path) -> None:
    old = SqliteJournal(tmp_path)
    old.open()
    old.close()
    with pytest.raises(VersionMismatch, match="no longer migrate"):
        SqliteJournal(
            tmp_path, layout=Layout(FORMAT_VERSION + 2, migrations={FORMAT_VERSION + 1: ""})
        ).open()


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(InvalidArgument, match="not a Nexo journal"):
        SqliteJournal(tmp_path).open()
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"holiday pictures" * 1_000)
    with pytest.raises(DataCorrupt, match=r"journal\.db"):
        SqliteJournal(tmp_path).open()


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReadOnly, match="cannot create the data directory"):
        SqliteJournal(tmp_path / "file" / "data").open()


def test_the_entries_of_new_directories_and_files_are_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronized = []
    real = os.fsync

    def spy(descriptor: int) -> None:
        synchronized.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    journal = SqliteJournal(tmp_path / "deep" / "data")
    journal.open()
    journal.close()
    assert synchronized == [tmp_path, tmp_path / "deep", tmp_path / "deep" / "data"]


def test_the_file_is_in_the_promised_mode(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "deep" / "data")
    journal.open()
    connection = journal._connection
    assert connection is not None
    modes = {
        name: connection.pragma(name)
        for name in ("journal_mode", "locking_mode", "synchronous", "auto_vacuum")
    }
    assert modes == {
        "journal_mode": "wal",
        "locking_mode": "exclusive",
        "synchronous": 2,
        "auto_vacuum": 2,
    }
    assert not (tmp_path / "deep" / "data" / "journal.db-shm").exists()
    journal.close()
