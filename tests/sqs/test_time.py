"""What takes time or goes by moments, in virtual time and without sockets: a connection is told
what comes, so that a test decides at which step of the event loop something happens."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import pytest

from nexo.doors.http.connection import Hall, HttpConnection
from nexo.doors.http.crowd import Crowd
from nexo.doors.sqs_http.app import SqsApp
from tests.engine.rig import Rig
from tests.engine.virtual_time import run, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

MINUTE_S = 60
HALF_DAY_S = 43_200
STEPS = 40  # of the event loop: more than there are between a push and the answer to who waits

_halls: WeakKeyDictionary[SqsApp, Hall] = WeakKeyDictionary()


class Visit:
    """One connection with one request, from its first byte until it is answered or the client has
    hung up. It is the transport too: what is written is the answer."""

    def __init__(self, action: str, wanted: dict[str, Any]) -> None:
        body = json.dumps(wanted).encode()
        target = f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = f"POST / HTTP/1.1\r\nHost: a\r\n{target}".encode() + body
        self._connection: HttpConnection | None = None
        self._ended = asyncio.Event()
        self.is_gone = False  # and the door has been told
        self.was_gone = False  # when the answer came
        self.status = 0
        self.answer = b""

    def hang_up(self) -> None:
        if not self._ended.is_set():
            assert self._connection is not None
            self.is_gone = True
            self._connection.connection_lost(None)
            self._ended.set()

    async def pay(self, app: SqsApp) -> Visit:
        # All visits to an app are to one door, as in a broker.
        hall = _halls.setdefault(app, Hall(app, Crowd()))
        self.arrive(hall)
        await self._ended.wait()
        return self

    def arrive(self, hall: Hall) -> None:
        self._connection = HttpConnection(hall, asyncio.get_running_loop())
        self._connection.connection_made(cast("asyncio.Transport", self))
        self._connection.data_received(self._request)

    def write(self, data: bytes) -> None:
        self.was_gone = self.is_gone
        head, _, self.answer = data.partition(b"\r\n\r\n")
        self.status = int(head.split()[1])
        self._ended.set()

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_gone


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


def test_long_polls_of_about_the_same_time_end_together_and_none_too_early() -> None:
    async def tested(engine: Engine) -> None:
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="q")
        loop = asyncio.get_running_loop()
        ended: list[float] = []

        async def poll(wait_s: int) -> None:
            began = loop.time()
            await ask(app, "ReceiveMessage", QueueUrl="q", WaitTimeSeconds=wait_s)
            ended.append(loop.time())
            assert wait_s - 0.001 <= loop.time() - began <= wait_s + 0.051

        polls = []
        for number in range(100):
            polls.append(asyncio.ensure_future(poll(1 + number % 2)))
            await asyncio.sleep(0.003)
        await asyncio.gather(*polls)
        assert len({round(each, 3) for each in ended}) <= 2 * (0.3 / 0.05 + 1)

    in_virtual_time(tested)


@pytest.mark.parametrize("receives", [1, 2])
@pytest.mark.parametrize("restarts_from", ["", "records", "a snapshot"])
def test_a_message_is_held_for_twelve_hours_at_most(
    restarts_from: str, receives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its last receive on, however often its timeout is changed."""
    if restarts_from == "a snapshot":  # with every commit
        for limit in ("UNFOLDED_BYTES_MAX", "SNAPSHOT_BYTES_MIN"):
            monkeypatch.setattr(f"nexo.vocabulary.limits.{limit}", 0)

    async def tested() -> None:
        rig = Rig()
        engine = await rig.start()
        app = SqsApp(engine)
        await ask(app, "CreateQueue", QueueName="a")
        await ask(app, "SendMessage", QueueUrl="a", MessageBody="x")
        for _ in range(receives - 1):
            await ask(app, "ReceiveMessage", QueueUrl="a", VisibilityTimeout=MINUTE_S)
            await asyncio.sleep(HALF_DAY_S)
        received = await ask(app, "ReceiveMessage", QueueUrl="a", VisibilityTimeout=HALF_DAY_S)
        handle = json.loads(received.answer)["Messages"][0]["ReceiptHandle"]
        given = {"QueueUrl": "a", "ReceiptHandle": handle}
        change = "ChangeMessageVisibility"
        assert (await ask(app, change, **given, VisibilityTimeout=HALF_DAY_S)).status == 200
        await asyncio.sleep(HALF_DAY_S / 2)
        if restarts_from:
            app = SqsApp(await rig.restart())
        late = await ask(app, change, **given, VisibilityTimeout=HALF_DAY_S // 2 + 1)
        assert json.loads(late.answer)["message"] == (
            f"Value {HALF_DAY_S // 2 + 1} for parameter VisibilityTimeout is invalid. Reason: "
            "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]."
        )
        entries = [{"Id": "1", **given, "VisibilityTimeout": HALF_DAY_S // 2 + 1}]
        both = await ask(app, change + "Batch", QueueUrl="a", Entries=entries)
        assert json.loads(both.answer)["Failed"][0]["Code"] == "InvalidParameterValue"
        assert (await ask(app, change, **given, VisibilityTimeout=HALF_DAY_S // 2)).status == 200
        await rig.stop()

    run(tested())
