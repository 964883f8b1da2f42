"""Many shards in one PostgreSQL: one transaction for all, and a fence for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from nexo.journal import postgresql_cluster
from nexo.journal.port import Commit, Stored, Write, Writing
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_cluster import ClusterTables, create_cluster
from nexo.journal.postgresql_connection import connect_node
from nexo.journal.postgresql_shards import ShardJournal, Shards
from nexo.vocabulary.errors import Fenced, InvalidArgument, NotReady
from tests.journal.places import bodies, change
from tests.journal.writing import execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgresql import PostgresqlServer

SHARDS = 4


@pytest.fixture
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("shards") as made:
        create_cluster(made, SHARDS)
        yield made


@pytest.fixture
def tables(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterTables]:
    # Nobody renews it beside a test: it lasts however long the machine takes.
    monkeypatch.setattr(postgresql_cluster, "_LEASE", "600 seconds")
    made = ClusterTables(url, "a", 1)
    assert made.join("a:1", "a:2", "0")
    for shard in range(SHARDS):
        assert made.take(shard, None)
    yield made
    made.close()


@pytest.fixture
def shards(url: str, tables: ClusterTables) -> Iterator[Shards]:
    made = Shards(url, "a", 1)
    yield made
    made.end()


def opened(shards: Shards) -> list[ShardJournal]:
    journals = [shards.journal(shard) for shard in range(SHARDS)]
    for journal in journals:
        journal.open()
    return journals


def write(shards: Shards, commits: list[tuple[ShardJournal, Commit]]) -> list[BaseException | None]:
    """Hand them over in one turn of the loop; how each ended."""

    async def work() -> list[BaseException | None]:
        ends: dict[ShardJournal, asyncio.Future[BaseException | None]] = {}
        loop = asyncio.get_running_loop()
        for journal, commit in commits:
            end = ends[journal] = loop.create_future()

            def done(
                _: Any,
                error: BaseException | None,
                end: asyncio.Future[BaseException | None] = end,
            ) -> None:
                end.set_result(error)

            shards.run(Writing(journal, commit), done, False)
        return [await ends[journal] for journal, _ in commits]

    return asyncio.run(work())


def found(url: str, shard: int, owner: int) -> Stored:
    """What another who opens the shard finds."""
    shards = Shards(url, "a", 1)
    journal = shards.journal(shard)
    try:
        journal.open()
        return journal.load(owner)
    finally:
        shards.end()


def test_what_waits_is_one_transaction(shards: Shards, url: str) -> None:
    journals = opened(shards)
    for turn in range(3):
        commits = [
            (each, change(Write(5, b"%d.%d" % (at, turn)), rows={turn + 1: bodies(f"{at}.{turn}")}))
            for at, each in enumerate(journals)
        ]
        assert write(shards, commits) == [None] * SHARDS
    assert shards.transactions == 3
    for at in range(SHARDS):
        assert found(url, at, 5).records == [b"%d.0" % at, b"%d.1" % at, b"%d.2" % at]


def test_all_kinds_of_changes_at_once(shards: Shards, url: str) -> None:
    journals = opened(shards)
    first = change(Write(5, b"x"), Write(6, b"y"), rows={1: bodies("a"), 2: bodies("b")})
    assert write(shards, [(each, first) for each in journals]) == [None] * SHARDS
    second = Commit([Write(5, b"", b"snapshot")], [], [1, 2], [6])
    assert write(shards, [(each, second) for each in journals]) == [None] * SHARDS
    for at in range(SHARDS):
        assert found(url, at, 5) == Stored(b"snapshot", [])
        assert found(url, at, 6) == Stored(None, [])
    assert execute(url, "SELECT count(*) FROM nexo.payload") == [(0,)]
    assert execute(url, "SELECT DISTINCT last_row FROM nexo.shard") == [(2,)]


def test_a_lost_shard_is_taken_out_and_the_rest_is_written(shards: Shards, url: str) -> None:
    journals = opened(shards)
    execute(url, "UPDATE nexo.shard SET epoch = epoch + 1 WHERE id = 2")
    ends = write(shards, [(each, change(Write(5, b"late"))) for each in journals])
    assert [type(end) for end in ends] == [type(None), type(None), Fenced, type(None)]
    assert execute(url, "SELECT shard FROM nexo.record ORDER BY shard") == [(0,), (1,), (3,)]
    with pytest.raises(Fenced, match="shard 2"):  # it is over, whatever is asked
        journals[2].fetch([1])
    assert write(shards, [(each, change(Write(5, b"on"))) for each in journals[:2]]) == [None] * 2


def test_a_row_number_used_twice_fails_its_shard_alone(shards: Shards, url: str) -> None:
    journals = opened(shards)
    assert write(shards, [(journals[1], change(rows={7: bodies("a")}))]) == [None]
    ends = write(
        shards, [(each, change(Write(5, b"x"), rows={7: bodies("b")})) for each in journals]
    )
    assert [type(end) for end in ends] == [type(None), InvalidArgument, type(None), type(None)]
    assert execute(url, "SELECT shard FROM nexo.record ORDER BY shard") == [(0,), (2,), (3,)]


def test_all_or_none(shards: Shards, url: str) -> None:
    journals = opened(shards)
    commit = change(Write(5, b"x"), rows={7: bodies("a")})
    shards.commit_all([Writing(journal, commit) for journal in journals])
    assert [journal.rows() for journal in journals] == [[7]] * SHARDS
    execute(url, "UPDATE nexo.shard SET epoch = epoch + 1 WHERE id = 2")
    with pytest.raises(Fenced):
        shards.commit_all([Writing(each, change(rows={8: bodies("b")})) for each in journals])
    assert execute(url, "SELECT DISTINCT row FROM nexo.payload") == [(7,)]


def test_a_broken_connection_closes_those_who_wrote(shards: Shards, url: str) -> None:
    journals = opened(shards)
    assert write(shards, [(journals[0], change(Write(5, b"x")))]) == [None]
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    (end,) = write(shards, [(journals[0], change(Write(5, b"y")))])
    assert isinstance(end, NotReady)
    with pytest.raises(NotReady):
        journals[0].load(5)
    journals[0].open()
    assert write(shards, [(journals[0], change(Write(5, b"z")))]) == [None]


def test_only_the_owner_opens(shards: Shards, url: str, tables: ClusterTables) -> None:
    other = Shards(url, "b", 1)
    again = Shards(url, "a", 2)  # of the same name, but another run
    for stranger in (other, again):
        with pytest.raises(Fenced, match="shard 0 belongs to another node"):
            stranger.journal(0).open()
        stranger.end()
    assert shards.journal(0).open() == 1


def test_a_broker_alone_keeps_out_of_a_cluster(url: str) -> None:
    with pytest.raises(InvalidArgument, match="holds a cluster"):
        PostgresqlJournal(url).open()


# -- The tables -------------------------------------------------------------------------------


def test_who_has_a_lease_is_not_overtaken(
    url: str, tables: ClusterTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ClusterTables(url, "b", 2)
    assert other.join("b:1", "b:2", "0")
    assert not other.take(0, "a")
    with monkeypatch.context() as short:
        short.setattr(postgresql_cluster, "_LEASE", "-1 seconds")
        tables.renew()
    assert other.take(0, "a")
    assert not tables.take(0, "a")  # which has another owner by now
    assert tables.renew().owners == {0: "b", 1: "a", 2: "a", 3: "a"}
    other.close()


@pytest.mark.timeout(20, func_only=True)  # a server may have to be made before
def test_a_node_that_was_stopped_in_a_commit_holds_up_nobody(
    url: str, tables: ClusterTables
) -> None:
    """The server cannot know that the rest of a statement will never come."""
    stopped = connect_node(url, "nexo", "a", 1)
    stopped.execute("SET idle_in_transaction_session_timeout TO 0")
    stopped.execute("BEGIN")
    stopped.execute("SELECT FROM shard WHERE id = 2 FOR SHARE")
    starting = connect_node(url, "nexo", "a", 3)  # it was killed, and is just about to join
    starting.execute("BEGIN")
    starting.execute("SELECT FROM node")
    execute(url, "UPDATE nexo.node SET until = 'epoch'")
    other = ClusterTables(url, "b", 2)
    assert other.join("b:1", "b:2", "0")
    assert other.take(2, "a")
    taken = Shards(url, "b", 2)
    assert taken.journal(2).open() == 1
    with pytest.raises(psycopg.OperationalError):
        stopped.execute("COMMIT")
    starting.execute("COMMIT")
    starting.close()
    taken.end()
    other.close()


def test_a_name_is_taken_once(url: str, tables: ClusterTables) -> None:
    twin = ClusterTables(url, "a", 2)
    assert not twin.join("x:1", "x:2", "0")
    execute(url, "UPDATE nexo.node SET until = now() - interval '1 s'")
    assert twin.join("x:1", "x:2", "0")
    with pytest.raises(Fenced, match="another node has taken the name 'a'"):
        tables.renew()
    twin.close()


@pytest.mark.parametrize(
    "restore",
    [
        "UPDATE nexo.node SET until = until - interval '1 second'",
        "UPDATE nexo.node SET until = until - interval '1 hour', run = 77",
        "DELETE FROM nexo.node",
    ],
)
def test_an_older_state_is_noticed(
    url: str, tables: ClusterTables, shards: Shards, restore: str
) -> None:
    """By who renews its lease, and by who writes."""
    journals = opened(shards)
    shards.renewed(tables.renew().until_us)
    assert write(shards, [(each, change(Write(1, b"one"))) for each in journals]) == [None] * SHARDS
    execute(url, restore)
    refused = write(shards, [(each, change(Write(1, b"two"))) for each in journals])
    assert [type(each) for each in refused] == [NotReady] * SHARDS
    with pytest.raises(Fenced, match="older than what node 'a' has written"):
        tables.renew()
    assert execute(url, "SELECT count(*) FROM nexo.record") == [(SHARDS,)]


def test_a_renewal_whose_answer_was_lost_is_no_older_state(
    url: str, tables: ClusterTables, shards: Shards
) -> None:
    journal = opened(shards)[0]
    shards.renewed(tables.renew().until_us)
    execute(url, "UPDATE nexo.node SET until = until + interval '1 second'")
    assert write(shards, [(journal, change(Write(1, b"one")))]) == [None]
    tables.renew()


def test_a_shard_is_given_to_the_living_only(url: str, tables: ClusterTables) -> None:
    other = ClusterTables(url, "b", 2)
    assert not tables.give(0, "b")
    assert other.join("b:1", "b:2", "0")
    assert tables.give(0, "b")
    assert not tables.give(0, "b")  # it is no longer ours
    other.leave()
    assert not tables.give(1, "b")
    other.close()


def test_news_wake_who_waits(url: str, tables: ClusterTables) -> None:
    other = ClusterTables(url, "b", 2)
    assert other.join("b:1", "b:2", "0")
    other.leave()
    living = {"a", "b"}
    while living != {"a"}:  # the news of its joining come first
        tables.wait(50.0)  # the time limit of a test is not much longer
        living = {node.name for node in tables.renew().nodes if node.left_s > 0}
    other.close()


def test_what_is_no_place_for_a_cluster(postgresql: PostgresqlServer, url: str) -> None:
    with pytest.raises(InvalidArgument, match="there is a cluster"):
        create_cluster(url, 4)
    with postgresql.database("other") as other:
        with pytest.raises(InvalidArgument, match="1 to 4,096 shards, not 0"):
            create_cluster(other, 0)
        nowhere = ClusterTables(other, "a", 1)
        with pytest.raises(InvalidArgument, match="there is no cluster"):
            nowhere.cluster()
        nowhere.close()
        alone = PostgresqlJournal(other)
        alone.open()
        alone.close()
        with pytest.raises(InvalidArgument, match="holds the messages of a broker"):
            create_cluster(other, 4)
