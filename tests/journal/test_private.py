"""Who else can get at the data directory, and what is said of it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from nexo.journal.directory import DataDirectory
from nexo.journal.sqlite import SqliteJournal
from nexo.server.security import warn_of_directory
from nexo.vocabulary.errors import InvalidArgument
from tests.cli.commands import Nexo

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_made_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = SqliteJournal(tmp_path / "deep" / "data")
        journal.open()
        modes = {each.name: each.stat().st_mode for each in (tmp_path / "deep/data").iterdir()}
        journal.close()
    finally:
        os.umask(before)
    assert {"journal.db", "journal.db-wal", "journal.reserve", "journal.lock"} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if stat.S_IMODE(mode) & 0o077} == {}
    assert DataDirectory(tmp_path / "deep" / "data").exposure() == ""


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (0o777, "everybody on this machine can change"),
        (0o755, "everybody on this machine can look into"),
        (0o770, "its group can change"),
        (0o750, "its group can look into"),
        (0o700, ""),
    ],
)
def test_one_that_is_there_already(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, words: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    DataDirectory(data).make()  # it is used all the same
    warn_of_directory(data)
    assert words in caplog.text
    assert bool(words) == bool(caplog.records)
    if words:
        assert vars(caplog.records[0])["hint"] == f"chmod 700 {data}"


def test_doctor_tells_it_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    found = Nexo(tmp_path, "nexo://127.0.0.1:1")("doctor", "--data", data, "--json", status=1)
    (told,) = [each for each in found.json()["checks"] if each["name"] == "data"]
    assert (told["status"], told["hint"]) == ("warning", f"chmod 700 {data}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_of_another_user_that_everybody_can_change_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 65_534, -1)
    data.chmod(0o777)
    with pytest.raises(InvalidArgument, match="belongs to user 65534"):
        SqliteJournal(data).open()
    assert list(data.iterdir()) == []
    data.chmod(0o755)  # it is told of, and used
    journal = SqliteJournal(data)
    journal.open()
    journal.close()
