"""What the tests of those who write to PostgreSQL share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from nexo.journal.port import Write, Writing
from nexo.vocabulary.batch import batch_of
from tests.journal.places import change

if TYPE_CHECKING:
    from nexo.journal.port import Commit
    from nexo.journal.postgresql import PostgresqlJournal
    from nexo.journal.postgresql_writer import Writer


HELD_UP = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def write(writer: Writer, journal: PostgresqlJournal, commit: Commit, *, long: bool) -> None:
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: Any, error: BaseException | None) -> None:
        if error is None:
            end.set_result(None)
        else:
            end.set_exception(error)

    writer.run(Writing(journal, commit), done, long)
    await end


async def held_up(url: str, transactions: int = 1) -> None:
    """Until that many wait for a lock."""
    async with asyncio.timeout(30):
        while len(execute(url, HELD_UP)) < transactions:  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)


def numbered(row: int, size: int = 1) -> Commit:
    return change(Write(1, b"%d" % row), rows={row: batch_of([bytes([row]) * size])})


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
