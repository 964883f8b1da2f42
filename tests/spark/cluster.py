"""A standalone cluster of Spark on this machine, of what the pip package brings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

from nexo.spark.java import java_home
from tests.client.eventually import eventually
from tests.postgresql import free_port
from tests.spark.fast import FAST_JAVA

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_S = 120.0


class Cluster:
    """A master and workers with a core each."""

    def __init__(self, directory: Path, workers: int, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = {
            **os.environ,
            **environment,
            **FAST_JAVA,
            "JAVA_HOME": java_home(),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{ROOT}:{ROOT}/src",
        }
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(free_port())]
        self._start("master", "org.apache.spark.deploy.master.Master", arguments)
        # A worker that finds no master asks again after ten seconds only.
        eventually(lambda: "I have been elected leader" in self.log("master"), START_S)
        for number in range(workers):
            self._start_worker(number)

    def __enter__(self) -> Self:
        eventually(lambda: self.log("master").count("Registering worker") >= 2, START_S)
        return self

    def __exit__(self, *failure: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()

    @property
    def lost(self) -> int:
        """How many of its processes have ended."""
        return sum(process.poll() is not None for process in self._processes)

    def replace_worker(self, number: int) -> None:
        """Kill a worker, and start another in its place."""
        worker = self._processes.pop(1 + number)
        worker.kill()
        worker.wait()
        self._start_worker(number)
        self._processes.insert(1 + number, self._processes.pop())

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def _start_worker(self, number: int) -> None:
        place = str(self._directory / f"worker-{number}")
        arguments = ["-c", "1", "-m", "1g", "-d", place, "--webui-port", str(free_port())]
        worker = [*arguments, "--host", HOST, self.url]
        self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", worker)

    def _start(self, name: str, main: str, arguments: list[str]) -> None:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [spark_class, main, *arguments],
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )
            )
