"""Deletes that come in one turn of the event loop: acked as one, and to each client its own
answer."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.sqs_http.app import SqsApp
from nexo.engine.queue_actor import QueueActor
from nexo.vocabulary.errors import ReadOnly
from tests.engine.rig import Rig
from tests.engine.virtual_time import run
from tests.sqs.test_time import MINUTE_S, Visit, ask, in_virtual_time

if TYPE_CHECKING:
    from nexo.engine.engine import Engine

_numbers = itertools.count()


async def received(app: SqsApp, queue: str, count: int) -> list[str]:
    """The handles of messages that were sent and received one by one."""
    handles = []
    fifo = queue.endswith(".fifo")
    for _ in range(count):
        number = str(next(_numbers))
        more = {"MessageGroupId": number, "MessageDeduplicationId": number}
        await ask(app, "SendMessage", QueueUrl=queue, MessageBody="x", **(more if fifo else {}))
        answer = await ask(app, "ReceiveMessage", QueueUrl=queue, VisibilityTimeout=MINUTE_S)
        handles.append(json.loads(answer.answer)["Messages"][0]["ReceiptHandle"])
    return handles


async def delete_together(app: SqsApp, *given: tuple[str, str]) -> list[Visit]:
    visits = [Visit("DeleteMessage", {"QueueUrl": q, "ReceiptHandle": h}) for q, h in given]
    return list(await asyncio.gather(*[visit.pay(app) for visit in visits]))


def test_each_queue_acks_its_own_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acks: list[tuple[str, int]] = []
    ack_ranges = QueueActor.ack_ranges

    def noted(self: QueueActor, ranges: Any) -> Any:
        acks.append((self.name, len(ranges)))
        return ack_ranges(self, ranges)

    monkeypatch.setattr(QueueActor, "ack_ranges", noted)

    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        for name in ("a", "b"):
            await ask(app, "CreateQueue", QueueName=name)
        first, second, third = await received(app, "a", 3)
        (other,) = await received(app, "b", 1)
        commits = engine.committer.commits
        given = [("a", first), ("b", other), ("a", second), ("a", "none"), ("no", third)]
        visits = await delete_together(app, *given)
        assert [visit.status for visit in visits] == [200, 200, 200, 404, 400]
        assert b"ReceiptHandleIsInvalid" in visits[3].answer
        assert acks == [("a", 2), ("b", 1)]
        assert engine.committer.commits == commits + 1
        assert (engine.queue("a").info().depth, engine.queue("b").info().depth) == (1, 0)

    in_virtual_time(tested)


@pytest.mark.parametrize(("queue", "late"), [("a", 200), ("a.fifo", 400)])
def test_what_came_too_late_is_told_to_its_own_client(queue: str, late: int) -> None:
    """The first timed out and is back in line; of the second there are two at once."""

    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        fifo = {"Attributes": {"FifoQueue": "true"}} if queue.endswith(".fifo") else {}
        await ask(app, "CreateQueue", QueueName=queue, **fifo)
        (old,) = await received(app, queue, 1)
        await asyncio.sleep(MINUTE_S + 1)
        answer = await ask(app, "ReceiveMessage", QueueUrl=queue, VisibilityTimeout=MINUTE_S)
        assert json.loads(answer.answer)["Messages"]
        second, third = (await received(app, queue, 3))[1:]
        given = [old, second, second, third]
        visits = await delete_together(app, *[(queue, handle) for handle in given])
        assert [visit.status for visit in visits] == [late, 200, 200, 200]
        assert engine.queue(queue).info().depth == (1 if late == 200 else 2)

    in_virtual_time(tested)


def test_nobody_is_told_yes_before_it_is_on_disk() -> None:
    async def tested() -> None:
        rig = Rig()
        engine = await rig.start()
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        handles = await received(app, "a", 3)
        failures = [ReadOnly("no more")]
        rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
        visits = await delete_together(app, *[("a", handle) for handle in handles])
        assert [visit.status for visit in visits] == [503, 503, 503]
        await asyncio.sleep(10)
        assert engine.queue("a").info().depth == 3
        await rig.stop()

    run(tested())


def test_a_queue_that_is_deleted_in_the_same_turn() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        handles = await received(app, "a", 2)
        visits = [Visit("DeleteMessage", {"QueueUrl": "a", "ReceiptHandle": h}) for h in handles]
        visits.append(Visit("DeleteQueue", {"QueueUrl": "a"}))
        await asyncio.gather(*[visit.pay(app) for visit in reversed(visits)])
        assert {visit.status for visit in visits} <= {200, 400}
        assert "a" not in engine.queues

    in_virtual_time(tested)


def test_who_hangs_up_has_deleted_all_the_same() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        handles = await received(app, "a", 3)
        visits = [Visit("DeleteMessage", {"QueueUrl": "a", "ReceiptHandle": h}) for h in handles]
        paying = [asyncio.ensure_future(visit.pay(app)) for visit in visits]
        await asyncio.sleep(0)
        visits[1].hang_up()
        await asyncio.gather(*paying)
        assert [visit.status for visit in visits] == [200, 0, 200]
        assert engine.queue("a").info().depth == 0

    in_virtual_time(tested)
