"""What holds for every command: help, exit codes, one line for what is wrong, a quick start.

Where only the words matter, the command runs in this process: starting one takes 0.2 s.
"""

import socket
import subprocess
import sys
import threading

import pytest

from nexo.cli.main import run
from tests.cli.commands import NEXO
from tests.client.eventually import eventually

COMMANDS = [
    "serve",
    "queue",
    "queue create",
    "queue list",
    "queue info",
    "queue edit",
    "queue delete",
    "queue purge",
    "queue peek",
    "queue redrive",
    "queue search",
    "queue message",
    "queue discard",
    "queue resend",
    "why",
    "sql",
    "consumers",
    "audit",
    "queue pause",
    "queue resume",
    "queue release",
    "push",
    "pop",
    "produce",
    "consume",
    "worker",
    "top",
    "bench",
    "bench throughput",
    "bench latency",
    "doctor",
    "version",
]
TALKING = [
    ("queue", "create", "q"),
    ("queue", "list"),
    ("queue", "info", "q"),
    ("queue", "edit", "q", "--delay", "1"),
    ("queue", "delete", "q", "--yes"),
    ("queue", "purge", "q", "--yes"),
    ("queue", "peek", "q"),
    ("queue", "redrive", "q"),
    ("queue", "search", "q", "x"),
    ("queue", "message", "q", "id"),
    ("queue", "discard", "q", "id", "--yes"),
    ("queue", "resend", "q", "id"),
    ("why", "q"),
    ("sql", "SELECT 1"),
    ("consumers",),
    ("audit",),
    ("queue", "pause", "q"),
    ("queue", "resume", "q"),
    ("queue", "release", "q", "--consumer", "c"),
    ("push", "q", "body"),
    ("pop", "q"),
    ("produce", "q"),
    ("consume", "q"),
    ("worker", "json:dump", "--queue", "q"),
    ("top", "--once"),
    ("bench", "throughput"),
    ("bench", "latency"),
]
# What a command that only talks to a broker has no use for.
WEIGHT = ("apsw", "nexo.engine", "nexo.journal", "nexo.machine", "nexo.server.broker", "uvloop")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(monkeypatch, capsys, command):
    monkeypatch.setenv("COLUMNS", "120")
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"nexo {command}" in shown
    if command not in ("serve", "queue", "bench"):
        assert all(flag in shown for flag in ("--url", "--token", "--json"))


def test_help_lists_the_commands(alone):
    shown = alone("--help").out
    for command in COMMANDS:
        assert command.split()[0] in shown
    assert alone().out == shown


@pytest.mark.parametrize("arguments", TALKING, ids=" ".join)
def test_no_broker(capsys, arguments):
    assert run([*arguments, "--url", "nexo://127.0.0.1:1"]) == 3
    told = capsys.readouterr()
    assert told.err.startswith("nexo: no broker answers at nexo://127.0.0.1:1 (")
    assert "nexo serve" in told.err
    assert len(told.err.splitlines()) == 1
    assert told.out == ""


def test_failures_as_json(alone):
    refused = alone("queue", "list", "--json", status=3)
    assert '"code": "unreachable"' in refused.err
    assert refused.out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("queu", "list"), "Did you mean 'queue'?"),
        (("queue", "lst"), "Did you mean 'list'?"),
        (("pop", "q", "--wiat", "3"), "did you mean --wait?"),
        (
            ("queue", "create", "q", "--visability-timeout", "3"),
            "did you mean --visibility-timeout?",
        ),
        (("pop",), "missing argument 'QUEUE'"),
        (("pop", "q", "--max", "0"), "--max"),
        (("pop", "q", "--wait", "soon"), "write seconds, or 250ms"),
        (("queue", "list", "--url", "http://here"), "nexo://"),
        (("queue", "list", "--url", "nonsense"), "is not a broker URL"),
        (("consume", "q", "--fail-rate", "2"), "--fail-rate"),
    ],
)
def test_wrong_usage(capsys, arguments, told):
    assert run(list(arguments)) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.splitlines()) == 1


def test_something_else_listens_there(alone):
    def hang_up() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=hang_up)
        answering.start()
        url = f"nexo://127.0.0.1:{server.getsockname()[1]}"
        refused = alone("queue", "list", "--url", url, status=3)
        answering.join()
    assert "is not a Nexo broker" in refused.err


def test_another_version_answers(alone):
    from nexo.vocabulary.errors import VersionMismatch
    from nexo.wire.commands import refusal_of
    from nexo.wire.frame import Kind, frame

    def refuse() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            error = VersionMismatch("the broker speaks protocol 9", "upgrade the older of the two")
            connection.sendall(frame(Kind.GOODBYE, 0, refusal_of(error)))

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=refuse)
        answering.start()
        url = f"nexo://127.0.0.1:{server.getsockname()[1]}"
        refused = alone("push", "q", "x", "--url", url, status=1)
        answering.join()
    assert "upgrade the older of the two" in refused.err


def test_a_reader_that_has_seen_enough(nexo, queue):
    nexo("produce", queue, "--count", "5000")
    piped = f"{NEXO} pop {queue} --max 5000 --url {nexo.url} | head -1"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, timeout=20, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_completion_knows_commands_flags_and_queues(nexo):
    nexo("queue", "create", "completed-orders")

    def complete(words: str, number: int) -> list[str]:
        environment = {
            "_NEXO_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        lines: list[str] = nexo(environment=environment).lines
        return lines

    assert "queue" in complete("nexo qu", 1)
    assert "--fail-rate" in complete("nexo consume q --fa", 3)
    # Of a broker that does not answer within a second no names are shown.
    eventually(lambda: complete("nexo queue info completed-", 3) == ["completed-orders"])
    eventually(lambda: complete("nexo pop completed-", 2) == ["completed-orders"])


@pytest.mark.parametrize("arguments", [["--help"], ["push", "q", "x", "--create"]], ids=" ".join)
def test_a_quick_start_leaves_the_broker_alone(nexo, arguments):
    program = (
        "import sys; from nexo.cli.main import run; status = run(sys.argv[1:]);"
        f"print('loaded', [name for name in {WEIGHT} if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        env=nexo.environment(),
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded []"
