"""One broker for all tests of SNS; topics and queues of its own for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker as running_broker
from tests import aws
from tests.sns.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker


@pytest.fixture(scope="session", autouse=True)
def no_other_aws() -> Iterator[None]:
    with aws.nobody_else():
        yield


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def rig(broker: Broker, request: pytest.FixtureRequest) -> Rig:
    return Rig(broker.sqs_url, aws.name_of(request, chars_max=40))
