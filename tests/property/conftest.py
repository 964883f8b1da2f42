"""Small limits, so that short runs reach what takes thousands of messages otherwise."""

import pytest

from nexo.machine import fold, groups, log, producers
from nexo.vocabulary import limits

SMALL = (
    (log, "SMALL_PUSH_MESSAGES", 5),
    (log, "SMALL_PUSH_BYTES", 60),
    (log, "CHUNK_MESSAGES_MAX", 7),
    (log, "CHUNK_BYTES_MAX", 90),
    (groups, "NOISY_IN_FLIGHT_MIN", 3),
    (producers, "PRODUCER_RESULTS_KEPT", 2),
    (fold, "PRODUCER_RESULTS_KEPT", 2),
    (limits, "CLAIM_BATCHES_MAX", 3),
)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
