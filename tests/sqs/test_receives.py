"""Receives that come in one turn of the event loop: all take their messages, then all are answered,
a bounded number of them in one step."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.http import connection
from nexo.doors.http.connection import Hall
from nexo.doors.http.crowd import Crowd
from nexo.doors.sqs_http import receive_message
from nexo.doors.sqs_http.app import SqsApp
from nexo.doors.sqs_http.receive_message import Receives
from nexo.engine.queue_actor import QueueActor
from tests.sqs.test_time import Visit, ask, in_virtual_time

if TYPE_CHECKING:
    from nexo.engine.engine import Engine


async def prepared(engine: Engine, count: int, size: int = 1) -> SqsApp:
    app = SqsApp(engine)
    await ask(app, "CreateQueue", QueueName="a")
    for number in range(count):
        body = str(number).ljust(size, ".")
        await ask(app, "SendMessage", QueueUrl="a", MessageBody=body)
    return app


def receives(count: int, **wanted: Any) -> list[Visit]:
    return [Visit("ReceiveMessage", {"QueueUrl": "a", **wanted}) for _ in range(count)]


def bodies(visits: list[Visit]) -> list[list[str]]:
    answers = [json.loads(visit.answer) for visit in visits]
    return [[each["Body"] for each in answer.get("Messages", ())] for answer in answers]


def steps_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many took their messages in each step."""
    steps: list[int] = []
    serve, take = Receives._serve, QueueActor.receive_at_once

    def noted_serve(self: Receives) -> None:
        steps.append(0)
        serve(self)

    def noted_take(self: QueueActor, *given: Any) -> Any:
        steps[-1] += 1
        return take(self, *given)

    monkeypatch.setattr(Receives, "_serve", noted_serve)
    monkeypatch.setattr(QueueActor, "receive_at_once", noted_take)
    return steps


def test_each_gets_its_own_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = steps_of(monkeypatch)

    async def tested(engine: Engine) -> None:
        app = await prepared(engine, 3)
        visits = [*receives(2), *receives(1, QueueUrl="none"), *receives(2)]
        await asyncio.gather(*[visit.pay(app) for visit in visits])
        assert [visit.status for visit in visits] == [200, 200, 400, 200, 200]
        assert bodies(visits) == [["0"], ["1"], [], ["2"], []]
        assert steps == [4]

    in_virtual_time(tested)


@pytest.mark.parametrize("limit", ["SQS_RECEIVES_STEP", "SQS_RECEIVES_STEP_BYTES"])
def test_a_step_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(receive_message, limit, {"SQS_RECEIVES_STEP": 2}.get(limit, 150))
    steps = steps_of(monkeypatch)

    async def tested(engine: Engine) -> None:
        app = await prepared(engine, 5, size=100)
        visits = receives(5)
        await asyncio.gather(*[visit.pay(app) for visit in visits])
        assert [len(each) for each in bodies(visits)] == [1] * 5
        assert steps == [2, 2, 1]

    in_virtual_time(tested)


def test_requests_begin_a_bounded_number_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HTTP_STEP_CONNECTIONS", 2)

    class Front:
        def __init__(self) -> None:
            self.begun = 0

        def begin(self, exchange: Any) -> None:
            self.begun += 1
            exchange.reply(200, b"content-length: 0\r\n", b"")

    async def tested(engine: Engine) -> None:
        front = Front()
        hall = Hall(front, Crowd())
        visits = receives(5)
        for visit in visits:
            visit.arrive(hall)
        seen = []
        for _ in range(4):
            seen.append(front.begun)
            await asyncio.sleep(0)
        assert seen == [0, 2, 4, 5]
        assert [visit.status for visit in visits] == [200] * 5

    in_virtual_time(tested)


def test_who_hangs_up_takes_no_message() -> None:
    async def tested(engine: Engine) -> None:
        app = await prepared(engine, 2)
        visits = receives(3)
        paying = [asyncio.ensure_future(visit.pay(app)) for visit in visits]
        await asyncio.sleep(0)
        visits[0].hang_up()
        await asyncio.gather(*paying)
        assert bodies(visits[1:]) == [["0"], ["1"]]
        assert engine.queue("a").info().in_flight == 2

    in_virtual_time(tested)


def test_too_many_in_flight_is_told_to_those_who_come_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive_message, "IN_FLIGHT_MAX", 2)

    async def tested(engine: Engine) -> None:
        app = await prepared(engine, 4)
        visits = receives(4)
        await asyncio.gather(*[visit.pay(app) for visit in visits])
        assert [visit.status for visit in visits] == [200, 200, 403, 403]
        assert b"OverLimit" in visits[3].answer

    in_virtual_time(tested)
