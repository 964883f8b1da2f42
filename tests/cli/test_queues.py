"""`nexo queue …`, against a running broker."""

import socket
from typing import Any

import pytest

from nexo.cli.main import run
from tests.client.eventually import eventually

SETTINGS = {
    "visibility_timeout": ("45", 45.0),
    "retransmit_timeout": ("250ms", 0.25),
    "max_attempts": ("3", 3),
    "dead_letter": ("{name}.failed", "{name}.failed"),
    "delay": ("2s", 2.0),
    "retention": ("30d", 2_592_000.0),
    "deduplication": ("content", "content"),
    "deduplication_window": ("5m", 300.0),
    "max_receive_rate": ("12.5", 12.5),
    "max_message_bytes": ("64KB", 65_536),
    "max_depth": ("1000", 1_000),
    "archive_retention": ("4h", 14_400.0),
}


def test_a_command_connects_once(monkeypatch, nexo, queue):
    dialled: list[object] = []
    connect = socket.create_connection

    def counted(place, **more):
        dialled.append(place)
        return connect(place, **more)

    monkeypatch.setattr(socket, "create_connection", counted)
    assert run(["queue", "create", queue, "--url", nexo.url]) == 0
    assert len(dialled) == 1


def test_create_takes_every_setting(nexo, queue):
    flags = [
        part
        for name, (text, _) in SETTINGS.items()
        for part in (f"--{name.replace('_', '-')}", text)
    ]
    backoff = ["--backoff-initial", "1", "--backoff-max", "10m", "--backoff-jitter", "0.5"]
    switches = ["--archive", "--no-events"]
    made = nexo("queue", "create", queue, *flags, *backoff, *switches, "--json").json()
    assert made["name"] == queue
    settings = made["settings"]
    assert {name: settings[name] for name in SETTINGS} == {
        name: value for name, (_, value) in SETTINGS.items()
    }
    assert settings["backoff"] == {"initial": 1.0, "factor": 2.0, "max": 600.0, "jitter": 0.5}
    assert (settings["archive"], settings["events"], settings["fifo"]) == (True, False, False)
    assert nexo("queue", "info", queue, "--json").json()["settings"] == settings


def test_create_again(nexo, queue):
    assert nexo("queue", "create", queue).lines == [f"Created queue {queue}"]
    again = nexo("queue", "create", queue)
    assert again.lines == [f"Queue {queue} exists already, with these settings"]
    refused = nexo("queue", "create", queue, "--max-attempts", "9", status=1)
    assert queue in refused.err
    assert (
        '"code": "queue_exists"'
        in nexo("queue", "create", queue, "--max-attempts", "9", "--json", status=1).err
    )


def test_fifo(nexo):
    made = nexo("queue", "create", "ordered.fifo", "--fifo", "--json").json()
    assert made["settings"]["fifo"] is True


def test_edit_changes_what_it_names(nexo, queue):
    nexo("queue", "create", queue, "--max-receive-rate", "5", "--backoff-initial", "2")
    nexo("queue", "edit", queue, "--visibility-timeout", "2m", "--max-receive-rate", "none")
    nexo("queue", "edit", queue, "--backoff-max", "1m", "--max-attempts", "none")
    settings = nexo("queue", "info", queue, "--json").json()["settings"]
    assert settings["visibility_timeout"] == 120.0
    assert settings["max_receive_rate"] is None
    assert settings["max_attempts"] is None
    assert settings["backoff"] == {"initial": 2.0, "factor": 2.0, "max": 60.0, "jitter": 0.0}
    assert "no setting was given" in nexo("queue", "edit", queue, status=2).err


def test_list_and_info(nexo, queue):
    nexo("push", queue, "a", "--create")
    nexo("push", queue, "b", "--delay", "1h")
    shown = nexo("queue", "list").out
    assert queue in shown
    assert "flight" in shown
    (info,) = [each for each in nexo("queue", "list", "--json").json() if each["name"] == queue]
    assert (info["depth"], info["ready"], info["scheduled"], info["in_flight"]) == (2, 1, 1, 0)
    assert info["oldest_age"] > 0
    assert {
        "consumers",
        "pushed",
        "delivered",
        "acked",
        "nacked",
        "timed_out",
        "expired",
        "dead_lettered",
    } <= (info.keys())
    page = nexo("queue", "info", queue).out
    assert "2 messages" in page
    assert "visibility-timeout" in page
    shown = dict(line.split() for line in page.splitlines() if len(line.split()) == 2)
    assert (shown["retention"], shown["receive-wait"]) == ("4d", "0s")


