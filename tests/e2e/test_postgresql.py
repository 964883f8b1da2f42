"""A whole broker on PostgreSQL: `nexo serve --journal URL`."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo
from tests.cli.commands import BrokerProcess, Nexo
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgresql import PostgresqlServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_server(durable=True) as made:
        yield made


@pytest.fixture
def url(server: PostgresqlServer) -> Iterator[str]:
    with server.database("broker") as made:
        yield made.replace("postgres@", "postgres:secret-word@")


@pytest.fixture
def broker(tmp_path: Path, url: str) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, "--journal", url)
    made.start()
    yield made
    made.kill()


def health(broker: BrokerProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/health") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_what_was_confirmed_survives_kills_and_orderly_stops(broker: BrokerProcess) -> None:
    with nexo.connect(broker.url) as client:
        orders = client.create_queue("orders", visibility_timeout=60.0)
        client.create_topic("news").publish("hello")
        orders.push_batch([b"%d" % number for number in range(1_000)])
        taken = orders.pop_batch(400)
        orders.ack_batch(taken[:300])
    broker.kill()
    broker.start()
    with nexo.connect(broker.url) as client:
        orders = client.queue("orders")
        assert orders.info().depth == 700
        assert [event.text for event in client.topic("news").read()] == ["hello"]
        message = orders.pop()
        assert message is not None
        message.ack()
    code, out, err = broker.stop()
    assert code == 0, err
    assert "secret-word" not in out + err
    assert not Path(broker.data).exists(), "a data directory was made"
    broker.start()
    with nexo.connect(broker.url) as client:
        assert client.queue("orders").info().depth == 699


def test_it_goes_on_when_the_database_comes_back(
    broker: BrokerProcess, server: PostgresqlServer
) -> None:
    with nexo.connect(broker.url, timeout=50.0) as client:
        orders = client.create_queue("orders")
        orders.push("before")
        server.kill()
        give_up = time.monotonic() + 20
        while health(broker)[0] == 200 and time.monotonic() < give_up:
            time.sleep(0.05)
        status, said = health(broker)
        assert status == 503
        assert "secret-word" not in said
        server.start()
        orders.push("after")  # it is tried again by itself
        found = [message.text for message in orders.pop_batch(10, wait=5.0)]
        assert sorted(found) == ["after", "before"]
        assert health(broker)[0] == 200


def test_a_broker_that_slept_gives_nothing_out(
    broker: BrokerProcess, tmp_path: Path, url: str, server: PostgresqlServer
) -> None:
    """Stopped while another took over, it goes on in the belief that the queue is its own."""
    with nexo.connect(broker.url, timeout=50.0) as client:
        client.create_queue("orders").push_batch([b"one", b"two"])
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        server.execute(  # as a server does that hears nothing of it for a while
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name LIKE 'nexo, process {broker.process.pid} %'"
        )
        second = BrokerProcess(tmp_path / "second", "--journal", url)
        (tmp_path / "second").mkdir()
        second.start()
        with nexo.connect(second.url) as client:
            taken = client.queue("orders").pop_batch(10)
            assert client.queue("orders").ack_batch(taken) == []
    finally:
        broker.process.send_signal(signal.SIGCONT)
    give_up = time.monotonic() + 20
    while health(broker)[0] == 200 and time.monotonic() < give_up:
        time.sleep(0.05)
    with pytest.raises(nexo.NexoError), nexo.connect(broker.url, timeout=2.0) as client:
        client.queue("orders").pop()
    with pytest.raises(nexo.NexoError), nexo.connect(broker.url, timeout=2.0) as client:
        client.queue("orders").push("late")
    second.stop()
    with nexo.connect(broker.url, timeout=50.0) as client:  # the first takes it over again
        client.queue("orders").push("three")
        found = client.queue("orders").pop_batch(10, wait=1.0)
        assert [message.text for message in found] == ["three"]


def test_what_is_wrong_is_one_line(broker: BrokerProcess, tmp_path: Path, url: str) -> None:
    cases = {
        url: (1, "in use by nexo, process"),
        url.replace("/broker", "/no_such"): (2, "does not exist"),
        "mysql://root:secret-word@somewhere/else": (2, "--journal"),
    }
    for given, (status, said) in cases.items():
        ports = ("--rpc-port", "0", "--http-port", "0", "--udp", "off")
        ran = Nexo(tmp_path)("serve", "--journal", given, *ports, status=status)
        assert said in ran.err
        assert "secret-word" not in ran.err
        assert len(ran.err.strip().splitlines()) <= 2, ran.err


def test_tokens_before_the_first_start(tmp_path: Path, url: str) -> None:
    made = Nexo(tmp_path)("token", "create", "admin", "--allow", "*:*", "--data", url, "--json")
    token = made.json()["token"]
    broker = BrokerProcess(tmp_path, "--journal", url, "--access", "required").start()
    try:
        with nexo.connect(broker.url, token=token) as client:
            client.create_queue("orders")
        with pytest.raises(nexo.NexoError, match="token"):
            nexo.connect(broker.url, token="wrong").create_queue("more")
    finally:
        _, _, err = broker.stop()
    audited = [json.loads(line) for line in err.splitlines() if '"audit"' in line]
    assert [(each["who"], each["resource"]) for each in audited] == [("admin", "orders")], err


def test_backups_are_for_the_tools_of_postgresql(broker: BrokerProcess, tmp_path: Path) -> None:
    ran = Nexo(tmp_path, broker.url)("backup", str(tmp_path / "backup"), status=2)
    assert "pg_dump" in ran.err
