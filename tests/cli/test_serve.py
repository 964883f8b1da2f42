"""`nexo serve`: where settings come from, what it says, and how it ends."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexo.cli.main import run
from tests.cli.commands import TIME_LIMIT_S, BrokerProcess, Nexo
from tests.client.eventually import eventually


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may end."""
    running = BrokerProcess(tmp_path)
    yield running
    running.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Nexo:
    return Nexo(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_things_are_and_stops_in_order(own, number):
    own.start()
    status, out, err = own.stop(number)
    assert status == 0
    assert not own.ports.exists()
    assert f"ready   {own.url}" in out
    assert f"udp://127.0.0.1:{own.udp_port}" in out
    assert f"console http://127.0.0.1:{own.http_port}/console" in out
    assert f'nexo.connect("{own.url}")' in out
    assert str(own.data) in out
    lines = [json.loads(line) for line in err.splitlines()]  # not a terminal: JSON
    assert [line["message"] for line in lines] == ["ready", "stopping", "stopped"]
    assert lines[0]["rpc_port"] == own.port
    assert lines[1]["signal"] == number.name
    assert {"at", "level", "logger"} <= lines[0].keys()


def test_ready_as_json(tmp_path):
    running = BrokerProcess(tmp_path, "--json", data=":memory:").start()
    status, out, _ = running.stop()
    assert status == 0
    ports = {"http": running.http_port, "rpc": running.port, "udp": running.udp_port}
    ready = {"ready": True, "url": running.url, "ports": ports}
    assert json.loads(out) == {**ready, "data": ":memory:"}


def test_human_lines(tmp_path):
    running = BrokerProcess(tmp_path, "--log-format", "human", data=":memory:").start()
    status, out, err = running.stop()
    assert status == 0
    assert "in memory only" in out
    assert "info    stopped  took_ms=" in err


def test_a_second_signal_stops_at_once(own):
    own.start()
    # A stopped process takes both signals in one turn when it goes on.
    own.process.send_signal(signal.SIGSTOP)
    own.process.send_signal(signal.SIGINT)
    own.process.send_signal(signal.SIGTERM)
    own.process.send_signal(signal.SIGCONT)
    _, err = own.process.communicate(timeout=TIME_LIMIT_S)
    assert own.process.returncode == 130
    assert "stopped at once" in err


def test_a_backlog_is_there_after_a_restart(own, tmp_path):
    own.start()
    nexo = Nexo(tmp_path, own.url)
    nexo("push", "orders", "--create", stdin="one\ntwo\nthree\n")
    nexo("queue", "create", "mails", "--visibility-timeout", "45")
    own.kill()  # not even a signal that it could catch
    own.start()
    nexo.url = own.url
    assert nexo("queue", "info", "mails", "--json").json()["settings"]["visibility_timeout"] == 45
    assert nexo("pop", "orders", "--max", "10").lines == ["one", "two", "three"]
    status, out, _ = own.stop()
    assert status == 0
    assert "3 messages in 2 queues" in out


def test_two_brokers_on_one_directory(own, serve):
    own.start()
    refused = serve("serve", "--data", own.data, "--http-port", "0", "--rpc-port", "0", status=1)
    (line,) = refused.err.splitlines()
    assert f"in use by process {own.process.pid}" in line
    assert line.endswith("stop that broker, or give this one a data directory of its own")


def test_a_taken_port(serve):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = serve(
            *("serve", "--data", ":memory:", "--http-port", "0", "--rpc-port", str(port)), status=1
        )
    (line,) = refused.err.splitlines()
    assert f"port {port} on 127.0.0.1 is taken by process {os.getpid()}" in line
    assert "--rpc-port" in line


def test_a_taken_udp_port(serve):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        refused = serve(
            *("serve", "--data", ":memory:", "--http-port", "0", "--rpc-port", "0"),
            *("--udp-port", str(port)),
            status=1,
        )
    (line,) = refused.err.splitlines()
    assert f"port {port} on 127.0.0.1 is taken by process {os.getpid()}" in line
    assert "--udp-port" in line


def test_the_udp_door_can_be_switched_off(tmp_path):
    running = BrokerProcess(tmp_path, "--udp", "off", data=":memory:").start()
    assert running.udp_port is None
    status, out, _ = running.stop()
    assert status == 0
    assert "udp://" not in out


def test_a_directory_that_cannot_be_made(serve, tmp_path):
    (tmp_path / "file").write_text("")
    refused = serve("serve", "--data", "file/data", "--http-port", "0", "--rpc-port", "0", status=1)
    assert "cannot create the data directory" in refused.err.splitlines()[-1]


def test_a_file_that_is_no_journal(serve, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal.db").write_bytes(b"not a database" * 1000)
    refused = serve("serve", "--data", "data", "--http-port", "0", "--rpc-port", "0", status=1)
    assert "journal.db" in refused.err.splitlines()[-1]


def test_a_host_that_is_nowhere(serve):
    refused = serve("serve", "--data", ":memory:", "--host", "no.such.host.invalid", status=2)
    assert "unknown host" in refused.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rpc-port", "abc"), "--rpc-port does not take 'abc': expected a whole number"),
        (("--rpc-port", "70000"), "--rpc-port does not take '70000'"),
        (("--memory-limit", "5QB"), "--memory-limit: '5QB' is not a size"),
        (("--log-format", "xml"), "choose auto or human or json"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--rpcport", "1"), "did you mean --rpc-port?"),
    ],
)
def test_wrong_settings(capsys, arguments, told):
    assert run(["serve", "--data", ":memory:", *arguments]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("rpc_prot = 1", "nexo.toml: unknown setting 'rpc_prot': did you mean rpc_port?"),
        ("rpc_port = 'x'", "rpc_port in nexo.toml does not take 'x'"),
        ("rpc_port =", "nexo.toml is not valid TOML"),
    ],
)
def test_a_wrong_file(capsys, monkeypatch, tmp_path, content, told):
    monkeypatch.chdir(tmp_path)
    Path("nexo.toml").write_text(content)
    assert run(["serve"]) == 2
    assert told in capsys.readouterr().err


def test_a_ports_file_that_cannot_be_written(serve):
    refused = serve(
        *("serve", "--data", ":memory:", "--http-port", "0", "--rpc-port", "0", "--udp", "off"),
        *("--ports-file", "no/such/dir"),
        status=1,
    )
    assert "the ports file no/such/dir cannot be written" in refused.err.splitlines()[-1]


def test_flags_come_before_the_environment_before_the_file(tmp_path):
    (tmp_path / "nexo.toml").write_text(
        'data = ":memory:"\nhttp-port = 0\nrpc-port = 0\nudp = "off"\n'
        'ports_file = "from-file.json"\nlog_format = "human"\n'
    )
    nexo = Nexo(tmp_path)
    environment = nexo.environment()
    environment |= {"NEXO_PORTS_FILE": "from-environment.json", "NEXO_LOG_FORMAT": "human"}
    environment |= {"NEXO_MEMORY_LIMTI": "1GB"}
    nexo.environment = lambda more=None: environment  # type: ignore[method-assign]
    process = nexo.start("serve", "--log-format", "json")
    try:
        eventually((tmp_path / "from-environment.json").exists, TIME_LIMIT_S)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIME_LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "in memory only" in out
    first = json.loads(err.splitlines()[0])
    assert first["level"] == "warning"
    assert first["variable"] == "NEXO_MEMORY_LIMTI"
