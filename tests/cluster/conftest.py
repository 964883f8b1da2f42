from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.nodes import Nodes, running

if TYPE_CHECKING:
    from collections.abc import Iterator

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
