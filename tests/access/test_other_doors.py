"""The doors over HTTP and UDP, tried with every kind of wrong credentials and with just enough."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nexo.doors.sqs_http.actions import ACTIONS
from nexo.vocabulary.limits import AUDIT_REFUSED_LINES_MAX
from nexo.vocabulary.settings import QueueSettings
from tests.access.speaker import Speaker, code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.access.tokens import Minted
    from tests.access.guarded import GuardedBroker

pytestmark = pytest.mark.usefixtures("patient")

CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
ARN = "arn:aws:sqs:us-east-1:000000000000:"
ALL = {"push", "pop", "peek", "manage"}
URL = {"QueueUrl": "http://localhost/000000000000/orders"}
ONE = {**URL, "ReceiptHandle": "x"}

# What to ask, and which of the actions will do on `orders`.
SQS_ROWS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "AddPermission": (
        {**URL, "Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["*"]},
        {"manage"},
    ),
    "CancelMessageMoveTask": ({"TaskHandle": "x"}, set()),
    "ChangeMessageVisibility": ({**ONE, "VisibilityTimeout": 1}, {"pop"}),
    "ChangeMessageVisibilityBatch": (
        {**URL, "Entries": [{"Id": "a", "ReceiptHandle": "x", "VisibilityTimeout": 1}]},
        {"pop"},
    ),
    "CreateQueue": ({"QueueName": "orders-new"}, {"manage"}),
    "DeleteMessage": (ONE, {"pop"}),
    "DeleteMessageBatch": ({**URL, "Entries": [{"Id": "a", "ReceiptHandle": "x"}]}, {"pop"}),
    "DeleteQueue": (URL, {"manage"}),
    "GetQueueAttributes": (URL, ALL),
    "GetQueueUrl": ({"QueueName": "orders"}, ALL),
    "ListDeadLetterSourceQueues": (URL, ALL),
    "ListMessageMoveTasks": ({"SourceArn": ARN + "orders"}, {"manage"}),
    "ListQueueTags": (URL, ALL),
    "ListQueues": ({}, set()),
    "PurgeQueue": (URL, {"manage"}),
    "ReceiveMessage": (URL, {"pop"}),
    "RemovePermission": ({**URL, "Label": "l"}, {"manage"}),
    "SendMessage": ({**URL, "MessageBody": "x"}, {"push"}),
    "SendMessageBatch": ({**URL, "Entries": [{"Id": "a", "MessageBody": "x"}]}, {"push"}),
    "SetQueueAttributes": ({**URL, "Attributes": {"DelaySeconds": "0"}}, {"manage"}),
    "StartMessageMoveTask": ({"SourceArn": ARN + "orders"}, {"manage"}),
    "TagQueue": ({**URL, "Tags": {"a": "b"}}, {"manage"}),
    "UntagQueue": ({**URL, "TagKeys": ["a"]}, {"manage"}),
}


def sqs(broker: GuardedBroker, key: str, secret: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=CONFIG,
    )


def signed(broker: GuardedBroker, minted: Minted, action: str, params: dict[str, Any]) -> str:
    client = sqs(broker, minted.access_key_id, minted.secret_access_key)
    return call_sqs(client, action, params)


def call_sqs(client: Any, action: str, params: dict[str, Any]) -> str:
    """`ok`, or the code of the refusal."""
    method = "".join("_" + each.lower() if each.isupper() else each for each in action)[1:]
    try:
        getattr(client, method)(**params)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "ok"


def bearer(
    broker: GuardedBroker, token: str | None, path: str, action: str = "", params: Any = None
) -> tuple[int, dict[str, str], bytes]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    data = None
    if action:
        headers |= {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        data = json.dumps(params).encode()
    request = urllib.request.Request(broker.http + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def allow(actions: set[str]) -> list[str]:
    listed = ",".join(sorted(actions))
    return [f"orders:{listed}", f"orders-new:{listed}"] if listed else ["other:*"]


async def _restore(broker: GuardedBroker) -> None:
    if "orders" not in broker.engine.queues:
        await broker.engine.create_queue("orders")
    if "orders-new" in broker.engine.queues:
        await broker.engine.delete_queue("orders-new")


def test_every_action_of_sqs_has_a_row() -> None:
    assert set(SQS_ROWS) == set(ACTIONS)


@pytest.mark.parametrize("action", SQS_ROWS)
def test_an_action_of_sqs_takes_just_what_it_needs(broker: GuardedBroker, action: str) -> None:
    params, actions = SQS_ROWS[action]
    if not actions:
        assert signed(broker, broker.mint("other:push", aws=True), action, params) != "AccessDenied"
        return
    lacking = broker.mint(*allow(ALL - actions), aws=True)
    assert signed(broker, lacking, action, params) == "AccessDenied"
    for each in actions:
        broker.wait_for(_restore(broker))
        enough = broker.mint(*allow({each}), aws=True)
        assert signed(broker, enough, action, params) != "AccessDenied", each
    broker.wait_for(_restore(broker))


@pytest.mark.parametrize("state", ["unsigned", "unknown", "wrong", "expired", "revoked"])
@pytest.mark.parametrize("action", SQS_ROWS)
def test_no_action_of_sqs_is_done_without_a_key_that_holds(
    broker: GuardedBroker, action: str, state: str
) -> None:
    params, _ = SQS_ROWS[action]
    if state == "unsigned":
        status, _, body = bearer(broker, None, "/", action, params)
        assert (status, b"MissingAuthenticationToken" in body) == (403, True)
        return
    minted = broker.mint("*:*", aws=True)
    key, secret = minted.access_key_id, minted.secret_access_key
    if state == "unknown":
        key = "AKIAIOSFODNN7EXAMPLE"
    elif state == "wrong":
        secret = secret[::-1]
    elif state == "expired":
        _age(broker, minted)
    else:
        broker.revoke(minted)
    code = call_sqs(sqs(broker, key, secret), action, params)
    assert code == ("SignatureDoesNotMatch" if state == "wrong" else "InvalidClientTokenId")


def _age(broker: GuardedBroker, minted: Minted) -> None:
    import msgspec

    past = msgspec.structs.replace(minted.defined, expires_ms=minted.defined.created_ms - 1)

    def age() -> None:
        broker.engine._catalog.catalog.tokens[past.name] = past
        broker.engine.tokens.tell()

    broker.run(age)


def test_sqs_takes_a_bearer_token_too(broker: GuardedBroker) -> None:
    token = broker.token("orders:push")
    send = {"QueueUrl": URL["QueueUrl"], "MessageBody": "x"}
    assert bearer(broker, token, "/", "SendMessage", send)[0] == 200
    status, _, body = bearer(broker, token, "/", "ReceiveMessage", URL)
    assert (status, b"AccessDenied" in body) == (403, True)
    for wrong in ("nexo_wrong", broker.expired("*:*"), broker.revoked("*:*")):
        assert bearer(broker, wrong, "/", "SendMessage", send)[0] in (401, 403)


def test_sqs_lists_only_what_the_caller_knows(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:pop", aws=True)
    found = sqs(broker, minted.access_key_id, minted.secret_access_key).list_queues()
    assert [url.rpartition("/")[2] for url in found["QueueUrls"]] == ["orders"]


def test_dead_letters_are_pushed_by_who_sends_them(broker: GuardedBroker) -> None:
    policy = json.dumps({"deadLetterTargetArn": ARN + "orders", "maxReceiveCount": 1})
    params = {"QueueName": "mine", "Attributes": {"RedrivePolicy": policy}}
    assert signed(broker, broker.mint("mine:*", aws=True), "CreateQueue", params) == "AccessDenied"


def test_the_dead_letter_queue_of_its_own_name_is_the_queues_own(broker: GuardedBroker) -> None:
    """As over RPC: whoever manages a queue may let its dead letters go to `<queue>_dlq`."""
    for name in ("mine-1", "mine-1_dlq"):
        broker.wait_for(broker.engine.create_queue(name))
    policy = json.dumps({"deadLetterTargetArn": ARN + "mine-1_dlq", "maxReceiveCount": 1})
    url = {"QueueUrl": "http://localhost/000000000000/mine-1"}
    params = {**url, "Attributes": {"RedrivePolicy": policy}}
    minted = broker.mint("mine-1:manage", aws=True)
    assert signed(broker, minted, "SetQueueAttributes", params) == "ok"
    with Speaker(broker.ports.rpc, broker.token("mine-1:manage")) as speaker:
        settings = {"dead_letter": "mine-1_dlq"}
        assert code_of(speaker.call("edit_queue", name="mine-1", settings=settings)) == "ok"


@pytest.mark.parametrize(
    ("allow", "target", "is_allowed"),
    [
        (["letters:manage"], None, True),
        (["letters:manage", "target:push"], "target", True),
        (["letters:manage", "target:pop,peek,manage"], "target", False),
        (["letters:push,pop,peek", "target:push"], "target", False),
        (["letters:push,pop,peek"], None, False),
    ],
)
def test_all_doors_agree_on_a_redrive(
    broker: GuardedBroker, allow: list[str], target: str | None, is_allowed: bool
) -> None:
    broker.wait_for(_letters(broker))
    minted, token = broker.mint(*allow, aws=True), broker.token(*allow)
    start = {"SourceArn": ARN + "letters"}
    start |= {} if target is None else {"DestinationArn": ARN + target}
    over_sqs = signed(broker, minted, "StartMessageMoveTask", start)
    over_sqs_seen = signed(broker, minted, "ListMessageMoveTasks", {"SourceArn": ARN + "letters"})
    task = broker.wait_for(broker.engine.tasks.begin("letters", None, None))
    with Speaker(broker.ports.rpc, token) as speaker:
        over_rpc = code_of(speaker.call("redrive", name="letters", to=target))
        over_rpc_seen = code_of(speaker.call("redrive_progress", task=task))
    may_see = "letters:manage" in allow
    assert (over_sqs != "AccessDenied", over_rpc != "forbidden") == (is_allowed, is_allowed)
    assert (over_sqs_seen == "ok", over_rpc_seen == "ok") == (may_see, may_see)


async def _letters(broker: GuardedBroker) -> None:
    for name, settings in (
        ("letters", None),
        ("target", None),
        ("source", QueueSettings(dead_letter="letters")),
    ):
        if name not in broker.engine.queues:
            await broker.engine.create_queue(name, settings)


def test_what_sqs_refuses_is_told_as_refused(broker: GuardedBroker) -> None:
    """Not as something that may have been done: of that the log keeps a line each, always."""
    minted = broker.mint("orders:manage", aws=True)
    client = sqs(broker, minted.access_key_id, minted.secret_access_key)
    for _ in range(20):
        wrong = {**URL, "Attributes": {"VisibilityTimeout": "-1"}}
        assert call_sqs(client, "SetQueueAttributes", wrong) == "InvalidAttributeValue"
    told = [each.outcome for each in broker.audit() if each.who == minted.defined.name]
    assert set(told) == {"InvalidAttributeValue"}
    assert len(told) <= AUDIT_REFUSED_LINES_MAX


def test_management_over_sqs_is_told_to_the_audit_log(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:push", aws=True)
    signed(broker, minted, "PurgeQueue", URL)
    entry = broker.audit(1)[0]
    assert (entry.who, entry.door, entry.action) == (minted.defined.name, "sqs", "PurgeQueue")
    assert "orders" in entry.resource
    assert entry.outcome == "forbidden"


def _handle_of(arn: str) -> str:
    return b64encode(json.dumps({"taskId": "none", "sourceArn": arn}).encode()).decode()


@pytest.mark.parametrize(
    ("action", "request_"),
    [
        ("StartMessageMoveTask", {"SourceArn": ARN + "orders"}),
        ("CancelMessageMoveTask", {"TaskHandle": _handle_of(ARN + "orders")}),
    ],
)
def test_the_audit_log_names_the_queue_of_a_move_task(
    broker: GuardedBroker, action: str, request_: dict[str, str]
) -> None:
    minted = broker.mint("orders:push", aws=True)
    signed(broker, minted, action, request_)
    entry = broker.audit(1)[0]
    assert (entry.action, entry.resource) == (action, ARN + "orders")


def test_a_handle_that_is_none_names_nothing(broker: GuardedBroker) -> None:
    minted = broker.mint("orders:push", aws=True)
    signed(broker, minted, "CancelMessageMoveTask", {"TaskHandle": "no handle"})
    entry = broker.audit(1)[0]
    assert (entry.action, entry.resource) == ("CancelMessageMoveTask", "")


def test_only_health_is_open(broker: GuardedBroker) -> None:
    assert bearer(broker, None, "/health")[0] == 200
    for path in ("/metrics", "/api/v1/queues", "/console", "/", "/000000000000/orders"):
        status, _, body = bearer(broker, None, path)
        assert status in (401, 403, 404), path
        assert b"orders" not in body.replace(path.encode(), b""), path


def test_metrics_take_a_token_of_their_own(broker: GuardedBroker) -> None:
    status, headers, _ = bearer(broker, None, "/metrics")
    assert status == 401
    assert headers["www-authenticate"].startswith("Bearer")
    assert bearer(broker, broker.token("orders:*"), "/metrics")[0] == 403
    status, _, body = bearer(broker, broker.token("nexo.metrics:peek"), "/metrics")
    assert (status, b"nexo_queue_depth" in body) == (200, True)


# -- UDP ------------------------------------------------------------------------------------------


def ask(broker: GuardedBroker, **command: Any) -> dict[str, Any]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(("127.0.0.1", broker.ports.udp))
        sock.send(json.dumps(command).encode())
        told: dict[str, Any] = json.loads(sock.recv(65_536))
        return told


GROUP = {"topic": "news", "group": "g"}
UDP_ROWS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"action": "publish", "topic": "news", "payload": 1}, ["news:pop,peek,manage"], ["news:push"]),
    ({"action": "subscribe", "topic": "news"}, ["news:push,manage"], ["news:peek"]),
    ({"action": "unsubscribe", "topic": "news"}, ["news:push,manage"], ["news:pop"]),
    ({"action": "get", "topic": "news"}, ["news:push,manage"], ["news:pop"]),
    ({"action": "subscribe", **GROUP}, ["news:*"], ["news:pop", "news.g:pop,manage"]),
    ({"action": "get", **GROUP}, ["news:*"], ["news:pop", "news.g:pop,manage"]),
    ({"action": "ack", **GROUP, "ids": ["x"]}, ["news:*"], ["news.g:pop"]),
]


@pytest.mark.parametrize(
    ("command", "lacking", "enough"), UDP_ROWS, ids=lambda each: str(each)[:40]
)
def test_a_datagram_takes_just_what_it_needs(
    broker: GuardedBroker, command: dict[str, Any], lacking: list[str], enough: list[str]
) -> None:
    wrong: dict[str, Callable[[], str | None]] = {
        "none": lambda: None,
        "wrong": lambda: "nexo_wrong",
        "expired": lambda: broker.expired("*:*"),
        "revoked": lambda: broker.revoked("*:*"),
    }
    for state, shown in wrong.items():
        told = ask(broker, **command, token=shown())
        assert (told.get("error"), told.get("code")) == ("Non autorizzato", "unauthorized"), state
    told = ask(broker, **command, token=broker.token(*lacking))
    assert (told.get("error"), told.get("code")) == ("Non autorizzato", "forbidden")
    told = ask(broker, **command, token=broker.token(*enough))
    assert told.get("error") != "Non autorizzato", told


def test_a_long_poll_over_sqs_ends_with_its_key(broker: GuardedBroker) -> None:
    minted = broker.mint("other:pop", aws=True)
    client = sqs(broker, minted.access_key_id, minted.secret_access_key)
    other = {"QueueUrl": "http://localhost/000000000000/other", "WaitTimeSeconds": 20}
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(call_sqs, client, "ReceiveMessage", other)
        for _ in range(200):
            if broker.run(lambda: len(broker.engine.queue("other").room)):
                break
            time.sleep(0.02)
        broker.revoke(minted)
        assert polling.result(10) == "InvalidClientTokenId"
