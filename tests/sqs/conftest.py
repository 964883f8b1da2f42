"""A broker of its own for each test, and ways to speak to its HTTP door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker
from tests.sqs.calling import Door

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def door() -> Iterator[Door]:
    with broker() as running:
        yield Door(running)
