"""One broker that requires access for the tests of a file, and an admin of it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.access.guarded import GuardedBroker
from tests.admin.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedBroker]:
    running = GuardedBroker()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def admin(broker: GuardedBroker) -> Api:
    return Api(broker.ports.http, broker.token("*:*"))


@pytest.fixture
def queue(admin: Api) -> str:
    """A queue that no other test uses."""
    name = f"queue-{next(_numbers)}"
    admin("POST", "/queues", {"name": name}, status=201)
    return name


@pytest.fixture
def topic(admin: Api) -> str:
    name = f"topic-{next(_numbers)}"
    admin("POST", "/topics", {"name": name}, status=201)
    return name


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of this machine are not counted: a table of them would be too many."""
    monkeypatch.setattr("nexo.access.guard.ACCESS_FAILURES_MAX", 10**9)
