"""What only a journal in PostgreSQL has: an epoch that fences, a network, a server that fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from nexo.journal.port import Write
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_cluster import create_cluster, has_cluster
from nexo.journal.postgresql_connection import shown_url
from nexo.vocabulary.errors import (
    DataCorrupt,
    Fenced,
    InvalidArgument,
    NexoError,
    NotReady,
    ReadOnly,
    VersionMismatch,
)
from tests.journal.places import bodies, change
from tests.journal.writing import execute
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgresql import PostgresqlServer


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("journal") as made:
        yield made


@pytest.fixture
def journal(url: str) -> Iterator[PostgresqlJournal]:
    made = PostgresqlJournal(url)
    made.open()
    yield made
    made.close()


# -- The fence --------------------------------------------------------------------------------


def test_one_who_was_overtaken_writes_nothing(journal: PostgresqlJournal, url: str) -> None:
    journal.commit(change(Write(1, b"mine"), rows={1: bodies("a")}))
    execute(url, "UPDATE nexo.shard SET epoch = epoch + 1")
    with pytest.raises(Fenced, match="another broker"):
        journal.commit(change(Write(1, b"late"), rows={2: bodies("b")}))
    with pytest.raises(Fenced):  # it is over, whatever is asked
        journal.commit(change(Write(1, b"later")))
    with pytest.raises(Fenced):
        journal.fetch([1])
    again = PostgresqlJournal(url)
    again.open()
    assert again.load(1).records == [b"mine"]
    assert again.last_row() == 1
    again.close()


def test_idle_work_notices_it_too(journal: PostgresqlJournal, url: str) -> None:
    assert journal.tidy() is False
    execute(url, "UPDATE nexo.shard SET epoch = epoch + 1")
    with pytest.raises(Fenced):
        journal.tidy()


def test_who_raises_the_epoch_waits_for_a_commit_under_way(
    journal: PostgresqlJournal, url: str
) -> None:
    """Else the new owner could load before the old one's last commit is there."""
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as taker:
        other.execute("SELECT 1 FROM nexo.shard WHERE id = 0 FOR SHARE")  # as a commit does
        taker.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            taker.execute("UPDATE nexo.shard SET epoch = epoch + 1 WHERE id = 0")


def test_shards_do_not_see_each_other(url: str) -> None:
    first, second = PostgresqlJournal(url), PostgresqlJournal(url, shard=7)
    assert [first.open(), second.open(), second.open()] == [1, 1, 2]
    first.commit(change(Write(1, b"first"), rows={1: bodies("a")}))
    second.commit(change(Write(1, b"second"), rows={1: bodies("b")}))
    second.commit(change(Write(1, b"more", b"folded"), dropped_rows=[1], dropped_owners=[9]))
    assert first.load(1).records == [b"first"]
    assert first.fetch([1])[0].bodies() == [b"a"]
    assert second.load(1).snapshot == b"folded"
    with pytest.raises(DataCorrupt):
        second.fetch([1])
    first.close()
    second.close()


def test_a_second_broker_is_refused_and_told_who_is_there(
    journal: PostgresqlJournal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.journal.postgresql.POSTGRESQL_LOCK_S", 0.1)
    with pytest.raises(NotReady, match=r"in use by nexo, process \d+ on "):
        PostgresqlJournal(url).open()
    journal.commit(change(Write(1, b"undisturbed")))


# -- A server that fails ----------------------------------------------------------------------


def test_a_full_disk_refuses_and_goes_on(journal: PostgresqlJournal, url: str) -> None:
    execute(
        url,
        """
        CREATE FUNCTION nexo.full() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON nexo.payload EXECUTE FUNCTION nexo.full();
        """,
    )
    with pytest.raises(ReadOnly, match="disk of PostgreSQL is full"):
        journal.commit(change(Write(1, b"a"), rows={1: bodies("a")}))
    with pytest.raises(ReadOnly):  # so the engine asks whether there is room again
        journal.commit(change(rows={2: bodies("")}, dropped_rows=[2]))
    journal.commit(change(Write(1, b"b")))  # an ack has room
    assert journal.load(1).records == [b"b"]
    execute(url, "DROP TRIGGER full_disk ON nexo.payload")
    journal.commit(change(rows={1: bodies("a")}))
    assert journal.fetch([1])[0].bodies() == [b"a"]


def test_a_lost_connection_stops_the_journal_until_it_is_opened(
    journal: PostgresqlJournal, url: str
) -> None:
    journal.commit(change(Write(1, b"a")))
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'nexo, process%' AND datname = current_database()",
    )
    with pytest.raises(NotReady, match="connection to PostgreSQL is lost"):
        journal.commit(change(Write(1, b"b")))
    with pytest.raises(NotReady, match="is lost"):
        journal.load(1)
    assert journal.open() == 2
    assert journal.load(1).records == [b"a"]


