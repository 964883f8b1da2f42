"""What takes time or goes by moments, in virtual time and without a server: the app is called as
ASGI says, so that a test decides at which step of the event loop something happens."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.sqs_http.app import SqsApp
from tests.engine.rig import Rig
from tests.engine.virtual_time import run, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

MINUTE_S = 60
STEPS = 40  # of the event loop: more than there are between a push and the answer to who waits


class Visit:
    """One request, from its first byte until it is answered or the client has hung up."""

    def __init__(self, action: str, wanted: dict[str, Any]) -> None:
        self._body: bytes | None = json.dumps(wanted).encode()
        self._gone = asyncio.Event()
        self._headers = [(b"x-amz-target", b"AmazonSQS." + action.encode())]
        self.is_gone = False  # and the app has been told
        self.was_gone = False  # when the answer came
        self.status = 0
        self.answer = b""

    def hang_up(self) -> None:
        self._gone.set()

    async def pay(self, app: SqsApp) -> Visit:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "scheme": "http",
            "headers": self._headers,
        }
        await app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        self.is_gone = True
        return {"type": "http.disconnect"}

    async def _send(self, event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.was_gone = self.is_gone
            self.status = event["status"]
        self.answer += event.get("body", b"")


async def ask(app: SqsApp, action: str, **wanted: Any) -> Visit:
    return await Visit(action, wanted).pay(app)


def in_virtual_time(test: Callable[[Engine], Awaitable[None]]) -> None:
    async def tested() -> None:
        rig = Rig()
        await test(await rig.start())
        await rig.stop()

    run(tested())


def test_a_queue_is_purged_once_a_minute() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine, has_pauses=True)
        for name in ("a", "b"):
            await ask(app, "CreateQueue", QueueName=name)
        assert (await ask(app, "PurgeQueue", QueueUrl="a")).status == 200
        for wait_s in (0, MINUTE_S - 0.001):
            await asyncio.sleep(wait_s)
            assert b"PurgeQueueInProgress" in (await ask(app, "PurgeQueue", QueueUrl="a")).answer
            assert (await ask(app, "SendMessage", QueueUrl="a", MessageBody="x")).status == 200
        assert (await ask(app, "PurgeQueue", QueueUrl="b")).status == 200, "a minute of its own"
        await asyncio.sleep(0.001)
        assert (await ask(app, "PurgeQueue", QueueUrl="a")).status == 200
        assert engine.queue("a").info().depth == 0
        # What was refused did not count: the minute is that of the last purge.
        assert b"PurgeQueueInProgress" in (await ask(app, "PurgeQueue", QueueUrl="a")).answer

    in_virtual_time(tested)


def test_a_name_is_free_a_minute_after_its_queue_was_deleted() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine, has_pauses=True)
        await ask(app, "CreateQueue", QueueName="a")
        await asyncio.sleep(5 * MINUTE_S)  # how old the queue was does not matter
        assert (await ask(app, "DeleteQueue", QueueUrl="a")).status == 200
        await asyncio.sleep(MINUTE_S - 0.001)
        assert b"QueueDeletedRecently" in (await ask(app, "CreateQueue", QueueName="a")).answer
        await asyncio.sleep(0.001)
        assert (await ask(app, "CreateQueue", QueueName="a")).status == 200
        assert (await ask(app, "CreateQueue", QueueName="a")).status == 200, "it is there"

    in_virtual_time(tested)


@pytest.mark.parametrize("fifo", [False, True])
def test_who_hangs_up_as_a_message_comes_does_not_hide_it(fifo: bool) -> None:
    """At whichever step of the event loop a client leaves: it was answered before, or the message
    is there for the next one, at once and as if nobody had seen it."""

    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        answered = []
        for steps in range(STEPS):
            name = f"q{steps}.fifo" if fifo else f"q{steps}"
            given = {"FifoQueue": "true"} if fifo else {}
            sent = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
            await ask(app, "CreateQueue", QueueName=name, Attributes=given)
            visit = Visit("ReceiveMessage", {"QueueUrl": name, "WaitTimeSeconds": 20})
            waiting = asyncio.ensure_future(visit.pay(app))
            await settle()
            sending = asyncio.ensure_future(
                ask(app, "SendMessage", QueueUrl=name, MessageBody="x", **sent)
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            visit.hang_up()
            await asyncio.gather(waiting, sending)
            await settle()
            assert not visit.was_gone, f"answered to nobody, {steps} steps after the send"
            info = engine.queue(name).info()
            answered.append(b"Messages" in visit.answer)
            expected = (0, 1) if answered[-1] else (1, 0)
            assert (info.ready, info.in_flight) == expected, f"{steps} steps after the send"
            if not answered[-1]:
                again = await ask(
                    app, "ReceiveMessage", QueueUrl=name, MessageSystemAttributeNames=["All"]
                )
                (message,) = json.loads(again.answer)["Messages"]
                assert message["Attributes"]["ApproximateReceiveCount"] == "1"
        assert sorted(answered) == answered, "who leaves later is answered rather"
        assert set(answered) == {False, True}, "not all of the way was walked"

    in_virtual_time(tested)
