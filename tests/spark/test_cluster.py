"""A real cluster: one of its machines is lost in the middle of a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.spark.cluster import HOST, ROOT, Cluster
from tests.spark.stage import Stage
from tests.spark.striking import VARIABLE, Point, Strike

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"m{number}" for number in range(80)]


@pytest.mark.timeout(600)
def test_a_machine_lost_while_it_reads(tmp_path: Path) -> None:
    marker = tmp_path / "struck"
    strike = Strike(Point.READING, 2, machine=True, marker=str(marker))
    environment = {VARIABLE: msgspec.json.encode([strike]).decode()}
    with Cluster(tmp_path, 2, environment) as cluster:
        config = {
            "spark.driver.host": HOST,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT}/src",
        }
        with Stage(tmp_path, master=cluster.url, config=config) as stage:
            stage.push(TEXTS)
            assert stage.run() == 0, stage.log()
            assert marker.exists(), "nothing was struck"
            assert cluster.lost == 1, "the worker outlived it"
            stage.check(TEXTS)
