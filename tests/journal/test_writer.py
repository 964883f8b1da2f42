"""Those who have something to write go together, and nobody waits for one who takes his time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from nexo.journal import postgresql_writer
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_connection import connect
from nexo.journal.postgresql_writer import Writer
from nexo.vocabulary.errors import Fenced
from nexo.vocabulary.limits import TRACK_SHARDS_MIN
from tests.journal.writing import execute, held_up, numbered, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.journal.port import Commit
    from tests.postgresql import PostgresqlServer


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("writer") as made:
        yield made


@pytest.fixture
def writer(url: str) -> Iterator[Writer]:
    made = Writer(lambda: connect(url, "nexo"))
    yield made
    made.close()


class Waiting:
    """Has something to write, and keeps what it is told."""

    def __init__(self, journal: PostgresqlJournal, row: int) -> None:
        self.journal = journal
        self._row = row
        self.end: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        raise AssertionError("it was not joined")

    def begin_joined(self) -> Commit | None:
        return numbered(self._row)

    def end_joined(self, took_s: float | None, error: BaseException | None) -> None:
        assert (took_s is None) == (error is not None)
        self.end.set_result(error)


class Nothing(Waiting):
    def begin_joined(self) -> None:
        return None


class Broken(Waiting):
    def begin_joined(self) -> Commit | None:
        raise ZeroDivisionError("a bug")


class Deaf(Waiting):
    def end_joined(self, took_s: float | None, error: BaseException | None) -> None:
        raise ZeroDivisionError("a bug")


@pytest.fixture
def journals(url: str) -> Iterator[list[PostgresqlJournal]]:
    made = [PostgresqlJournal(url, shard=shard) for shard in range(3)]
    for each in made:
        each.open()
    yield made
    for each in made:
        each.close()


def test_all_who_have_something_to_write_go_together(
    writer: Writer, journals: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        for row in (1, 2):
            waiting = [Waiting(journal, row) for journal in journals]
            for each in waiting:
                writer.soon(each)
            writer.soon(Nothing(journals[0], 9))
            assert [await each.end for each in waiting] == [None] * 3
            assert writer.transactions == row
        writer.soon(Nothing(journals[0], 9))  # alone
        writer.soon(last := Waiting(journals[0], 3))
        assert await last.end is None

    asyncio.run(asyncio.wait_for(work(), 30))
    rows = execute(url, "SELECT shard, row FROM nexo.payload ORDER BY row, shard")
    assert rows == [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2), (0, 3)]


def test_one_who_fails_when_asked_keeps_nobody_from_writing(
    writer: Writer, journals: list[PostgresqlJournal]
) -> None:
    async def work() -> list[str]:
        raised: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: raised.append(str(context["exception"]))
        )
        first, last = Waiting(journals[0], 1), Waiting(journals[2], 1)
        for each in (first, Broken(journals[1], 1), last):
            writer.soon(each)
        assert await first.end is None
        assert await last.end is None
        return raised

    assert asyncio.run(asyncio.wait_for(work(), 30)) == ["a bug"]


def test_one_who_fails_when_told_keeps_nobody_waiting(
    writer: Writer, journals: list[PostgresqlJournal], url: str
) -> None:
    """What he is told is an error, though it is stored: whoever is told one loads everything."""

    async def work() -> list[str]:
        raised: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: raised.append(str(context["exception"]))
        )
        await write(writer, journals[0], numbered(1), long=False)
        first, last = Waiting(journals[0], 2), Waiting(journals[2], 2)
        for each in (first, Deaf(journals[1], 2), last):
            writer.soon(each)
        assert await first.end is None
        assert isinstance(await last.end, ZeroDivisionError)
        writer.soon(again := Waiting(journals[0], 3))
        assert await again.end is None
        return raised

    assert asyncio.run(asyncio.wait_for(work(), 30)) == ["a bug"]
    assert execute(url, "SELECT count(*) FROM nexo.payload WHERE row = 2") == [(3,)]


@contextlib.contextmanager
def held(url: str, shards: str) -> Iterator[None]:
    """Whoever commits to these shards waits."""
    with psycopg.connect(url) as other:
        other.execute(f"SELECT FROM nexo.shard WHERE {shards} FOR UPDATE".encode())
        yield
        other.rollback()


def test_what_is_long_keeps_nobody_waiting(
    writer: Writer, journals: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        await write(writer, journals[0], numbered(1), long=False)
        with held(url, "id = 0"):
            long = asyncio.create_task(write(writer, journals[0], numbered(2), long=True))
            await held_up(url)
            for row in range(1, 4):
                writer.soon(waiting := Waiting(journals[1], row))
                assert await waiting.end is None
            await write(writer, journals[1], numbered(4), long=False)
            assert not long.done()
        await long
        writer.soon(waiting := Waiting(journals[0], 3))
        assert await waiting.end is None

    asyncio.run(asyncio.wait_for(work(), 30))


def test_what_is_long_leaves_a_track_to_the_others(
    writer: Writer, journals: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        with held(url, "id = 0"):
            first = asyncio.create_task(write(writer, journals[0], numbered(1), long=True))
            await held_up(url)
            second = asyncio.create_task(write(writer, journals[1], numbered(1), long=True))
            await write(writer, journals[2], numbered(1), long=False)
            assert not first.done()
            assert not second.done()
        await first
        await second

    asyncio.run(asyncio.wait_for(work(), 30))


def slow_thread(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """What takes a thread in the first track takes until this is set."""
    track, gate = writer._tracks[0], asyncio.Event()
    apart = track._apart

    async def wait(job: Callable[[], Any]) -> Any:
        await gate.wait()
        return await apart(job)

    monkeypatch.setattr(track, "_apart", wait)
    return gate


def test_a_connection_that_is_made_slowly_keeps_nobody_waiting(
    writer: Writer, journals: list[PostgresqlJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        gate = slow_thread(writer, monkeypatch)
        writer.soon(first := Waiting(journals[0], 1))
        await asyncio.sleep(0.05)
        writer.soon(second := Waiting(journals[1], 1))
        assert await second.end is None
        assert not first.end.done()
        gate.set()
        assert await first.end is None

    asyncio.run(asyncio.wait_for(work(), 30))


@pytest.fixture
def many(url: str) -> Iterator[list[PostgresqlJournal]]:
    made = [PostgresqlJournal(url, shard=shard) for shard in range(2 * TRACK_SHARDS_MIN)]
    for each in made:
        each.open()
    yield made
    for each in made:
        each.close()


def come(writer: Writer, journals: Iterable[PostgresqlJournal], row: int) -> list[Waiting]:
    """All of them have something to write."""
    waiting = [Waiting(journal, row) for journal in journals]
    for each in waiting:
        writer.soon(each)
    return waiting


async def all_told(waiting: Iterable[Waiting]) -> None:
    """It is stored."""
    for each in waiting:
        assert await each.end is None


async def tracks_open(writer: Writer, journals: list[PostgresqlJournal]) -> None:
    """Both have their connection, which takes a thread."""
    await all_told(come(writer, journals, 1))
    assert writer.transactions == 2


def test_many_go_in_two_halves_at_once(
    writer: Writer, many: list[PostgresqlJournal], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A moment's pause of the machine would make the server slow, and all would go together.
    monkeypatch.setattr(postgresql_writer, "TRACK_QUICK_MS", math.inf)

    async def work() -> None:
        await tracks_open(writer, many)
        with held(url, "id = 0"):
            waiting = come(writer, many, 2)
            await all_told(waiting[TRACK_SHARDS_MIN:])
            assert not any(each.end.done() for each in waiting[:TRACK_SHARDS_MIN])
            # As many as make it worth while go beside those that wait.
            await all_told(come(writer, many[TRACK_SHARDS_MIN:], 3))
        await all_told(waiting[:TRACK_SHARDS_MIN])
        assert writer.transactions == 5

    asyncio.run(asyncio.wait_for(work(), 30))
    assert execute(url, "SELECT count(*) FROM nexo.payload WHERE row = 2") == [(len(many),)]


def test_few_wait_for_those_before_them_and_go_together(
    writer: Writer, many: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        await tracks_open(writer, many)
        with held(url, "id = 0"):
            waiting = come(writer, many, 2)
            await all_told(waiting[TRACK_SHARDS_MIN:])
            few = come(writer, many[TRACK_SHARDS_MIN + 1 :], 3)
            await asyncio.sleep(0.05)
            assert not any(each.end.done() for each in few)
        await all_told(waiting + few)
        assert writer.transactions == 5

    asyncio.run(asyncio.wait_for(work(), 30))


def test_what_is_tried_again_keeps_nobody_waiting(
    writer: Writer,
    many: list[PostgresqlJournal],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        await tracks_open(writer, many)
        gate = slow_thread(writer, monkeypatch)
        execute(url, "UPDATE nexo.shard SET epoch = epoch + 1 WHERE id = 0")
        writer.soon(first := Waiting(many[0], 2))
        await asyncio.sleep(0.05)
        writer.soon(second := Waiting(many[1], 2))
        assert await second.end is None
        assert not first.end.done()
        gate.set()
        assert isinstance(await first.end, Fenced)

    asyncio.run(asyncio.wait_for(work(), 30))


def test_while_the_server_is_slow_all_go_together(
    writer: Writer, many: list[PostgresqlJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await tracks_open(writer, many)
        monkeypatch.setattr(postgresql_writer, "TRACK_QUICK_MS", 0.0)
        await all_told(come(writer, many, 2))
        assert writer.transactions == 3

    asyncio.run(asyncio.wait_for(work(), 30))


def test_the_writer_learns_that_the_server_is_slow(
    writer: Writer, many: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        await tracks_open(writer, many)
        with held(url, "id = 0"):
            writer.soon(slow := Waiting(many[0], 2))
            await held_up(url)
            await asyncio.sleep(0.1)
        assert await slow.end is None
        await all_told(come(writer, many, 3))
        assert writer.transactions == 4

    asyncio.run(asyncio.wait_for(work(), 30))


def test_an_overtaken_shard_is_taken_out_of_those_who_go_together(
    writer: Writer, journals: list[PostgresqlJournal], url: str
) -> None:
    async def work() -> None:
        await write(writer, journals[0], numbered(1), long=False)
        execute(url, "UPDATE nexo.shard SET epoch = epoch + 1 WHERE id = 1")
        waiting = come(writer, journals, 2)
        ends = [type(await each.end) for each in waiting]
        assert ends == [type(None), Fenced, type(None)]

    asyncio.run(asyncio.wait_for(work(), 30))
    rows = execute(url, "SELECT shard FROM nexo.payload WHERE row = 2 ORDER BY shard")
    assert rows == [(0,), (2,)]
