"""Producers and consumers over RPC and SQS, at any node, and what they were told.

What is checked: every confirmed push is delivered or there; what was acked, and confirmed, never
comes again; a body that was pushed once over RPC is one message, however often it had to be sent.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

import nexo
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RPC_QUEUES = [f"queue{each}" for each in range(6)]
SQS_QUEUES = [f"sqs{each}" for each in range(3)]
VISIBILITY_S = 6.0
_PATIENCE_S = 60.0  # a client waits so long for one answer


class Witness:
    """What one queue's clients were told."""

    def __init__(self, is_numbered: bool) -> None:
        self._is_numbered = is_numbered  # a push that is sent again is known by its number
        self._lock = threading.Lock()
        self.pushed: dict[bytes, float] = {}  # confirmed, and when
        self.acked: dict[str, float] = {}  # confirmed, and when
        self.seen: dict[bytes, set[str]] = {}  # the ids that a body had
        self.wrong: list[str] = []

    def confirm_push(self, bodies: Iterable[bytes]) -> None:
        now = time.monotonic()
        with self._lock:
            self.pushed.update(dict.fromkeys(bodies, now))

    def confirm_acks(self, ids: Iterable[str]) -> None:
        now = time.monotonic()
        with self._lock:
            self.acked.update(dict.fromkeys(ids, now))

    def deliver(self, asked_at: float, messages: Iterable[tuple[str, bytes]]) -> None:
        """They came to who asked at that time."""
        with self._lock:
            for message_id, body in messages:
                ids = self.seen.setdefault(body, set())
                ids.add(message_id)
                if self._is_numbered and len(ids) > 1:
                    self.wrong.append(f"{body!r} is there twice: {ids}")
                if asked_at > self.acked.get(message_id, float("inf")):
                    self.wrong.append(f"{body!r} ({message_id}) came again after its ack")

    def check(self) -> None:
        assert self.wrong == [], f"{self.wrong[:5]} of {len(self.wrong)}"
        # An ack whose answer was lost may have been applied: then its second try is refused. So
        # what was seen once and is gone is no loss; what nobody ever saw is.
        lost = self.pushed.keys() - self.seen.keys()
        assert lost == set(), f"confirmed, and lost: {sorted(lost)[:5]} of {len(lost)}"


class Load:
    """`http_ports` are those of all nodes."""

    def __init__(self, url: str, http_ports: list[int]) -> None:
        self.url = url
        self._http_ports = http_ports
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.witnesses = {name: Witness(name in RPC_QUEUES) for name in RPC_QUEUES + SQS_QUEUES}
        self.errors: list[str] = []  # that a client should never see

    def create(self) -> None:
        with nexo.connect(self.url, timeout=_PATIENCE_S) as client:
            for name in self.witnesses:
                client.create_queue(name, visibility_timeout=VISIBILITY_S, max_attempts=None)

    def begin(self) -> None:
        for name in RPC_QUEUES:
            self._spawn(self._rpc, self._produce, name)
            self._spawn(self._rpc, self._consume, name)
        for number, name in enumerate(SQS_QUEUES):
            self._spawn(self._sqs, self._send, name, number)
            self._spawn(self._sqs, self._receive, name, number + 1)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S * 1.5)
            assert not thread.is_alive(), "a client waits for ever"

    def account(self) -> None:
        """What is left is taken once the visibility timeout is over."""
        until = time.monotonic() + 60
        with nexo.connect(self.url, timeout=_PATIENCE_S) as client:
            for name in self.witnesses:
                queue = client.queue(name)
                while queue.info().depth:
                    assert time.monotonic() < until, queue.info()
                    self._consume(queue, itertools.count())
        for witness in self.witnesses.values():
            witness.check()

    @property
    def wrong(self) -> list[str]:
        """What should never be, so far."""
        return [*self.errors, *[each for one in self.witnesses.values() for each in one.wrong]]

    @property
    def counts(self) -> dict[str, int]:
        found = self.witnesses.values()
        return {
            "confirmed pushes": sum(len(each.pushed) for each in found),
            "confirmed acks": sum(len(each.acked) for each in found),
            "messages seen": sum(len(each.seen) for each in found),
        }

    def _spawn(self, work: Callable[..., None], *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        thread.start()
        self._threads.append(thread)

    # -- RPC: the client follows by itself ----------------------------------------------------

    def _rpc(self, work: Callable[[nexo.Queue, Any], None], name: str) -> None:
        numbers = itertools.count()
        with nexo.connect(self.url, timeout=_PATIENCE_S) as client:
            while not self._stop.is_set():
                try:
                    work(client.queue(name), numbers)
                except NexoError as error:  # a client sees time pass, and nothing else
                    self.errors.append(f"{name}: {type(error).__name__}: {error}")
                    time.sleep(0.1)

    def _produce(self, queue: nexo.Queue, numbers: Any) -> None:
        bodies = [b"%s %d" % (queue.name.encode(), next(numbers)) for _ in range(5)]
        queue.push_batch(bodies)
        self.witnesses[queue.name].confirm_push(bodies)
        time.sleep(0.02)

    def _consume(self, queue: nexo.Queue, numbers: Any) -> None:
        witness, asked_at = self.witnesses[queue.name], time.monotonic()
        messages = queue.pop_batch(20, wait=0.5)
        witness.deliver(asked_at, [(message.id, message.body) for message in messages])
        refused = {message_id for message_id, _ in queue.ack_batch(messages)}
        witness.confirm_acks(each.id for each in messages if each.id not in refused)

    # -- SQS: an AWS SDK behind a load balancer, which asks the next node after an error ------

    def _sqs(self, work: Callable[[Any, str, Any], None], name: str, at: int) -> None:
        clients = [_sqs_client(port) for port in self._http_ports]
        numbers = itertools.count()
        while not self._stop.is_set():
            try:
                work(clients[at % len(clients)], name, numbers)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    self.errors.append(f"{name}: {error}")
                at += 1
                time.sleep(0.1)
            except BotoCoreError:
                at += 1
                time.sleep(0.1)

    def _send(self, client: Any, name: str, numbers: Any) -> None:
        bodies = [f"{name} {next(numbers)}" for _ in range(5)]
        entries = [{"Id": str(at), "MessageBody": body} for at, body in enumerate(bodies)]
        answer = client.send_message_batch(QueueUrl=f"/000000000000/{name}", Entries=entries)
        sent = [bodies[int(each["Id"])].encode() for each in answer.get("Successful", ())]
        self.witnesses[name].confirm_push(sent)
        time.sleep(0.05)

    def _receive(self, client: Any, name: str, numbers: Any) -> None:
        witness, url, asked_at = self.witnesses[name], f"/000000000000/{name}", time.monotonic()
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        messages = found.get("Messages", [])
        witness.deliver(asked_at, [(each["MessageId"], each["Body"].encode()) for each in messages])
        if messages:
            entries = [
                {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]}
                for at, each in enumerate(messages)
            ]
            gone = client.delete_message_batch(QueueUrl=url, Entries=entries)
            done = [int(each["Id"]) for each in gone.get("Successful", ())]
            witness.confirm_acks(messages[at]["MessageId"] for at in done)


def _sqs_client(port: int) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="nexo",
        aws_secret_access_key="nexo",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=3, read_timeout=10),
    )
