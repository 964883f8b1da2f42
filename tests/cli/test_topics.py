"""`nexo topic …`, against a running broker."""

import json
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest

from nexo.cli.main import run
from nexo.cli.parameters import parse_moment, parse_start
from nexo.cli.tables import life_line
from nexo.vocabulary.events import Event, batch_of_events
from nexo.vocabulary.states import EventKind
from tests.client.eventually import eventually


@pytest.fixture
def topic(queue):
    """A name that no other test uses."""
    return queue.replace("queue", "topic")


def test_create_list_info_delete(nexo, topic):
    flags = ["--retention-messages", "100", "--retention-seconds", "1h"]
    flags += ["--retention-bytes", "64KB"]
    made = nexo("topic", "create", topic, *flags, "--json").json()
    assert (made["name"], made["start"], made["end"], made["messages"]) == (topic, 0, 0, 0)
    assert made["settings"] == {
        "retention_messages": 100,
        "retention_seconds": 3_600.0,
        "retention_bytes": 65_536,
        "max_message_bytes": 1_048_576,
        "deduplication": "off",
        "deduplication_scope": "topic",
        "tags": {},
        "aws": {},
    }
    again = nexo("topic", "create", topic, *flags)
    assert again.lines == [f"Topic {topic} exists already, with these settings"]
    assert "topic_exists" in nexo("topic", "create", topic, "--json", status=1).err
    shown = nexo("topic", "list").out
    assert topic in shown
    assert "100 messages, 1h, 64 KB" in shown
    assert "nexo.events" in shown
    assert topic in [each["name"] for each in nexo("topic", "list", "--json").json()]
    assert "next offset" in nexo("topic", "info", topic).out
    assert "add --yes" in nexo("topic", "delete", topic, status=2).err
    assert nexo("topic", "delete", topic, "--yes").lines == [f"Deleted topic {topic}"]
    assert "create it" in nexo("topic", "info", topic, status=1).err
    assert nexo("topic", "create", topic).lines == [f"Created topic {topic}"]


def test_publish_and_tail(nexo, topic):
    assert nexo("topic", "publish", topic, "one", "--create").lines == ["0"]
    assert nexo("topic", "publish", topic, "two", "--json").json() == {"offset": 1}
    lines = nexo("topic", "publish", topic, "--attribute", "kind=a", stdin="three\nfour\n")
    assert lines.lines == ["2", "3"]
    everything = ["topic", "tail", topic, "--no-follow"]
    assert nexo(*everything).lines == ["one", "two", "three", "four"]
    assert nexo(*everything, "--from", "2").lines == ["three", "four"]
    assert nexo(*everything, "--from", "1h").lines == ["one", "two", "three", "four"]
    assert nexo(*everything, "--from", "latest").lines == []
    assert nexo("topic", "tail", topic, "--from", "earliest", "--limit", "1").lines == ["one"]
    *_, last = [json.loads(line) for line in nexo(*everything, "--json").lines]
    published = datetime.fromisoformat(last.pop("published_at"))
    assert abs(datetime.now(UTC) - published) < timedelta(minutes=1)
    assert last == {
        "topic": topic,
        "offset": 3,
        "attributes": {"kind": "a"},
        "body": "four",
        "text": "four",
    }
    near = nexo("topic", "publish", f"{topic}x", "nowhere", status=1).err
    assert f"did you mean {topic}?" in near


def test_tail_follows_until_it_is_told(nexo, topic):
    for name in (f"{topic}.a.x", f"{topic}.b.x"):
        nexo("topic", "create", name)
    tailing = nexo.start("topic", "tail", f"{topic}.*.x", "--from", "earliest")
    assert tailing.stdout is not None
    nexo("topic", "publish", f"{topic}.a.x", "hello")
    assert tailing.stdout.readline() == f"{topic}.a.x\thello\n"
    nexo("topic", "publish", f"{topic}.c.x", "later", "--create")
    assert tailing.stdout.readline() == f"{topic}.c.x\tlater\n"
    tailing.send_signal(signal.SIGINT)
    tailing.communicate(timeout=20)
    assert tailing.returncode == 0


