"""One broker for all tests of SNS; topics and queues of its own for each."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker as running_broker
from tests.sns.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker

_numbers = count(1)


@pytest.fixture(scope="session", autouse=True)
def no_other_aws() -> Iterator[None]:
    """Whatever the machine is configured for: tests talk to nobody but the broker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SNS", "AWS_REGION"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def rig(broker: Broker, request: pytest.FixtureRequest) -> Rig:
    test = re.sub(r"\W+", "-", request.function.__name__.removeprefix("test_"))
    return Rig(broker.sqs_url, f"{test[:40]}-{next(_numbers)}")
