"""A backup taken under load: what is restored is one moment of the broker, nothing else."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.engine.backups import restore
from nexo.journal.backup import JournalCopy
from nexo.journal.sqlite import JOURNAL_FILE
from nexo.testing import broker
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = ("orders", "invoices")
BACKLOG = 3_000


class Load:
    """Producers and consumers, and what they were told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending = threading.Event()
        self.pushed: dict[str, set[str]] = {name: set() for name in QUEUES}  # confirmed
        self.acking: dict[str, set[str]] = {name: set() for name in QUEUES}  # asked for
        self.acked: dict[str, set[str]] = {name: set() for name in QUEUES}  # confirmed
        self._threads = [
            threading.Thread(target=work, args=(name,))
            for name in QUEUES
            for work in (self._produce, self._consume)
        ]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, name: str) -> None:
        with nexo.connect(self._url) as client:
            number = 0
            while not self._ending.is_set():
                bodies = [f"{name} {number + index}" for index in range(20)]
                client.queue(name).push_batch(bodies)
                self.pushed[name] |= set(bodies)
                number += len(bodies)

    def _consume(self, name: str) -> None:
        with nexo.connect(self._url) as client:
            while not self._ending.is_set():
                messages = client.queue(name).pop_batch(10, wait=0.05)
                bodies = {message.text for message in messages}
                self.acking[name] |= bodies
                assert client.queue(name).ack_batch(messages) == []
                self.acked[name] |= bodies


def copies(sets: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: set(bodies) for name, bodies in sets.items()}


