"""The named calls: what the broker answers is what `wire.calls` says, field by field, and what a
client sends is no more than it means to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import nexo
from nexo.vocabulary.start import Start
from nexo.wire import calls, commands
from nexo.wire.columns import decode_parts
from nexo.wire.frame import Kind
from tests.access.speaker import Speaker, code_of
from tests.client.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nexo.vocabulary.message import Message
    from nexo.wire.frame import Frame

ON = {"name": "orders"}
CLAIM = {**ON, "consumer": "query"}


class Asking:
    """Calls by hand, with answers that are checked against their types."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self.methods: set[str] = set()

    def frame(self, method: str, **params: Any) -> Frame:
        self.methods.add(method)
        answer = self._speaker.call(method, **params)
        assert answer is not None
        assert code_of(answer) == "ok", (method, answer.head)
        return answer

    def __call__(self, method: str, **params: Any) -> Any:
        answer = self.frame(method, **params)
        call = calls.CALLS[method]
        told: bytes | memoryview = answer.body
        if call.has_parts:
            decode_parts(answer.body)
            told = answer.head or commands.pack(None)
        typed = msgspec.msgpack.decode(told, type=call.reply)
        plain = msgspec.msgpack.decode(told)
        assert msgspec.msgpack.decode(commands.pack(typed)) == plain, method
        return typed


# A broker alone refuses them; tests/cluster asks for them.
OF_CLUSTER = {"cluster_info", "drain_node", "rebalance_cluster"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningBroker]:
    started = RunningBroker(str(tmp_path / "data")).start()
    yield started
    started.stop()


@pytest.fixture
def ask(running: RunningBroker) -> Iterator[Asking]:
    with Speaker(running.port, None) as speaker:
        yield Asking(speaker)


def test_every_answer_is_of_its_type(running: RunningBroker, ask: Asking) -> None:
    _ask_about_queues(running, ask)
    _ask_as_spark(running, ask)
    _ask_about_topics(ask)
    _ask_about_the_broker(ask)
    assert ask.methods == set(calls.CALLS) - OF_CLUSTER


def _ask_about_queues(running: RunningBroker, ask: Asking) -> None:
    made: calls.QueueFigures = ask("create_queue", **ON, settings={"max_attempts": 1})
    assert made.settings["max_attempts"] == 1
    assert ask("edit_queue", **ON, settings={"delay_ms": 0}) == made
    with nexo.connect(running.url) as client:
        client.queue("orders").push(b"dead", attributes={"a": "b"}, group_id="g")
        popped = client.queue("orders").pop()
        assert popped is not None
        popped.nack(reason="bad")
    assert [each.name for each in ask("list_queues")] == ["orders", "orders_dlq"]
    dead: calls.QueueFigures = ask("queue_info", name="orders_dlq")
    assert (dead.depth, dead.pushed) == (1, 1)
    (seen,) = ask("peek", name="orders_dlq")
    assert (seen.body, seen.dead_letter is None) == (b"dead", False)
    incarnation = ask("snapshot_open", name="orders_dlq").incarnation
    _ask_about_chosen(ask, seen)
    chosen = {"name": "orders_dlq", "incarnation": incarnation, "seqs": [seen.seq, seen.seq + 1]}
    assert ask("redrive_chosen", **chosen) == calls.Redriven(moved=1, skipped=0, missing=1)
    (back,) = ask("peek", **ON)
    sent: calls.Resent = ask("resend", **ON, id=back.id, body=b"mended")
    assert (sent.queue, sent.id == back.id) == ("orders", False)
    task = ask("redrive", name="orders_dlq")
    assert ask("redrive_progress", task=task, wait_ms=10_000).finished
    assert ask("redrive_cancel", task=task).finished
    assert ask("pause", **ON) is None
    assert ask("resume", **ON) is None
    assert ask("purge", **ON) == 1
    assert ask("delete_queue", name="orders_dlq") is None


def _ask_about_chosen(ask: Asking, seen: Message) -> None:
    at = {"name": "orders_dlq"}
    found: calls.Found = ask("search", **at, choice={"text": "dea"})
    assert (found.messages, found.matched, found.next) == ([seen], 1, None)
    told: calls.CountedReasons = ask("reasons", **at)
    assert [(each.reason, each.count) for each in told.groups] == [("bad", 1)]
    life: calls.MessageLife = ask("message", **at, id=seen.id)
    assert life.message == seen
    task = ask("discard", **at, choice={"ids": ["not-there"]})
    assert ask("redrive_progress", task=task, wait_ms=10_000).moved == 0


