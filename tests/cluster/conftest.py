from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.nodes import Nodes, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.postgresql import PostgresqlServer


@pytest.fixture(scope="module")
def nodes(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgresqlServer
) -> Iterator[Nodes]:
    """Two nodes that stay as they are."""
    with (
        postgresql.database("cluster_shared") as url,
        running(tmp_path_factory.mktemp("cluster"), url, "a", "b") as made,
    ):
        yield made


@pytest.fixture
def moving(tmp_path: Path, postgresql: PostgresqlServer) -> Iterator[Nodes]:
    """Two nodes of a test's own, which may move, sleep and die."""
    with (
        postgresql.database("cluster_moving") as url,
        running(tmp_path, url, "a", "b") as made,
    ):
        yield made
