"""Who writes to PostgreSQL: without a thread where it can be, and always all or nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from nexo.journal.port import Write, Writing
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_connection import connect
from nexo.journal.postgresql_pipeline import BIGINT, BYTES, INTEGER, Pipeline, Statement
from nexo.journal.postgresql_writer import Writer
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import Fenced, NotReady
from nexo.vocabulary.limits import INLINE_COMMIT_BYTES
from tests.journal.places import bodies, change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.journal.port import Commit
    from tests.postgresql import PostgresqlServer


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


async def write(writer: Writer, journal: PostgresqlJournal, commit: Commit, *, long: bool) -> None:
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: Any, error: BaseException | None) -> None:
        if error is None:
            end.set_result(None)
        else:
            end.set_exception(error)

    writer.run(Writing(journal, commit), done, long)
    await end


def numbered(row: int, size: int = 1) -> Commit:
    return change(Write(1, b"%d" % row), rows={row: batch_of([bytes([row]) * size])})


def test_the_event_loop_writes_without_a_thread(
    writer: Writer, journal: PostgresqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)  # connects, which may block
        monkeypatch.setattr(writer, "_apart", None)
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


def test_a_server_that_ends_the_connection_in_the_middle(
    writer: Writer, journal: PostgresqlJournal, url: str
) -> None:
    """The commit waits for a lock, and is under way when its connection ends."""

    async def work() -> None:
        await write(writer, journal, numbered(1), long=False)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE nexo.payload IN ACCESS EXCLUSIVE MODE")
            task = asyncio.create_task(write(writer, journal, numbered(2), long=False))
            await asyncio.sleep(0.2)
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


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
