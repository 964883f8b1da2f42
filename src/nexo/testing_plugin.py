"""The pytest plugin: the fixture `nexo_broker`. Loaded by every pytest that has Nexo installed, so
it imports the broker only when a test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker


@pytest.fixture
def nexo_broker() -> Iterator[Broker]:
    """A broker of this test's own, in memory."""
    from nexo.testing import broker

    with broker() as running:
        yield running