def test_bind_and_unbind(nexo, topic, queue):
    nexo("topic", "publish", topic, "--create", stdin="one\ntwo\n")
    nexo("topic", "publish", topic, "red", "--attribute", "colour=red")
    assert nexo("topic", "bind", topic, queue).lines == [f"Bound queue {queue} to topic {topic}"]
    bound = nexo("topic", "bind", topic, f"{queue}-all", "--start", "earliest", "--json").json()
    assert (bound["queue"], bound["bound"]) == (f"{queue}-all", True)
    flags = ["--start", "0", "--where", "colour=red"]
    nexo("topic", "bind", topic, f"{queue}-red", *flags)
    nexo("topic", "publish", topic, "new")
    assert nexo("pop", queue, "--max", "9").lines == ["new"]
    assert nexo("pop", f"{queue}-all", "--max", "9").lines == ["one", "two", "red", "new"]
    assert nexo("pop", f"{queue}-red", "--max", "9").lines == ["red"]
    info = nexo("topic", "info", topic, "--json").json()
    assert sorted(info["bound_queues"]) == sorted([queue, f"{queue}-all", f"{queue}-red"])
    nexo("topic", "unbind", topic, queue)
    nexo("topic", "publish", topic, "unheard")
    assert nexo("pop", queue).lines == []


def test_the_life_of_messages(nexo, queue):
    nexo("push", queue, "--create", stdin="one\ntwo\n")
    nexo("pop", queue, "--max", "2")

    def told():
        lines = nexo("topic", "tail", "nexo.events", "--no-follow").lines
        return [line.split()[1:5] for line in lines if f" {queue} " in line]

    eventually(lambda: len(told()) >= 4)  # what happened is told a little later
    assert told() == [
        ["pushed", queue, "2", "#0-1"],
        ["delivered", queue, "2", "#0-1"],
        ["received", queue, "2", "#0-1"],
        ["acked", queue, "2", "#0-1"],
    ]
    assert "is a system topic" in nexo("topic", "publish", "nexo.events", "x", status=2).err
    assert "cannot be bound" in nexo("topic", "bind", "nexo.events", queue, status=2).err
    assert "is a system topic" in nexo("topic", "delete", "nexo.events", "--yes", status=2).err


def test_a_line_of_a_life():
    event = Event(
        kind=EventKind.NACKED,
        queue="orders",
        first_seq=(9 << 48) + 5,
        count=3,
        at_ms=1_000,
        created_ms=900,
        attempts=2,
        consumer="web-1",
        reason="no\nluck",
    )
    line = life_line(batch_of_events([event]).body(0))
    shown = [part.strip() for part in line.plain.split("  ") if part.strip()]
    wanted = ["nacked", "orders", "3", "p9 #5-7", "attempt 2", "web-1", "no luck"]
    assert shown[1:] == wanted
    assert "yellow" in str(line.spans)


@pytest.mark.parametrize("text", ["yesterday", "-5", "1.2.3", ""])
def test_wrong_starts(capsys, nexo, topic, text):
    assert run(["topic", "tail", topic, f"--from={text}", "--url", nexo.url]) == 2
    assert "is not a valid start position" in capsys.readouterr().err


def test_starts():
    assert parse_start("latest") == "latest"
    assert parse_start("12") == 12
    ago = parse_start("10m")
    assert isinstance(ago, datetime)
    assert abs(datetime.now(UTC) - ago - timedelta(minutes=10)) < timedelta(seconds=5)
    moment = parse_start("2026-05-31T14:30:00+00:00")
    assert moment == datetime(2026, 5, 31, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_time_means_the_same_to_topics_and_to_the_pipeline(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        at = datetime(2026, 5, 31, 14, 30, tzinfo=UTC)
        assert parse_start("2026-05-31 14:30") == parse_moment("2026-05-31 14:30").at == at
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "no/such/name"),
        ("create", "nexo.mine"),
        ("create", "t", "--retention-seconds", "4x"),
        ("create", "t", "--retention-bytes", "many"),
        ("create", "t", "--retention-messages", "0"),
        ("bind", "t", "q", "--where", "colour"),
        ("tail", "fleet.>.x"),
    ],
)
def test_wrong_values(capsys, nexo, arguments):
    assert run(["topic", *arguments, "--url", nexo.url]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