def test_peek_shows_and_takes_nothing(nexo, queue):
    nexo("push", queue, "--create", stdin="a\nb\nc\n")
    nexo("pop", queue, "--no-ack")
    nexo("push", queue, "later", "--delay", "1h", "--attribute", "tenant=blue")
    wanted = {"a": "received", "b": "ready", "c": "ready", "later": "scheduled"}

    def peek() -> Any:
        return nexo("queue", "peek", queue, "--json").json()

    # The word that it was received is sent on without an answer: nobody waits for it.
    eventually(lambda: {each["body"]: each["state"] for each in peek()} == wanted)
    peeked = peek()
    assert peeked[-1]["attributes"] == {"tenant": "blue"}
    assert len(nexo("queue", "peek", queue, "--limit", "2", "--json").json()) == 2
    assert "scheduled" in nexo("queue", "peek", queue).out
    assert nexo("queue", "info", queue, "--json").json()["depth"] == 4


def test_purge_and_delete_need_a_yes(nexo, queue):
    nexo("push", queue, "--create", stdin="a\nb\n")
    for command in ("purge", "delete"):
        assert "add --yes" in nexo("queue", command, queue, status=2).err
    assert nexo("queue", "info", queue, "--json").json()["depth"] == 2
    purged = nexo("queue", "purge", queue, "--yes", "--json").json()
    assert purged == {"name": queue, "purged": 2}
    assert nexo("queue", "delete", queue, "--yes").lines == [f"Deleted queue {queue}"]
    nexo("queue", "info", queue, status=1)


def test_pause_and_resume(nexo, queue):
    nexo("push", queue, "a", "--create")
    assert nexo("queue", "pause", queue, "--json").json() == {"name": queue, "paused": True}
    assert nexo("pop", queue).lines == []
    nexo("push", queue, "b")
    assert "paused" in nexo("queue", "list").out
    nexo("queue", "resume", queue)
    assert nexo("pop", queue, "--max", "5").lines == ["a", "b"]


def test_dead_letters_and_redrive(nexo, queue):
    nexo("queue", "create", queue, "--max-attempts", "2")
    nexo("push", queue, stdin="one\ntwo\nthree\n")
    nexo("consume", queue, "--fail-rate", "1", "--idle", "3s")
    (letter, *_) = nexo("queue", "peek", f"{queue}_dlq", "--json").json()
    assert letter["dead_letter"]["source"] == queue
    assert letter["dead_letter"]["attempts"] == 2
    assert "on purpose" in letter["dead_letter"]["reason"]
    assert "failed on purpose" in nexo("queue", "peek", f"{queue}_dlq").out
    moved = nexo("queue", "redrive", f"{queue}_dlq", "--json").json()
    assert moved == {"name": f"{queue}_dlq", "moved": 3, "skipped": 0}
    assert nexo("queue", "info", queue, "--json").json()["ready"] == 3


def test_redrive_to_another_queue_at_a_rate(nexo, queue):
    nexo("queue", "create", queue, "--max-attempts", "1")
    nexo("queue", "create", f"{queue}-retry")
    nexo("push", queue, stdin="one\ntwo\nthree\n")
    nexo("consume", queue, "--fail-rate", "1", "--idle", "3s")
    told = nexo("queue", "redrive", f"{queue}_dlq", "--to", f"{queue}-retry", "--rate", "50")
    assert told.out.startswith("Moved 3 messages in")
    assert nexo("pop", f"{queue}-retry", "--max", "9").lines == ["one", "two", "three"]
    refused = nexo("queue", "redrive", f"{queue}_dlq", "--to", "nowhere", status=1)
    assert "there is no queue 'nowhere': existing queues: " in refused.err


def test_release_of_a_consumer_that_is_not_there(nexo, queue):
    nexo("queue", "create", queue)
    told = nexo("queue", "release", queue, "--consumer", "nobody")
    assert told.lines == [f"Consumer nobody holds no messages of {queue}"]
    arguments = ["--consumer", "nobody", "--dead-letter", "--json"]
    assert nexo("queue", "release", queue, *arguments).json() == {"name": queue, "released": 0}
    assert "--consumer" in nexo("queue", "release", queue, status=2).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--visibility-timeout", "4x"),
        ("--visibility-timeout", "-5"),
        ("--visibility-timeout", "400d"),
        ("--max-attempts", "many"),
        ("--max-attempts", "0"),
        ("--deduplication", "maybe"),
        ("--max-message-bytes", "1PB"),
        ("--backoff-jitter", "2"),
    ],
)
def test_wrong_values(capsys, nexo, queue, arguments):
    assert run(["queue", "create", queue, *arguments, "--url", nexo.url]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unknown_queue(nexo, queue):
    nexo("queue", "create", f"{queue}-orders")
    refused = nexo("queue", "info", f"{queue}-ordres", status=1)
    assert f"did you mean {queue}-orders?" in refused.err
    for command in ("delete", "purge"):
        nexo("queue", command, f"{queue}-nowhere", "--yes", status=1)
    assert "not a queue name" in nexo("queue", "create", "no/such/name", status=2).err
    assert "reserved" in nexo("queue", "create", "nexo.mine", status=2).err
