"""Many requests over one connection: each is answered by itself, whatever came before it."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from hashlib import md5
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nexo.access.guard import Guard
from nexo.doors.http.connection import Hall, HttpConnection
from nexo.doors.http.crowd import Crowd
from nexo.doors.sqs_http.app import SqsApp
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import SIGNATURE_SKEW_MS
from nexo.vocabulary.settings import QueueSettings
from tests.sqs.test_time import in_virtual_time

if TYPE_CHECKING:
    from nexo.access.tokens import Minted
    from nexo.doors.http.exchange import Exchange
    from nexo.engine.engine import Engine

_KEY_MS = 60_000  # how long a key holds that is to expire


class Wire:
    """One connection that is kept: its transport, and what came back over it."""

    def __init__(self, hall: Hall) -> None:
        self._written = b""
        self._connection = HttpConnection(hall, asyncio.get_running_loop())
        self._connection.connection_made(cast("asyncio.Transport", self))

    def write(self, data: bytes) -> None:
        self._written += data

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""

    def close(self) -> None:
        """The test ends it."""

    def send(self, data: bytes) -> None:
        self._connection.data_received(data)

    async def answers(self, count: int) -> list[tuple[int, dict[str, str], bytes]]:
        found: list[tuple[int, dict[str, str], bytes]] = []
        while len(found) < count:
            head, end, rest = self._written.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = dict(each.split(": ", 1) for each in lines[1:])
            length = int(headers.get("content-length", 0))
            if not end or len(rest) < length:
                await asyncio.sleep(0.01)
                continue
            found.append((int(lines[0].split()[1]), headers, rest[:length]))
            self._written = rest[length:]
        return found

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        self.send(data)
        ((status, _, body),) = await self.answers(1)
        return status, body


def request(action: str, headers: str = "", **wanted: Any) -> bytes:
    body = json.dumps(wanted).encode()
    return (
        f"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.{action}\r\n{headers}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def by_account(account: str) -> str:
    credential = f"{account}/20260101/us-east-1/sqs/aws4_request"
    return (
        f"Authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, "
        "Signature=0\r\n"
    )


# -- Answers --------------------------------------------------------------------------------------


def test_everybody_gets_the_answer_to_what_they_sent() -> None:
    """Requests in a row over several connections, all in one turn, some of which are refused."""

    async def tested(engine: Engine) -> None:
        hall = Hall(SqsApp(engine), Crowd())
        wires = [Wire(hall) for _ in range(4)]
        for queue in ("a", "b"):
            await wires[0].ask(request("CreateQueue", QueueName=queue))
        queues = ("a", "b", "nothing", "a", "b")
        for number, wire in enumerate(wires):
            sends = [
                request("SendMessage", QueueUrl=queue, MessageBody=f"{number} {place} {queue}")
                for place, queue in enumerate(queues)
            ]
            wire.send(b"".join(sends))
        kept = {}
        for number, wire in enumerate(wires):
            for place, (status, _, told) in enumerate(await wire.answers(len(queues))):
                queue = queues[place]
                assert status == (400 if queue == "nothing" else 200)
                if status == 200:
                    body = f"{number} {place} {queue}".encode()
                    answer = json.loads(told)
                    assert answer["MD5OfMessageBody"] == md5(body).hexdigest()
                    kept[answer["MessageId"]] = body
        found = [each for queue in ("a", "b") for each in await engine.queue(queue).peek(100)]
        assert {each.id: each.body for each in found} == kept
        assert len(kept) == 16

    in_virtual_time(tested)


def test_each_request_has_an_id_of_its_own() -> None:
    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        await wire.ask(request("CreateQueue", QueueName="a"))
        send = request("SendMessage", QueueUrl="a", MessageBody="x")
        wire.send(send * 5 + request("Nonsense") + request("DeleteQueue", QueueUrl="no"))
        ids = [headers["x-amzn-requestid"] for _, headers, _ in await wire.answers(7)]
        assert len(set(ids)) == 7
        form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}")
        assert all(map(form.fullmatch, ids)), ids

    in_virtual_time(tested)


def test_who_asks_for_the_head_gets_no_body() -> None:
    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        wire.send(request("ListQueues").replace(b"POST", b"HEAD", 1))
        await asyncio.sleep(1)
        assert wire._written.startswith(b"HTTP/1.1 200 ")
        assert wire._written.endswith(b"\r\n\r\n")

    in_virtual_time(tested)


def test_the_last_answer_says_that_it_is_the_last() -> None:
    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        await wire.ask(request("CreateQueue", QueueName="a"))
        wanted = {"QueueUrl": "a", "MessageBody": "x"}
        wire.send(request("SendMessage", **wanted))
        wire.send(request("SendMessage", "Connection: close\r\n", **wanted))
        found = await wire.answers(2)
        assert [headers.get("connection") for _, headers, _ in found] == [None, "close"]

    in_virtual_time(tested)


def test_the_id_of_a_message_that_is_repeated() -> None:
    """It is that of the first one, whatever its priority."""

    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        queue = await engine.create_queue("a", QueueSettings(deduplication="content"))
        await queue.push_one(b"x", 7)
        (first,) = await queue.peek()
        sends = [request("SendMessage", QueueUrl="a", MessageBody=body) for body in ("x", "y", "x")]
        status, told = await wire.ask(sends[0])
        assert (status, json.loads(told)["MessageId"]) == (200, first.id)
        wire.send(b"".join(sends))
        ids = [json.loads(told)["MessageId"] for _, _, told in await wire.answers(3)]
        assert ids == [first.id, (await queue.peek())[1].id, first.id]

    in_virtual_time(tested)


# -- Who asks -------------------------------------------------------------------------------------


def test_a_connection_is_nobodys() -> None:
    """A proxy sends the requests of several over one: each counts for who signed it."""

    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        accounts = ("000000000000", "111111111111", "222222222222")
        for account in accounts:
            await wire.ask(request("CreateQueue", by_account(account), QueueName="a"))
        for account in (*accounts, *accounts):
            wanted = {"QueueUrl": "a", "MessageBody": account}
            status, _ = await wire.ask(request("SendMessage", by_account(account), **wanted))
            assert status == 200
        for account in accounts:
            name = "a" if account == accounts[0] else f"{account}/us-east-1/a"
            found = await engine.queue(name).peek()
            assert [each.body for each in found] == [account.encode()] * 2

    in_virtual_time(tested)


def test_only_the_first_credential_of_a_header_counts() -> None:
    async def tested(engine: Engine) -> None:
        wire = Wire(Hall(SqsApp(engine), Crowd()))
        both = by_account("111111111111")[:-2] + ", " + by_account("222222222222")[15:]
        for each in (both, by_account("111111111111"), by_account("222222222222")):
            status, told = await wire.ask(request("CreateQueue", each, QueueName="a"))
            assert status == 200
            assert ("/222222222222/" in json.loads(told)["QueueUrl"]) == each.startswith(
                "Authorization: AWS4-HMAC-SHA256 Credential=222222222222"
            )

    in_virtual_time(tested)


def signed(key: Minted, now_ms: int) -> bytes:
    body = json.dumps({"QueueUrl": "a", "MessageBody": "x"}).encode()
    target = {"X-Amz-Target": "AmazonSQS.SendMessage"}
    given = AWSRequest("POST", "http://a/", target, body)
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        credentials = Credentials(key.access_key_id, key.secret_access_key)
        SigV4Auth(credentials, "sqs", "us-east-1").add_auth(given)
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.headers.items())
    head = f"POST / HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("how", ["revoked", "expired", "old", "early"])
def test_nothing_outlives_its_key(how: str) -> None:
    """The same bytes, over the same connection: they were right a moment ago."""

    async def tested(engine: Engine) -> None:
        guard = Guard(engine.wall_ms, is_required=True)
        engine.tokens.guard_with(guard.adopt)
        wire = Wire(Hall(SqsApp(engine, guard=guard), Crowd()))
        queue = await engine.create_queue("a")
        life_ms = _KEY_MS if how == "expired" else None
        key = await engine.tokens.create("k", ["*:*"], aws=True, expires_after_ms=life_ms)
        ahead_ms = SIGNATURE_SKEW_MS + 2_000 if how == "early" else 0
        send = signed(key, engine.wall_ms() + ahead_ms)
        if how == "early":  # not yet, but soon
            status, told = await wire.ask(send)
            assert (status, b"RequestExpired" in told) == (400, True)
            await asyncio.sleep(2)
        for _ in range(2):
            status, _ = await wire.ask(send)
            assert status == 200
        if how == "revoked":
            await engine.tokens.revoke("k")
        elif how == "expired":
            await asyncio.sleep(_KEY_MS / 1000)
        else:
            await asyncio.sleep((ahead_ms + SIGNATURE_SKEW_MS) / 1000 + 0.001)
        for _ in range(2):
            status, told = await wire.ask(send)
            assert status in (400, 403)
            assert (
                b"RequestExpired" if how in ("old", "early") else b"InvalidClientTokenId"
            ) in told
        assert queue.info().depth == 2

    in_virtual_time(tested)


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_nothing_outlives_its_token(how: str) -> None:
    async def tested(engine: Engine) -> None:
        guard = Guard(engine.wall_ms, is_required=True)
        engine.tokens.guard_with(guard.adopt)
        wire = Wire(Hall(SqsApp(engine, guard=guard), Crowd()))
        queue = await engine.create_queue("a")
        life_ms = _KEY_MS if how == "expired" else None
        token = (await engine.tokens.create("t", ["*:*"], expires_after_ms=life_ms)).token
        bearer = f"Authorization: Bearer {token}\r\n"
        send = request("SendMessage", bearer, QueueUrl="a", MessageBody="x")
        for _ in range(2):
            assert (await wire.ask(send))[0] == 200
        if how == "revoked":
            await engine.tokens.revoke("t")
        else:
            await asyncio.sleep(_KEY_MS / 1000)
        for _ in range(2):
            assert (await wire.ask(send))[0] == 403
        assert queue.info().depth == 2

    in_virtual_time(tested)


def test_a_key_that_ends_before_the_disk_has_it() -> None:
    """What was right when it came is sent: the push was under way."""

    async def tested(engine: Engine) -> None:
        guard = Guard(engine.wall_ms, is_required=True)
        engine.tokens.guard_with(guard.adopt)
        wire = Wire(Hall(SqsApp(engine, guard=guard), Crowd()))
        queue = await engine.create_queue("a")
        key = await engine.tokens.create("k", ["*:*"], aws=True)
        wire.send(signed(key, engine.wall_ms()))
        await asyncio.sleep(0)
        await engine.tokens.revoke("k")
        ((status, _, _),) = await wire.answers(1)
        assert (status, queue.info().depth) in ((200, 1), (403, 0))

    in_virtual_time(tested)


# -- Heads ----------------------------------------------------------------------------------------


def test_headers_that_come_more_than_once() -> None:
    """The last value is the field; all of them are there, those of one name in their order."""
    seen: list[Exchange] = []

    class Noting:
        def begin(self, exchange: Exchange) -> None:
            seen.append(exchange)
            exchange.reply(200, b"content-length: 0\r\n", b"")

    async def tested(_: Engine) -> None:
        wire = Wire(Hall(Noting(), Crowd()))
        wire.send(
            b"POST / HTTP/1.1\r\nA: 1\r\nB: x\r\na: 2\r\nB: y\r\nA: 3\r\nContent-Length: 0\r\n\r\n"
            b"POST / HTTP/1.1\r\nB: z\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\nx\r\n0\r\nA: 4\r\nB: 5\r\n\r\n"
            b"POST / HTTP/1.1\r\nA: 6\r\nContent-Length: 0\r\n\r\n"
        )
        await wire.answers(3)

    in_virtual_time(tested)
    first, second, third = seen
    assert (first.fields[b"a"], first.fields[b"b"]) == (b"3", b"y")
    assert [value for name, value in first.headers if name == b"a"] == [b"1", b"2", b"3"]
    assert [value for name, value in first.headers if name == b"b"] == [b"x", b"y"]
    assert second.headers == [(b"b", b"z"), (b"transfer-encoding", b"chunked")]
    assert third.headers == [(b"a", b"6"), (b"content-length", b"0")]


def test_batches_of_others_are_not_in_the_way() -> None:
    """Singles, a batch and the native client push to one queue in one turn."""

    async def tested(engine: Engine) -> None:
        hall = Hall(SqsApp(engine), Crowd())
        one, other = Wire(hall), Wire(hall)
        queue = await engine.create_queue("a")
        one.send(request("SendMessage", QueueUrl="a", MessageBody="1") * 2)
        entries = [{"Id": f"{n}", "MessageBody": f"{n}"} for n in range(3)]
        other.send(request("SendMessageBatch", QueueUrl="a", Entries=entries))
        pushed = queue.push(batch_of([b"native"]))
        singles = [json.loads(told)["MessageId"] for _, _, told in await one.answers(2)]
        ((_, _, told),) = await other.answers(1)
        ids = singles + [each["MessageId"] for each in json.loads(told)["Successful"]]
        await pushed
        found = {each.id: each.body for each in await queue.peek()}
        assert [found[each] for each in ids] == [b"1", b"1", b"0", b"1", b"2"]
        assert len(found) == 6

    in_virtual_time(tested)
