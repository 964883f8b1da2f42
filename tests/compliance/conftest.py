"""One broker for all compliance tests; a client and queues of its own for each.

Tests that ask for `sqs`, `queue` or `make` run twice: over the JSON protocol and over the query
protocol. Mark a test `json_only` where the protocol makes no difference and time is spent waiting.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import aws
from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Make, Queue, maker


@pytest.fixture(scope="session", autouse=True)
def no_other_aws() -> Iterator[None]:
    with aws.nobody_else():
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
    return aws.name_of(request, chars_max=60)


@pytest.fixture
def make(sqs: Any, name: str) -> Make:
    return maker(sqs, name)


@pytest.fixture
def queue(make: Make) -> Queue:
    return make()


@pytest.fixture
def fifo(make: Make) -> Queue:
    return make(fifo=True)
