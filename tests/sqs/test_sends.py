"""Messages that come in one turn of the event loop: one push, and to each client its own answer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from nexo.doors.sqs_http.app import SqsApp
from nexo.engine.queue_actor import QueueActor
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig
from tests.engine.virtual_time import run
from tests.sqs.test_time import Visit, ask, in_virtual_time

if TYPE_CHECKING:
    import pytest

    from nexo.engine.engine import Engine


async def send_together(app: SqsApp, *messages: tuple[str, str]) -> list[Visit]:
    """Messages with their queues, each by a connection of its own, in one turn."""
    visits = [Visit("SendMessage", {"QueueUrl": q, "MessageBody": body}) for q, body in messages]
    return list(await asyncio.gather(*[visit.pay(app) for visit in visits]))


def test_each_queue_gets_its_own_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes: list[tuple[str, int]] = []
    push = QueueActor.push

    def noted(self: QueueActor, batch: Any, *more: Any) -> Any:
        pushes.append((self.name, batch.count))
        return push(self, batch, *more)

    monkeypatch.setattr(QueueActor, "push", noted)

    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        for name in ("a", "b", "c"):
            await ask(app, "CreateQueue", QueueName=name)
        commits = engine.committer.commits
        given = [("a", "1"), ("b", "2"), ("a", "3"), ("nothing", "4"), ("a", "5"), ("c", "6")]
        visits = await send_together(app, *given)
        assert [visit.status for visit in visits] == [200, 200, 200, 400, 200, 200]
        assert pushes == [("a", 3)], "a message that came alone takes the lean way"
        assert engine.committer.commits == commits + 1
        ids = [json.loads(visit.answer).get("MessageId") for visit in visits]
        for name, numbers in (("a", (0, 2, 4)), ("b", (1,)), ("c", (5,))):
            found = await engine.queue(name).peek()
            expected = [(ids[number], given[number][1].encode()) for number in numbers]
            assert [(each.id, each.body) for each in found] == expected

    in_virtual_time(tested)


def test_a_full_queue_takes_what_fits() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        await engine.create_queue("a", QueueSettings(max_depth=2))
        visits = await send_together(app, *[("a", str(number)) for number in range(4)])
        assert [visit.status for visit in visits] == [200, 200, 403, 403]
        assert b"OverLimit" in visits[3].answer
        assert [each.body for each in await engine.queue("a").peek()] == [b"0", b"1"]

    in_virtual_time(tested)


def test_nobody_is_told_yes_before_it_is_on_disk() -> None:
    async def tested() -> None:
        rig = Rig()
        engine = await rig.start()
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        failures = [ReadOnly("no more")]
        rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
        visits = await send_together(app, *[("a", str(number)) for number in range(3)])
        assert [visit.status for visit in visits] == [503, 503, 503]
        await asyncio.sleep(10)
        assert engine.queue("a").info().depth == 0
        await rig.stop()

    run(tested())


def test_who_hangs_up_has_sent_all_the_same() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        visits = [Visit("SendMessage", {"QueueUrl": "a", "MessageBody": str(n)}) for n in range(3)]
        paying = [asyncio.ensure_future(visit.pay(app)) for visit in visits]
        await asyncio.sleep(0)
        visits[1].hang_up()
        await asyncio.gather(*paying)
        assert [visit.status for visit in visits] == [200, 0, 200]
        assert len(await engine.queue("a").peek()) == 3

    in_virtual_time(tested)
