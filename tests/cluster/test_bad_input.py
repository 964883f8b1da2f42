"""What goes wrong around a cluster is said in a clear line, and does no damage."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.vocabulary.errors import ReadOnly
from tests.cli.commands import Nexo
from tests.cluster.nodes import running
from tests.postgresql import PostgresqlServer, postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "secret-word"
pytestmark = pytest.mark.timeout(120)  # nodes start several times


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """One that asks `nexo` for a password."""
    with postgresql_server() as made:
        made.execute(f"CREATE ROLE nexo SUPERUSER LOGIN PASSWORD '{SECRET}'")
        (file,) = made.execute("SHOW hba_file")[0]
        rules = Path(str(file))
        rules.write_text("host all nexo 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        made.execute("SELECT pg_reload_conf()")
        yield made


@pytest.fixture
def journal(server: PostgresqlServer) -> Iterator[str]:
    with server.database("bad_input") as url:
        yield url.replace("postgres@", f"nexo:{SECRET}@")


def refused(folder: Path, url: str, *more: str, status: int = 1) -> str:
    """What a node says that does not start."""
    done = Nexo(folder)("serve", "--journal", url, "--node", "a", *more, status=status)
    assert SECRET not in done.out + done.err
    return done.err


def test_wrong_urls(tmp_path: Path, journal: str, server: PostgresqlServer) -> None:
    there = f"nexo:{SECRET}@127.0.0.1:{server.port}"
    assert "there is no cluster" in refused(tmp_path, journal, status=2)
    assert "does not exist" in refused(tmp_path, f"postgresql://{there}/nothing", status=2)
    wrong = journal.replace(SECRET, f"{SECRET}er")
    assert "password authentication failed" in refused(tmp_path, wrong, status=2)
    assert "cannot reach PostgreSQL" in refused(
        tmp_path, f"postgresql://nexo:{SECRET}@127.0.0.1:1/x"
    )


def test_another_version_of_the_schema(tmp_path: Path, journal: str) -> None:
    Nexo(tmp_path)("cluster", "create", "--journal", journal, "--shards", "2")
    execute(journal, "UPDATE nexo.format SET version = 99")
    told = refused(tmp_path, journal)
    assert "format version 99" in told
    assert "start the newer Nexo" in told


def test_two_nodes_of_one_name(tmp_path: Path, journal: str) -> None:
    with running(tmp_path, journal, "a") as nodes:
        with nexo.connect(nodes["a"].url) as client:
            client.create_queue("orders").push(b"before")
        ports = ("--http-port", "0", "--rpc-port", "0", "--udp-port", "0")
        assert "a node of the name 'a' is running already" in refused(tmp_path, journal, *ports)
        with nexo.connect(nodes["a"].url) as client:  # the first one goes on
            assert [each.body for each in client.queue("orders").pop_batch(5)] == [b"before"]
        assert SECRET not in nodes.log("a")


def test_a_full_database(tmp_path: Path, journal: str) -> None:
    with running(tmp_path, journal, "a", "b") as nodes, nexo.connect(nodes["a"].url) as client:
        queues = [client.create_queue(f"queue{each}") for each in range(4)]
        for queue in queues:
            queue.push_batch([b"before"] * 3)
        execute(
            journal,
            "CREATE FUNCTION nexo.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON nexo.payload EXECUTE FUNCTION nexo.full()",
        )
        for queue in queues:
            with pytest.raises(ReadOnly, match="full"):
                queue.push(b"refused")
            _ack_one(queue)  # that makes room
        execute(journal, "DROP TRIGGER full_disk ON nexo.payload")
        for queue in queues:
            _once_there_is_room(queue)
            assert [each.body for each in queue.pop_batch(9)] == [b"before", b"before", b"after"]


def _ack_one(queue: nexo.Queue) -> None:
    """Just after the refusal, everything is taken back to what is stored; and a node whose lease
    is late gives out nothing."""
    until = time.monotonic() + 20
    while True:
        try:
            taken = queue.pop_batch(1)
            if taken and queue.ack_batch(taken) == []:
                return
        except ReadOnly:
            pass
        assert time.monotonic() < until, "nothing can be acked while the database is full"
        time.sleep(0.1)


def _once_there_is_room(queue: nexo.Queue) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            queue.push(b"after")
        except ReadOnly:
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return


def test_a_database_restored_from_an_older_backup(
    tmp_path: Path, journal: str, server: PostgresqlServer
) -> None:
    """All nodes are stopped for it. What was pushed since is not there; everything works."""
    dump = tmp_path / "dump"
    with running(tmp_path, journal, "a", "b") as nodes:
        ports = [nodes[name].port for name in "ab"]
        with nexo.connect(nodes["a"].url) as client:
            queues = [client.create_queue(f"queue{each}") for each in range(4)]
            for queue in queues:
                queue.push_batch([b"old"] * 3)
            _program(server, "pg_dump", "--schema", "nexo", "--file", str(dump), journal)
            for queue in queues:
                queue.push_batch([b"lost"] * 3)
                queue.ack_batch(queue.pop_batch(2))
        for name in "ab":
            nodes.processes.pop(name).stop()
        execute(journal, "DROP SCHEMA nexo CASCADE")
        _program(server, "psql", "--quiet", "--file", str(dump), journal)
        nodes.start("a", "b")
        assert [nodes[name].port for name in "ab"] == ports
        with nexo.connect(nodes["b"].url) as client:
            for queue in [client.queue(f"queue{each}") for each in range(4)]:
                queue.push(b"new")
                found = queue.pop_batch(9)
                assert [message.body for message in found] == [b"old"] * 3 + [b"new"]
                assert queue.ack_batch(found) == []


def test_a_database_restored_under_running_nodes(
    tmp_path: Path, journal: str, server: PostgresqlServer
) -> None:
    """They notice, write nothing that does not go with what is there, and stop with a line that
    says why. Started again they serve what the backup holds."""
    dump = tmp_path / "dump"
    with running(tmp_path, journal, "a", "b") as nodes:
        with nexo.connect(nodes["a"].url) as client:
            queues = [client.create_queue(f"queue{each}") for each in range(4)]
            for queue in queues:
                queue.push_batch([b"old"] * 3)
        _program(server, "pg_dump", "--schema", "nexo", "--file", str(dump), journal)
        dump.write_text("DROP SCHEMA nexo CASCADE;\n" + dump.read_text())
        began, ending = threading.Event(), threading.Event()
        pushing = threading.Thread(target=_push_on, args=(nodes["b"].url, began, ending))
        pushing.start()
        try:
            assert began.wait(20)
            _renewed_by_all(journal)
            _restored_at_once(server, dump, journal)
            for name in "ab":
                process = nodes[name].process
                assert process is not None
                assert process.wait(30) != 0
        finally:
            ending.set()
            pushing.join(30)
        for name in "ab":
            told = nodes.log(name)
            assert "the database is older than what node" in told, told[-2_000:]
            assert "restored from a backup" in told
            nodes.kill(name)
        nodes.start("a", "b")
        with nexo.connect(nodes["b"].url) as client:
            for queue in [client.queue(f"queue{each}") for each in range(4)]:
                queue.push(b"new")
                found = queue.pop_batch(9)
                assert [message.body for message in found] == [b"old"] * 3 + [b"new"]
                assert queue.ack_batch(found) == []


def _push_on(url: str, began: threading.Event, ending: threading.Event) -> None:
    """So that commits wait while the database is restored, and come right after it."""
    until = time.monotonic() + 60
    with contextlib.suppress(nexo.NexoError), nexo.connect(url, timeout=2) as client:
        while not ending.is_set() and time.monotonic() < until:
            with contextlib.suppress(nexo.NexoError):
                for each in range(4):
                    client.queue(f"queue{each}").push_batch([b"lost"] * 3)
                began.set()


def _restored_at_once(server: PostgresqlServer, dump: Path, journal: str) -> None:
    """In one transaction; those that run beside it may get in its way."""
    once = ("--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1")
    for _ in range(10):
        command = [str(server._programs / "psql"), *once, "--file", str(dump), journal]
        done = subprocess.run(command, check=False, capture_output=True)
        if done.returncode == 0:
            return
        assert b"deadlock" in done.stderr, done.stderr
    raise AssertionError("the database could not be restored")


def _renewed_by_all(journal: str) -> None:
    """Wait until each node has renewed its lease since."""
    leases = "SELECT min(until) FROM nexo.node"
    latest = execute(journal, "SELECT max(until) FROM nexo.node")[0][0]
    until = time.monotonic() + 20
    while execute(journal, leases)[0][0] <= latest:
        assert time.monotonic() < until
        time.sleep(0.1)


def _program(server: PostgresqlServer, name: str, *arguments: str) -> None:
    subprocess.run([server._programs / name, *arguments], check=True, capture_output=True)


def execute(url: str, statement: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description is not None else []
