"""A publish is confirmed once it is on disk; and while the disk is behind, no more is taken in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.access.guard import Guard
from nexo.doors.json_udp.access import Access
from nexo.doors.json_udp.addresses import Asker
from nexo.doors.json_udp.datagram import Action, Command
from nexo.doors.json_udp.groups import Groups
from nexo.doors.json_udp.publishes import Publishes
from nexo.vocabulary.errors import RateLimited, ReadOnly
from nexo.vocabulary.limits import UDP_PAYLOAD_BYTES_MAX, UNSETTLED_BYTES_MAX
from nexo.vocabulary.settings import TopicSettings
from tests.engine.rig import Rig, texts
from tests.engine.virtual_time import run, settle

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from nexo.engine.engine import Engine

PUBLISHED = b'{"status": "success", "action": "publish", "topic": "news"}'


class Sent:
    """An outbox that keeps what it is given."""

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def send(self, reply: bytes, asker: Asker) -> None:
        self.replies.append(reply)

    def send_all(self, reply: bytes, askers: list[Asker]) -> None:
        self.replies += [reply] * len(askers)


class Sending:
    """Publishes on an engine whose disk can be held."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.engine = engine
        self.sent = Sent()
        self.tasks: set[Any] = set()

        def spawn(work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
            self.tasks.add(loop.create_task(work(*arguments)))

        create = Groups(engine, Access(Guard(engine.now_ms), engine)).topic
        self.publishes = Publishes(engine, self.sent, spawn, create, most)  # type: ignore[arg-type]

    def publish(self, payload: bytes, ref: int | None = None, topic: str = "news") -> None:
        asker = Asker(("127.0.0.1", 1))
        self.publishes.add(Command(Action.PUBLISH, topic, payload, ref=ref), asker)

    async def kept(self) -> list[str]:
        return texts(await self.engine.topic("news").read(0, 10_000))


def on_a_rig(test: Callable[[Rig, Sending], Coroutine[Any, Any, None]], most: int = 50_000) -> None:
    import asyncio

    async def main() -> None:
        rig = Rig()
        engine = await rig.start()
        await test(rig, Sending(engine, asyncio.get_running_loop(), most))
        await rig.stop()

    run(main())


def test_nothing_is_confirmed_before_it_is_on_disk() -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        await sending.engine.create_topic("news")
        rig.runner.is_held = True
        for number in range(5):
            sending.publish(b"%d" % number)
        sending.publishes.flush()
        await settle()
        assert sending.sent.replies == []
        assert await sending.kept() == []
        rig.runner.release()
        await settle()
        assert sending.sent.replies == [PUBLISHED] * 5
        assert await sending.kept() == list("01234")
        assert sending.publishes.unconfirmed == 0

    on_a_rig(test)


def test_a_turn_is_one_batch_a_topic() -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        for topic in ("news", "more"):
            await sending.engine.create_topic(topic)
        commits = len(rig.journal.commits)
        for number in range(200):
            sending.publish(b"%d" % number, topic=("news", "more")[number % 2])
        sending.publishes.flush()
        await sending.publishes.drain()
        (commit,) = rig.journal.commits[commits:]
        assert [batch.count for _, batch in commit.rows] == [100, 100]

    on_a_rig(test)


def test_a_new_topic_keeps_the_order() -> None:
    """What comes while it is being created waits behind what came first."""

    async def test(rig: Rig, sending: Sending) -> None:
        rig.runner.is_held = True
        for turn in range(4):
            for number in range(3):
                sending.publish(b"%d" % (turn * 3 + number), ref=turn * 3 + number)
            sending.publishes.flush()
            await settle()
        assert sending.sent.replies == []
        rig.runner.release()
        await sending.publishes.drain()
        assert [json.loads(reply)["ref"] for reply in sending.sent.replies] == list(range(12))
        assert await sending.kept() == [str(number) for number in range(12)]

    on_a_rig(test)


def test_too_many_unconfirmed() -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        await sending.engine.create_topic("news")
        rig.runner.is_held = True
        for number in range(10):
            sending.publish(b"%d" % number)
        with pytest.raises(RateLimited):
            sending.publish(b"10")
        sending.publishes.flush()
        await settle()
        with pytest.raises(RateLimited):
            sending.publish(b"10")
        rig.runner.release()
        await sending.publishes.drain()
        sending.publish(b"10")
        sending.publishes.flush()
        await sending.publishes.drain()
        assert len(await sending.kept()) == 11

    on_a_rig(test, most=10)


def test_a_congested_disk() -> None:
    """Memory does not grow: what the disk has not taken is the limit, and it is said so."""

    async def test(rig: Rig, sending: Sending) -> None:
        await sending.engine.create_topic("news")
        rig.runner.is_held = True
        payload, taken = b'"%b"' % (b"x" * (UDP_PAYLOAD_BYTES_MAX - 2)), 0
        while not sending.engine.committer.congested:
            for _ in range(100):
                sending.publish(payload)
                taken += 1
            sending.publishes.flush()
        with pytest.raises(RateLimited):
            sending.publish(payload)
        assert taken * len(payload) < UNSETTLED_BYTES_MAX + 101 * len(payload)
        rig.runner.release()
        await sending.publishes.drain()
        assert sending.sent.replies == [PUBLISHED] * taken
        sending.publish(b"1")  # there is room again
        sending.publishes.flush()
        await sending.publishes.drain()

    on_a_rig(test)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_failing_disk(is_new: bool) -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        if not is_new:
            await sending.engine.create_topic("news")
        rig.journal.refuse_commit = lambda _: ReadOnly("the disk is full")
        for ref in (1, 2):
            sending.publish(b"1", ref)
        sending.publishes.flush()
        await sending.publishes.drain()
        told = "Sola lettura: disco pieno o guasto"
        assert [json.loads(reply) for reply in sending.sent.replies] == [
            {"status": "error", "error": told, "code": "read_only", "ref": ref} for ref in (1, 2)
        ]
        rig.must_audit = False

    on_a_rig(test)


def test_one_that_is_too_large_for_its_topic_does_not_stop_the_others() -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        await sending.engine.create_topic("news", TopicSettings(max_message_bytes=5))
        for ref, payload in enumerate((b"1", b'"too long"', b"2")):
            sending.publish(payload, ref)
        sending.publishes.flush()
        await sending.publishes.drain()
        codes = {each["ref"]: each.get("code") for each in map(json.loads, sending.sent.replies)}
        assert codes == {0: None, 1: "message_too_large", 2: None}
        assert await sending.kept() == ["1", "2"]

    on_a_rig(test)


def test_a_topic_deleted_and_named_again() -> None:
    async def test(rig: Rig, sending: Sending) -> None:
        for number in range(2):
            sending.publish(b"%d" % number)
            sending.publishes.flush()
            await sending.publishes.drain()
            assert await sending.kept() == [str(number)]
            await sending.engine.delete_topic("news")
        assert sending.sent.replies == [PUBLISHED] * 2

    on_a_rig(test)