def _ask_as_spark(running: RunningBroker, ask: Asking) -> None:
    with nexo.connect(running.url) as client:
        client.queue("orders").push_batch([b"a", b"bb", b"ccc"])
    opened: calls.SnapshotInfo = ask("snapshot_open", **ON, wanted={"priority": [0, 9]})
    at = {**ON, "snapshot": opened.snapshot}
    page: calls.SnapshotPage = ask("snapshot_read", **at, start=0)
    assert (opened.count, page.next, page.missing) == (3, 3, 0)
    assert ask("snapshot_close", **at) is None
    epoch = ask("claim_open", **CLAIM)
    of_epoch = {**CLAIM, "epoch": epoch}
    got = ask("claim", **of_epoch, after=0, count=2, timeout_ms=60_000)
    assert got == calls.Claimed(number=1, messages=2, payload_bytes=3)
    assert ask("claim_keep", **of_epoch, timeout_ms=60_000) is None
    sealed = ask("claim_seal", **of_epoch, number=1)
    assert sealed == calls.Sealed(1, 2, 3, incarnation=opened.incarnation)
    body = ask.frame("claim_read", **of_epoch, number=1).body
    assert [part.batch.bodies() for part in decode_parts(body)] == [[b"a", b"bb"]]
    assert ask("claim_ack", **of_epoch, number=1) == 2
    assert ask("release", **CLAIM) == 0


def _ask_about_topics(ask: Asking) -> None:
    made: calls.TopicFigures = ask("create_topic", name="news")
    assert ask("topic_info", name="news") == made
    assert made in ask("list_topics")
    assert ask("bind", topic="news", queue="orders") is None
    assert ask("topic_info", name="news").bound_queues == ["orders"]
    assert ask("starts", pattern="news", start={"offset": 0}) == {"news": 0}
    assert ask("unbind", topic="news", queue="orders") is None
    assert ask("delete_topic", name="news") is None


def _ask_about_the_broker(ask: Asking) -> None:
    assert isinstance(ask("audit", limit=5), list)
    (me,) = ask("list_connections")
    assert me.address == "127.0.0.1"
    with pytest.raises(AssertionError, match="no connection"):
        ask("close_connection", number=9_999_999)
    made: calls.TokenFigures = ask("create_token", name="shop", allow=["orders:push"])
    key: calls.TokenFigures = ask("create_token", name="key", allow=["orders:pop"], aws=True)
    assert isinstance(made.token, str)
    assert isinstance(key.secret_access_key, str)
    listed: list[calls.TokenFigures] = ask("list_tokens")
    assert {each.name for each in listed} == {"shop", "key"}
    assert all(each.token is each.secret_access_key is msgspec.UNSET for each in listed)
    assert ask("revoke_token", name="shop") is None
    document = ask("export_definitions")
    assert [each.name for each in document.queues] == ["orders"]
    told = ask("import_definitions", definitions=msgspec.to_builtins(document), dry_run=True)
    assert {each.outcome for each in told} == {"unchanged"}
    progress: calls.BackupProgress = ask("backup")
    while not progress.done:
        progress = ask("backup_progress", backup=progress.backup, wait_ms=10_000)
    piece = ask("backup_read", backup=progress.backup, offset=0, size=100)
    assert len(piece) == 100
    assert ask("backup_end", backup=progress.backup) is None


def test_what_has_its_default_is_not_sent() -> None:
    """So that an older broker, which refuses fields that it does not know, understands it."""
    for wanted, sent in (
        (calls.CreateQueue("orders", exist_ok=True), {"name": "orders", "exist_ok": True}),
        (calls.ListQueues(), {}),
        (calls.ListTopics("a", 5), {"after": "a", "limit": 5}),
        (calls.BeginBackup(), {}),
        (
            calls.Bind("news", "orders", start=Start(offset=0), create=True),
            {
                "topic": "news",
                "queue": "orders",
                "start": {"offset": 0, "time_ms": None},
                "create": True,
            },
        ),
        (
            calls.OpenSnapshot("orders", calls.Ranges(priority=(5, 9))),
            {"name": "orders", "wanted": {"priority": [5, 9]}},
        ),
    ):
        assert msgspec.msgpack.decode(commands.pack(wanted)) == sent


def test_every_request_is_of_one_call() -> None:
    assert {calls.METHODS[call.request] for call in calls.CALLS.values()} == set(calls.CALLS)


def test_an_answer_of_a_newer_broker_is_read(ask: Asking) -> None:
    """Fields that are not known are passed over, settings included."""
    told: dict[str, Any] = msgspec.msgpack.decode(ask.frame("create_queue", **ON).body)
    newer = {**told, "mood": "fine", "settings": {**told["settings"], "mood": "fine"}}
    read = msgspec.msgpack.decode(commands.pack(newer), type=calls.QueueFigures)
    assert (read.name, read.settings["mood"]) == ("orders", "fine")


def test_a_call_that_nobody_knows_is_refused(running: RunningBroker) -> None:
    with Speaker(running.port, None) as speaker:
        assert code_of(speaker.ask(Kind.CALL, b"", [commands.pack(["dance", {}])])) == (
            "invalid_argument"
        )
