from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journal.places import InMemory, OnFile, OnPostgresql, OnShard, OnSimulatedDisk, Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "file", "simulated", "postgresql", "shard"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place
    if request.param == "memory":
        made = InMemory()
    elif request.param == "file":
        made = OnFile(tmp_path / "data")
    elif request.param == "postgresql":
        made = OnPostgresql(request.getfixturevalue("postgresql").url)
    elif request.param == "shard":
        made = OnShard(request.getfixturevalue("postgresql").url)
    else:
        made = OnSimulatedDisk()
    yield made
    made.leave()
