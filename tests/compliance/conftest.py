"""One broker for all compliance tests; a client and queues of its own for each.

Tests that ask for `sqs`, `queue` or `make` run twice: over the JSON protocol and over the query
protocol. Mark a test `json_only` where the protocol makes no difference and time is spent waiting.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Make, Queue, maker

_numbers = count(1)


@pytest.fixture(scope="session", autouse=True)
def no_other_aws() -> Iterator[None]:
    """Whatever the machine is configured for: tests talk to nobody but the broker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_REGION"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path_factory.mktemp("broker"))
    try:
        yield served.start()
        served.stop()
    finally:
        served.kill()


@pytest.fixture(params=["json", "query"])
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def sqs(broker: ServedBroker, protocol: str) -> Iterator[Any]:
    client = clients.client(broker.endpoint, protocol)
    yield client
    client.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    test = re.sub(r"\W+", "-", request.function.__name__.removeprefix("test_"))
    return f"{test[:60]}-{next(_numbers)}"


@pytest.fixture
def make(sqs: Any, name: str) -> Make:
    return maker(sqs, name)


@pytest.fixture
def queue(make: Make) -> Queue:
    return make()


@pytest.fixture
def fifo(make: Make) -> Queue:
    return make(fifo=True)
