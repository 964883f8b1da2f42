"""A connection that writes: without a thread where it can be, and always all or nothing."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import uvloop

from nexo.journal.port import Write
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_connection import connect
from nexo.journal.postgresql_pipeline import BIGINT, BYTES, INTEGER, Pipeline, Statement
from nexo.journal.postgresql_track import Track
from nexo.journal.postgresql_watch import Watch
from nexo.journal.postgresql_writer import Writer
from nexo.vocabulary.errors import Fenced, NotReady
from nexo.vocabulary.limits import INLINE_COMMIT_BYTES
from tests.journal.places import bodies, change
from tests.journal.writing import END_OTHERS, execute, held_up, numbered, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgresql import PostgresqlServer


NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[NewLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]


def run_in(new_loop: NewLoop, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("writer") as made:
        yield made


@pytest.fixture
def journal(url: str) -> Iterator[PostgresqlJournal]:
    made = PostgresqlJournal(url)
    made.open()
    yield made
    made.close()


@pytest.fixture
def writer(url: str) -> Iterator[Writer]:
    made = Writer(lambda: connect(url, "nexo"))
    yield made
    made.close()


def test_the_event_loop_writes_without_a_thread(
    writer: Writer, journal: PostgresqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)  # connects, which may block
        monkeypatch.setattr(Track, "_apart", None)
        for row in range(2, 6):
            await write(writer, journal, numbered(row), long=False)

    asyncio.run(work())
    assert journal.load(1).records == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("long", [False, True])
def test_a_commit_that_the_socket_does_not_take_at_once(
    writer: Writer, journal: PostgresqlJournal, long: bool
) -> None:
    async def work() -> int:
        await write(writer, journal, numbered(1), long=False)
        task = asyncio.create_task(
            write(writer, journal, numbered(2, 4 * INLINE_COMMIT_BYTES), long=long)
        )
        turns = 0
        while not task.done():  # the loop goes on meanwhile
            turns += 1
            await asyncio.sleep(0)
        await task
        return turns

    assert asyncio.run(work()) > 2
    (batch,) = journal.fetch([2])
    assert batch.bodies() == [b"\x02" * 4 * INLINE_COMMIT_BYTES]


def test_one_who_was_overtaken_is_told_so(
    writer: Writer, journal: PostgresqlJournal, url: str
) -> None:
    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        execute(url, "UPDATE nexo.shard SET epoch = epoch + 1")
        with pytest.raises(Fenced, match="another broker has taken over"):
            await write(writer, journal, numbered(2), long=False)
        with pytest.raises(Fenced, match="another broker has taken over"):
            await write(writer, journal, numbered(3), long=False)

    asyncio.run(work())
    assert execute(url, "SELECT row FROM nexo.payload") == [(1,)]


def test_who_raises_the_epoch_waits_for_a_commit_that_is_under_way(
    writer: Writer, journal: PostgresqlJournal, url: str
) -> None:
    """Else it would not find what that commit writes."""

    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE nexo.payload IN ACCESS EXCLUSIVE MODE")
            task = asyncio.create_task(write(writer, journal, numbered(2), long=False))
            await held_up(url)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                execute(url, "SET lock_timeout TO 100; UPDATE nexo.shard SET epoch = epoch + 1")
            other.rollback()
        await task

    asyncio.run(work())
    assert execute(url, "SELECT row FROM nexo.payload ORDER BY row") == [(1,), (2,)]
    execute(url, "SET lock_timeout TO 100; UPDATE nexo.shard SET epoch = epoch + 1")


def test_a_server_that_ends_the_connection_in_the_middle(
    writer: Writer, journal: PostgresqlJournal, url: str
) -> None:
    """The commit waits for a lock, and is under way when its connection ends."""

    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE nexo.payload IN ACCESS EXCLUSIVE MODE")
            task = asyncio.create_task(write(writer, journal, numbered(2), long=False))
            await held_up(url)
            assert not task.done()
            execute(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            with pytest.raises(NotReady, match="connection to PostgreSQL is lost"):
                await task
        with pytest.raises(NotReady):  # until it is opened again
            await write(writer, journal, numbered(3), long=False)
        journal.open()
        await write(writer, journal, numbered(3), long=False)

    asyncio.run(work())
    assert execute(url, "SELECT row FROM nexo.payload ORDER BY row") == [(1,), (3,)]


def test_what_cannot_be_written_at_all_is_told_too(
    writer: Writer, journal: PostgresqlJournal
) -> None:
    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        wrong = change(Write(2**70, b"no owner has this number"))
        with pytest.raises(Exception, match=r"argument|range|int too large"):
            await write(writer, journal, wrong, long=False)
        await write(writer, journal, change(Write(1, b"2"), rows={2: bodies("x")}), long=False)

    asyncio.run(work())
    assert journal.load(1).records == [b"1", b"2"]


# -- The socket -------------------------------------------------------------------------------


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_socket_is_watched_once(
    writer: Writer, journal: PostgresqlJournal, monkeypatch: pytest.MonkeyPatch, new_loop: NewLoop
) -> None:
    watched: list[int] = []
    honest = os.dup

    def dup(descriptor: int) -> int:
        watched.append(descriptor)
        return honest(descriptor)

    monkeypatch.setattr(os, "dup", dup)

    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        for row in range(2, 6):
            await write(writer, journal, numbered(row), long=False)

    run_in(new_loop, work())
    assert len(watched) == 1


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_connection_that_ended_between_two_commits(
    writer: Writer,
    journal: PostgresqlJournal,
    url: str,
    new_loop: NewLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Watch] = []
    news = asyncio.Event()
    honest = Watch._ready

    def ready(watch: Watch) -> None:
        told.append(watch)
        news.set()
        honest(watch)

    monkeypatch.setattr(Watch, "_ready", ready)

    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        await write(writer, journal, numbered(2), long=False)
        told.clear()
        news.clear()
        execute(url, END_OTHERS)
        await news.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(told) < 5, "the event loop is told again and again"
        with pytest.raises(NotReady, match="connection to PostgreSQL is lost"):
            await write(writer, journal, numbered(3), long=False)
        journal.open()
        await write(writer, journal, numbered(3), long=False)

    run_in(new_loop, asyncio.wait_for(work(), 30))
    assert execute(url, "SELECT row FROM nexo.payload ORDER BY row") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_socket_with_something_behind_the_answer_is_watched_anew(
    new_loop: NewLoop, is_reset: bool
) -> None:
    """An event loop may have told of the end of a connection together with the answer."""

    async def work() -> None:
        ours, theirs = socket.create_connection(listening.getsockname()), listening.accept()[0]
        pipeline = OneByte(ours)
        watch = Watch(pipeline)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        for _ in range(2):
            ended: asyncio.Future[Any] = loop.create_future()
            watch.wait(ended.set_result)
            theirs.send(b"x")
            assert await ended is None
            assert watch.is_of(loop)
        ended = loop.create_future()
        watch.wait(ended.set_result)
        if is_reset:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.send(b"x")
        theirs.close()
        arrived = select.poll()  # it may be on its way for a moment, and has to come with the byte
        arrived.register(ours, select.POLLRDHUP)
        assert arrived.poll(10_000)
        assert isinstance(await ended, psycopg.Error | None)
        assert not watch.is_of(loop)
        ours.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        run_in(new_loop, asyncio.wait_for(work(), 30))


class OneByte:
    """A pipeline whose answers are one byte long."""

    is_sent = True

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self.socket = connected.fileno()

    def advance(self) -> bool:
        try:
            return self._connected.recv(1) == b"x"
        except OSError as error:
            raise psycopg.OperationalError(str(error)) from error


# -- Arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (INTEGER, [0, 1, -1, 2**31 - 1, -(2**31)]),
        (BIGINT, [0, 1, -1, 2**63 - 1, -(2**63)]),
        (BYTES, [b"", None, b"\x00\xff", b"x" * 70_000, None]),
        (BYTES, [b"one"]),
    ],
)
def test_arrays_arrive_as_they_were(
    postgresql: PostgresqlServer, column: Any, values: list[Any]
) -> None:
    types = {INTEGER: "integer", BIGINT: "bigint", BYTES: "bytea"}
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute(f"CREATE TEMP TABLE got (at serial, value {types[column]})".encode())
        insert = Statement("got", "INSERT INTO got (value) SELECT * FROM unnest($1)", column)
        Pipeline(connection, [insert]).run([(insert, [(value,) for value in values])])
        found = connection.execute("SELECT value FROM got ORDER BY at", binary=True).fetchall()
    assert [value for (value,) in found] == values