@pytest.mark.timeout(120)
def test_a_backup_under_load_is_one_moment(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running, running.client() as client:
        for name in QUEUES:
            client.create_queue(name).push_batch([f"old {number}" for number in range(BACKLOG)])
        load = Load(running.url)
        load.begin()
        pushed_before, acked_before = copies(load.pushed), copies(load.acked)
        heard: list[str] = []

        def hear(doing: str, done: int, total: int) -> None:
            heard.append(doing)
            # Others push meanwhile, however late they begin or soon it would be over.
            eventually(lambda: any(load.pushed[name] > pushed_before[name] for name in QUEUES))

        size = client.backup(tmp_path / "kept", progress=hear)
        acking_until = copies(load.acking)
        load.end()
        pushed_in_all = copies(load.pushed)
    assert size == (tmp_path / "kept").stat().st_size
    assert "fetching" in heard
    report = restore(tmp_path / "kept", tmp_path / "new", lambda done, total: None)
    assert report.is_sound
    old = {f"old {number}" for number in range(BACKLOG)}
    with broker(tmp_path / "new") as running, running.client() as client:
        for name in QUEUES:
            queue = client.queue(name)
            depth = queue.info().depth
            kept: list[str] = []
            while len(kept) < depth:
                messages = queue.pop_batch(1_000, wait=40)  # what was in flight comes back
                kept += [message.text for message in messages]
                assert messages, f"{depth - len(kept)} never came"
            assert len(set(kept)) == len(kept), "a message is there twice"
            lost = (pushed_before[name] | old) - acking_until[name] - set(kept)
            assert not lost
            assert not acked_before[name] & set(kept), "an acked message is back"
            assert set(kept) <= pushed_in_all[name] | old | _unconfirmed(kept, pushed_in_all[name])


def _unconfirmed(kept: list[str], pushed: set[str]) -> set[str]:
    """The one batch of a producer that was stored when it was stopped, and not yet noted."""
    extra = set(kept) - pushed
    return extra if len(extra) <= 20 else set()


def test_one_backup_at_a_time(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push("one")
        number = running.call(lambda engine: engine.backups.begin()).backup
        with pytest.raises(nexo.RateLimited):
            client.backup(tmp_path / "kept")
        assert not (tmp_path / "kept").exists()
        running.call(lambda engine: engine.backups.end(number))
        assert client.backup(tmp_path / "kept") > 0
        with pytest.raises(nexo.InvalidArgument, match="already exists"):
            client.backup(tmp_path / "kept")
        assert client.backup(tmp_path / "kept", replace=True) > 0
        eventually(lambda: no_copy_is_left(tmp_path / "data"))  # it goes in a thread


def no_copy_is_left(data: Path) -> bool:
    return not list(data.glob("*copy*"))


class BrokenOff(BaseException):
    """As Ctrl-C is no `Exception` either."""


@pytest.mark.parametrize("breaking", ["copying", "fetching"])
def test_one_that_is_broken_off_makes_room_for_the_next_at_once(
    tmp_path: Path, breaking: str
) -> None:
    def told(doing: str, done: int, total: int) -> None:
        if doing == breaking:
            raise BrokenOff

    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push_batch([bytes(1_000)] * 5_000)
        with pytest.raises(BrokenOff):
            client.backup(tmp_path / "kept", progress=told)
        eventually(lambda: no_copy_is_left(tmp_path / "data"))
        assert [each.name for each in tmp_path.iterdir()] == ["data"]  # no part of it either
        assert client.backup(tmp_path / "kept") > 0


def test_one_that_is_interrupted_between_two_answers_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while the client waits for the broker."""
    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push("one")
        run, asked = client._connection.run, []

        def interrupted(operation: object) -> object:
            asked.append(operation)
            if len(asked) == 2:
                raise KeyboardInterrupt
            return run(operation)  # type: ignore[arg-type]

        monkeypatch.setattr(client._connection, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.backup(tmp_path / "kept")
        monkeypatch.undo()
        assert client.backup(tmp_path / "kept") > 0


def test_one_that_fails_is_told_and_makes_room_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: JournalCopy) -> None:
        raise nexo.ReadOnly("copying failed", "look at the disk")

    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push("one")
        monkeypatch.setattr(JournalCopy, "step", fail)
        number = running.call(lambda engine: engine.backups.begin()).backup
        eventually(lambda: no_copy_is_left(tmp_path / "data"))
        with pytest.raises(nexo.ReadOnly, match="copying failed"):
            running.call(lambda engine: engine.backups.progress(number))
        with pytest.raises(nexo.ReadOnly, match="copying failed"):
            client.backup(tmp_path / "kept")
        monkeypatch.undo()
        assert client.backup(tmp_path / "kept") > 0


def test_one_whose_client_was_killed_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push("one")
        gone = running.call(lambda engine: engine.backups.begin()).backup
        with pytest.raises(nexo.RateLimited):
            client.backup(tmp_path / "kept")
        monkeypatch.setattr("nexo.engine.backups.BACKUP_SILENCE_MS", 0)
        assert client.backup(tmp_path / "kept") > 0
        with pytest.raises(nexo.InvalidArgument, match="there is no backup"):
            running.call(lambda engine: engine.backups.progress(gone))
        eventually(lambda: no_copy_is_left(tmp_path / "data"))


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    """Not the file, nor anything that it is made of, at any moment."""
    seen: dict[str, int] = {}

    def look(*_: object) -> None:
        for each in tmp_path.rglob("*"):
            if each.is_file():
                seen[each.name] = seen.get(each.name, 0) | stat.S_IMODE(each.stat().st_mode)

    before = os.umask(0)
    try:
        with broker(tmp_path / "data") as running, running.client() as client:
            client.create_queue("orders").push_batch([bytes(1_000)] * 5_000)
            (tmp_path / "kept").write_bytes(b"an older one")
            (tmp_path / "kept").chmod(0o600)
            client.backup(tmp_path / "kept", replace=True, progress=look)
            look()
        restore(tmp_path / "kept", tmp_path / "new", look)
    finally:
        os.umask(before)
    made = {JOURNAL_FILE, f"{JOURNAL_FILE}-wal", "journal.copy", "kept", "kept.part"}
    assert made | {f"{JOURNAL_FILE}.restoring"} <= seen.keys()
    assert {name: oct(mode) for name, mode in seen.items() if mode & 0o077} == {}


def test_a_copy_that_a_crash_left_goes_at_the_next_start(tmp_path: Path) -> None:
    with broker(tmp_path / "data"):
        pass
    (tmp_path / "data" / "journal.copy").write_bytes(b"half a journal")
    with broker(tmp_path / "data"):
        eventually(lambda: no_copy_is_left(tmp_path / "data"))


def test_a_broker_in_memory_says_so(tmp_path: Path) -> None:
    with (
        broker() as running,
        running.client() as client,
        pytest.raises(nexo.InvalidArgument, match="in memory"),
    ):
        client.backup(tmp_path / "kept")


def test_a_broker_that_stops_takes_its_backup_along(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running, running.client() as client:
        client.create_queue("orders").push_batch([bytes(1_000)] * 5_000)
        running.call(lambda engine: engine.backups.begin())
    assert not list((tmp_path / "data").glob("*copy*"))
