"""Every property test runs with small limits."""

import pytest

from tests.property.small import SMALL


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
