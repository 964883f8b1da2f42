"""With access required: signatures of access keys are verified, and nothing else gets in."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.aws import REGION
from tests.compliance import clients
from tests.compliance.broker import NEXO, ServedBroker
from tests.compliance.raw import form_call, json_call, request
from tests.compliance.refusals import refused

Key = dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedBroker, Key]]:
    """A broker that asks everyone for a key, and one that it knows."""
    folder = tmp_path_factory.mktemp("guarded")
    made = subprocess.run(
        [NEXO, "token", "create", "all", "--allow", "*:*", "--aws", "--json",
         "--data", str(folder / "data")],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    served = ServedBroker(folder, "--access", "required")
    try:
        yield served.start(), json.loads(made.stdout)
        served.stop()
    finally:
        served.kill()


@pytest.fixture
def connect(guarded: tuple[ServedBroker, Key], protocol: str) -> Iterator[Any]:
    opened = []

    def connect_with(**changes: str) -> Any:
        broker, key = guarded
        options = {"key": key["access_key_id"], "secret": key["secret_access_key"], **changes}
        opened.append(clients.client(broker.endpoint, protocol, **options))
        return opened[-1]

    yield connect_with
    for client in opened:
        client.close()


def test_who_holds_the_secret_gets_in(connect: Any, name: str) -> None:
    sqs = connect()
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="grüße ✓ a+b%20c")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "grüße ✓ a+b%20c"


def test_another_secret(connect: Any) -> None:
    with refused(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. "
        "Check your AWS Secret Access Key and signing method.",
    ):
        connect(secret="guessed").list_queues()


def test_another_key(connect: Any) -> None:
    with refused("InvalidClientTokenId", "The security token included in the request is invalid."):
        connect(key="AKIAIOSFODNN7EXAMPLE").list_queues()


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_clock_that_is_off(connect: Any, minutes: int) -> None:
    sqs = connect()
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    with (
        patch.object(botocore.auth, "get_current_datetime", lambda: moment),
        refused("RequestExpired", "Signature "),
    ):
        sqs.list_queues()


@pytest.mark.parametrize("minutes", [-14, 14])
def test_a_clock_that_is_nearly_right(connect: Any, minutes: int) -> None:
    sqs = connect()
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    with patch.object(botocore.auth, "get_current_datetime", lambda: moment):
        sqs.list_queues()


def test_no_signature_at_all(guarded: tuple[ServedBroker, Key]) -> None:
    broker, _ = guarded
    for reply in (
        json_call(broker, "ListQueues", {}),
        form_call(broker, {"Action": "ListQueues"}),
        json_call(broker, "ListQueues", {}, Authorization="AWS4-HMAC-SHA256 garbage"),
        json_call(broker, "ListQueues", {}, Authorization="Basic dXNlcjpwYXNz"),
    ):
        assert reply.status in (400, 401, 403)
        assert b"QueueUrls" not in reply.body


def test_a_presigned_url(guarded: tuple[ServedBroker, Key], name: str) -> None:
    broker, key = guarded
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    url = f"{broker.endpoint}/?Action=CreateQueue&Version=2012-11-05&QueueName={name}"
    signed = AWSRequest("GET", url)
    SigV4QueryAuth(credentials, "sqs", REGION, expires=60).add_auth(signed)
    path = "/?" + urlsplit(signed.url).query
    assert request(broker, "GET", path).status == 200
    other = path.replace(name, name + "-other")
    assert request(broker, "GET", other).status == 403
