"""Through Spark Connect, and inside a declarative pipeline: programs of their own, because a
process speaks to one kind of Spark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyspark
import pytest

from nexo.spark.sessions import prepare_environment
from tests.spark.fast import FAST, FAST_JAVA

if TYPE_CHECKING:
    from tests.spark.place import Place

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spark.md"
PROGRAM_S = 300.0


def run(place: Place, command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """A program to its end, and with it whatever it has started and left behind."""
    log = place.directory / "program.log"
    with log.open("w") as told:
        program = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **FAST_JAVA, **environment},
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
        try:
            code = program.wait(PROGRAM_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    assert code == 0, log.read_text()[-3_000:]


@pytest.mark.timeout(400)
def test_spark_connect(place: Place) -> None:
    arguments = [place.url, place.queue.name, str(place.directory)]
    run(place, [sys.executable, "-m", "tests.spark.connected", *arguments], ROOT, {})
    found = json.loads((place.directory / "found.json").read_text())
    assert found["session"] == "pyspark.sql.connect.session"
    assert (found["peeked"], found["texts"]) == (30, [str(number) for number in range(30)])
    place.assert_empty(30)


@pytest.mark.soak  # 30 s for a page that hardly changes
@pytest.mark.timeout(400)
def test_the_declarative_pipeline_of_the_page(place: Place) -> None:
    page = PAGE.read_text(encoding="utf-8")
    definition = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    flow = re.search(r"```python\n([^`]*@dp\.table.*?)```", page, re.DOTALL)
    assert definition is not None
    assert flow is not None
    place.queue.push_batch([f"order-{number}" for number in range(10)])
    folder = place.directory / "pipeline"
    (folder / "transformations").mkdir(parents=True)
    written = definition[1].replace("file:///var/lib/orders", f"file://{folder}/storage")
    (folder / "spark-pipeline.yml").write_text(written)
    source = flow[1].replace('"orders")', f'"{place.queue.name}")')
    (folder / "transformations" / "orders.py").write_text(source)
    settings = "".join(f"{key} {value}\n" for key, value in FAST.items())
    (folder / "spark-defaults.conf").write_text(settings)
    prepare_environment()
    spark_home = Path(pyspark.__file__).parent
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"NEXO_URL": place.url, "PATH": path, "SPARK_CONF_DIR": str(folder)}
    command = [str(spark_home / "bin" / "spark-pipelines"), "run"]
    run(place, command, folder, environment)
    files = [each for each in folder.rglob("*.parquet") if "_spark_metadata" not in str(each)]
    texts = [text for each in files for text in pq.read_table(each)["text"].to_pylist()]
    assert sorted(texts) == [f"order-{number}" for number in range(10)]
    place.assert_empty(10)
