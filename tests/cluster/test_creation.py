"""`nexo cluster create`: where it makes a cluster, what it keeps, and what is left behind by who is
refused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest

import nexo
from nexo.vocabulary.errors import Unauthorized
from tests.cli.commands import BrokerProcess, Nexo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

pytestmark = pytest.mark.timeout(120)  # brokers and nodes start


@pytest.fixture
def journal(postgresql: PostgresqlServer) -> Iterator[str]:
    with postgresql.database("cluster_creation") as url:
        yield url


@contextlib.contextmanager
def client_of(folder: Path, *arguments: str, token: str | None = None) -> Iterator[nexo.Client]:
    """Of a broker or node that runs meanwhile."""
    broker = BrokerProcess(folder, *arguments)
    broker.start()
    try:
        with nexo.connect(broker.url, token=token) as client:
            yield client
    finally:
        broker.stop()


def schemas(url: str) -> list[str]:
    """Those that Nexo has made."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%' "
            "AND nspname NOT IN ('public', 'information_schema')"
        )
        return [name for (name,) in found]


def test_tokens_that_were_made_first_are_those_of_the_cluster(journal: str, tmp_path: Path) -> None:
    run = Nexo(tmp_path)
    made = run("token", "create", "admin", "--allow", "*:*", "--data", journal, "--json").json()
    run("token", "create", "other", "--allow", "a:pop", "--data", journal)
    created = run("cluster", "create", "--journal", journal, "--shards", "4")
    assert "a cluster of 4 shards" in created.out
    assert "the 2 tokens" in created.out
    assert [each["name"] for each in run("token", "list", "--data", journal, "--json").json()] == [
        "admin",
        "other",
    ]
    node = ("--journal", journal, "--node", "a", "--access", "required")
    with client_of(tmp_path, *node, token=made["token"]) as admin:
        assert [each.name for each in admin.tokens()] == ["admin", "other"]
        admin.create_token("third", ["*:*"])
        admin.create_queue("orders").push(b"hello")
    with pytest.raises(Unauthorized), client_of(tmp_path, *node):
        pass
    with client_of(tmp_path, *node, token=made["token"]) as admin:
        assert [each.name for each in admin.tokens()] == ["admin", "other", "third"]
        assert [each.body for each in admin.queue("orders").pop_batch(9)] == [b"hello"]


def test_a_broker_without_queues_leaves_its_place(journal: str, tmp_path: Path) -> None:
    """Also if it had some, and events of theirs are left."""
    run = Nexo(tmp_path)
    with client_of(tmp_path, "--journal", journal) as client:
        client.create_queue("orders").push_batch([b"x"] * 100)
        running = run("cluster", "create", "--journal", journal, status=1)
        assert "is in use by" in running.err
        client.queue("orders").delete()
    assert "Created" in run("cluster", "create", "--journal", journal).out
    with psycopg.connect(journal) as connection:
        assert connection.execute("SELECT count(*) FROM nexo.payload").fetchone() == (0,)
    with client_of(tmp_path, "--journal", journal, "--node", "a") as client:
        client.create_queue("orders").push(b"hello")
        assert client.queue("orders").info().depth == 1


def test_a_broker_with_queues_is_left_alone(journal: str, tmp_path: Path) -> None:
    with client_of(tmp_path, "--journal", journal) as client:
        client.create_queue("orders").push(b"hello")
    refused = Nexo(tmp_path)("cluster", "create", "--journal", journal, status=2)
    assert "1 queue and 0 topics" in refused.err
    assert "DROP SCHEMA nexo CASCADE" in refused.err
    with client_of(tmp_path, "--journal", journal) as client:
        assert [each.body for each in client.queue("orders").pop_batch(9)] == [b"hello"]


def test_who_is_refused_leaves_nothing_behind(journal: str, tmp_path: Path) -> None:
    run = Nexo(tmp_path)
    refused = run("serve", "--journal", journal, "--node", "q", status=2)
    assert "there is no cluster" in refused.err
    many = run("cluster", "create", "--journal", journal, "--shards", "0", status=2)
    assert "1 to 4,096 shards" in many.err
    nothing = run("token", "list", "--data", journal, status=2)
    assert "there is no broker or cluster" in nothing.err
    assert schemas(journal) == []
    run("cluster", "create", "--journal", journal, "--if-missing", "--shards", "4")
    assert schemas(journal) == ["nexo"]
    other = run("cluster", "create", "--journal", journal, "--if-missing", "--shards", "7")
    assert "There is a cluster of 4 shards" in other.out


def test_a_server_that_is_away(tmp_path: Path) -> None:
    """There is no broker that could connect again."""
    for more in ((), ("--if-missing",)):
        nowhere = ("--journal", "postgresql://x@127.0.0.1:1/x", *more)
        told = Nexo(tmp_path)("cluster", "create", *nowhere, status=1).err
        assert "cannot reach PostgreSQL at 127.0.0.1:1/x" in told
        assert "check the URL" in told
        assert "by itself" not in told


def test_the_token_of_the_guide_is_a_file(journal: str, tmp_path: Path) -> None:
    """What `token create` prints is the token and no more, so that `> admin.token` makes a file
    for `--token @admin.token`."""
    run = Nexo(tmp_path)
    run("cluster", "create", "--journal", journal, "--shards", "4")
    made = run("token", "create", "admin", "--allow", "*:*", "--data", journal)
    (tmp_path / "admin.token").write_text(made.out)
    broker = BrokerProcess(tmp_path, "--journal", journal, "--node", "a", "--access", "required")
    broker.start()
    try:
        status = run("cluster", "status", "--url", broker.url, "--token", "@admin.token")
        assert "up" in status.out
    finally:
        broker.stop()