def test_what_was_confirmed_survives_a_server_that_is_killed() -> None:
    with postgresql_server(durable=True) as server:
        journal = PostgresqlJournal(server.url)
        journal.open()
        for number in range(1, 101):
            journal.commit(change(Write(1, b"%d" % number), rows={number: bodies(str(number))}))
        server.kill()
        with pytest.raises(NotReady):
            journal.commit(change(Write(1, b"lost")))
        with pytest.raises(NotReady, match="cannot reach PostgreSQL"):
            journal.open()
        server.start()
        assert journal.open() == 2
        assert journal.load(1).records == [b"%d" % number for number in range(1, 101)]
        assert [batch.bodies() for batch in journal.fetch([1, 100])] == [[b"1"], [b"100"]]
        journal.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE nexo.record SET data = 'x' WHERE number = 2",
        "UPDATE nexo.record SET number = 9 WHERE number = 3",
        "DELETE FROM nexo.record WHERE number = 2",
        "UPDATE nexo.snapshot SET data = 'x'",
    ],
)
def test_damage_is_found_at_the_start(url: str, damage: str) -> None:
    journal = PostgresqlJournal(url)
    journal.open()
    journal.commit(change(Write(1, b"a"), Write(2, b"b", b"folded")))
    journal.commit(change(Write(1, b"b")))
    journal.commit(change(Write(1, b"c")))
    journal.close()
    execute(url, damage)
    with pytest.raises(DataCorrupt, match="table"):
        journal.open()


def test_a_damaged_row_is_found_when_it_is_read(journal: PostgresqlJournal, url: str) -> None:
    journal.commit(change(rows={1: bodies("a"), 2: bodies("b")}))
    execute(url, "UPDATE nexo.payload SET payload = 'x' WHERE row = 1")
    with pytest.raises(DataCorrupt, match="row 1"):
        journal.fetch([1])
    assert journal.fetch([2])[0].bodies() == [b"b"]


# -- What it costs ----------------------------------------------------------------------------


def test_rows_are_deleted_by_their_keys_however_large_the_table(url: str) -> None:
    """The statements are planned while the table is empty, and used when it is not."""
    journal = PostgresqlJournal(url)
    journal.open()
    for row in range(1, 9):
        journal.commit(change(Write(1, b"out"), dropped_rows=[row]))
    first, last = 10, 10_010
    journal.commit(change(Write(1, b"in"), rows={row: bodies("a") for row in range(first, last)}))
    for start in range(first, last, 1000):
        scattered = list(range(start, start + 200, 2))
        journal.commit(change(Write(1, b"out"), dropped_rows=scattered))
    journal.close()
    assert rows_read(url, deleted=1_000) < last - first, "each of a tenth of them is looked up"


def rows_read(url: str, deleted: int) -> int:
    """By walking through whole tables, in a session that deleted so many rows. What it did is told
    some time after its end."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(1_000):
            found = connection.execute(
                "SELECT sum(n_tup_del)::bigint, sum(seq_tup_read)::bigint "
                "FROM pg_stat_user_tables WHERE schemaname = 'nexo'"
            ).fetchone()
            if found is not None and found[0] is not None and found[0] >= deleted:
                return int(found[1])
            time.sleep(0.01)
    raise AssertionError("nothing was told of the session")


# -- What is not confirmed lightly ------------------------------------------------------------


def test_a_commit_waits_for_the_disk_whatever_the_database_says(url: str) -> None:
    execute(url, "ALTER DATABASE journal SET synchronous_commit TO off")
    journal = PostgresqlJournal(url)
    journal.open()
    found = journal._open_connection().execute("SHOW synchronous_commit").fetchone()
    assert found == ("on",)
    journal.close()


def test_no_statement_is_compiled(journal: PostgresqlJournal) -> None:
    """It takes the servers that do a hundred times as long as the statement itself."""
    assert journal._open_connection().execute("SHOW jit").fetchone() == ("off",)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_any_encoding_of_the_database_will_do(url: str, encoding: str) -> None:
    """SQL_ASCII is what `initdb` chooses where no language is set."""
    options = f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    execute(url, f"CREATE DATABASE other {options}")
    there = url.replace("/journal", "/other")
    try:
        for _ in range(2):  # the second finds the tables
            create_if_missing(there)
        for _ in range(2):
            journal = PostgresqlJournal(there, schema="single")
            journal.open()
            journal.close()
    finally:
        # Who has left may still be on his way.
        execute(url, "DROP DATABASE other WITH (FORCE)")


def create_if_missing(url: str) -> None:
    if not has_cluster(url):
        create_cluster(url, 4)


# -- Wrong places -----------------------------------------------------------------------------


def test_other_tables_are_left_alone(url: str) -> None:
    execute(url, "CREATE SCHEMA nexo; CREATE TABLE nexo.format (text text)")
    with pytest.raises(InvalidArgument, match="not a journal of Nexo"):
        PostgresqlJournal(url).open()
    execute(url, "SELECT text FROM nexo.format")


def test_a_newer_format_is_refused(url: str) -> None:
    journal = PostgresqlJournal(url)
    journal.open()
    journal.close()
    execute(url, "UPDATE nexo.format SET version = 99")
    with pytest.raises(VersionMismatch, match="format version 99"):
        journal.open()


def test_no_message_shows_the_password(postgresql: PostgresqlServer) -> None:
    there = f"127.0.0.1:{postgresql.port}"
    wrong = [
        f"postgresql://postgres:secret-word@{there}/no_such_database",
        "postgresql://postgres:secret-word@127.0.0.1:1/postgres",
        "postgresql://postgres:secret-word@[oops/postgres",
    ]
    for given in wrong:
        with pytest.raises(NexoError) as refused:
            PostgresqlJournal(given).open()
        assert "secret-word" not in str(refused.value), given
        assert refused.value.hint
    assert shown_url(wrong[0]) == f"postgresql://{there}/no_such_database"
