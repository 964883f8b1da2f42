"""One broker for all attacks of a run: what one of them leaves behind must not help the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aimed.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    broker = Target(tmp_path_factory.mktemp("aimed"))
    try:
        yield broker
        broker.stop()
    finally:
        broker.kill()
