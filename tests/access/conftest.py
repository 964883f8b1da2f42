"""One broker for the tests of a file, with a queue and a topic of each kind of name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.access.guarded import GuardedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedBroker]:
    running = GuardedBroker()
    running.wait_for(running.engine.create_queue("orders"))
    running.wait_for(running.engine.create_queue("other"))
    running.wait_for(running.engine.create_topic("news"))
    running.wait_for(running.engine.create_topic("other-news"))
    yield running
    running.stop()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of this machine are not counted: a table of them would be too many."""
    monkeypatch.setattr("nexo.access.guard.ACCESS_FAILURES_MAX", 10**9)
