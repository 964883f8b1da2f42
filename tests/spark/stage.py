"""Everything that a test with killed processes needs: a broker that can be killed and comes back,
drivers in processes of their own, and a look at what they left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

import nexo
from tests.spark.fast import FAST_JAVA
from tests.spark.query import Errand
from tests.spark.striking import VARIABLE, Point, Strike

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DRIVER_S = 240.0  # a driver that takes longer hangs


class BrokerProcess:
    """A broker that starts again on the same data and port as soon as it is killed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.port = 0
        self.kills = 0
        self._ending = False
        self.process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="broker-watcher")
        self._watcher.start()

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._ending = True
        self.process.kill()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            if self._ending:
                return
            self.kills += 1
            self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        arguments = [str(self._data), str(self.port)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.client.broker_process", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        self.port = int(process.stdout.readline())
        return process


class Stage:
    """A broker with a queue, and a query that empties it into Parquet."""

    def __init__(self, directory: Path, **errand: Any) -> None:
        self._directory = directory
        self.broker = BrokerProcess(directory / "data")
        self.errand = Errand(
            endpoint=self.broker.url,
            queue="orders",
            checkpoint=str(directory / "checkpoint"),
            out=str(directory / "out"),
            **errand,
        )
        self.client = nexo.connect(self.broker.url)
        self.queue = self.client.create_queue("orders")
        self._strikes = 0

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *failure: object) -> None:
        self.client.close()
        self.broker.stop()

    def push(self, texts: list[str]) -> None:
        self.queue.push_batch(texts)

    def run(self, *strikes: Strike) -> int:
        """A driver from its start to its end; returns its exit code."""
        environment = {**os.environ, **FAST_JAVA, "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
        log = (self._directory / "driver.log").open("a")
        driver = subprocess.Popen(
            [sys.executable, "-c", _WAIT_FOR_STRIKES],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,  # it leads a process group, so all of it can be killed
        )
        assert driver.stdin is not None
        told = [self._told(strike, driver.pid) for strike in strikes]
        driver.stdin.write(f"{msgspec.json.encode(told).decode()}\n")
        driver.stdin.write(f"{msgspec.json.encode(self.errand).decode()}\n")
        driver.stdin.close()
        try:
            code = driver.wait(DRIVER_S)
        finally:
            driver.kill()
            log.close()
        for strike in told:
            assert Path(strike.marker).exists(), f"not struck: {strike}\n{self.log()}"
        return code

    def kill_driver(self, point: Point, batch: int) -> None:
        """A driver that ends at this point, and not in any other way."""
        code = self.run(Strike(point, batch))
        if point is Point.WRITTEN:
            assert code != 0, "the commits log could not be written, and the query went on"
            self._clear_the_way()
        else:
            assert code == -9, f"the driver ended with {code}\n{self.log()}"

    def kill_broker(self, point: Point, batch: int, *others: Strike) -> None:
        """A driver that does its work although the broker is killed at this point."""
        kills = self.broker.kills
        code = self.run(Strike(point, batch, process=self.broker.process.pid), *others)
        assert code == 0, f"the query did not outlive the broker\n{self.log()}"
        assert self.broker.kills == kills + 1

    def rows(self) -> list[str]:
        """What is in the sink, by the log that decides what is in it."""
        found: list[str] = []
        for file in _committed_files(Path(self.errand.out) / "_spark_metadata"):
            found += pq.read_table(file, columns=["text"])["text"].to_pylist()
        return found

    def check(self, pushed: list[str]) -> None:
        """Every message is in the sink once, and nothing is left of it in the queue."""
        found = Counter(self.rows())
        lost = sorted(set(pushed) - found.keys())
        doubled = sorted(text for text, count in found.items() if count > 1)
        assert not lost, f"{len(lost)} lost: {lost[:10]}\n{self.log()}"
        assert not doubled, f"{len(doubled)} doubled: {doubled[:10]}\n{self.log()}"
        assert len(found) == len(pushed)
        info = self.queue.info()
        assert (info.depth, info.in_flight, info.acked) == (0, 0, len(pushed)), info

    def log(self) -> str:
        return (self._directory / "driver.log").read_text()[-3_000:]

    def _told(self, strike: Strike, group: int) -> Strike:
        self._strikes += 1
        return msgspec.structs.replace(
            strike,
            group=0 if strike.process else group,
            checkpoint=self.errand.checkpoint,
            marker=str(self._directory / f"struck-{self._strikes}"),
        )

    def _clear_the_way(self) -> None:
        commits = Path(self.errand.checkpoint) / "commits"
        commits.unlink()
        commits.with_name("commits-kept").rename(commits)


# A strike names the process group of the driver, which is not known before it runs.
_WAIT_FOR_STRIKES = f"""
import os, sys
strikes, errand = sys.stdin.readline().strip(), sys.stdin.readline().strip()
os.environ[{VARIABLE!r}] = strikes
os.execv(sys.executable, [sys.executable, "-m", "tests.spark.query", errand])
"""


def _committed_files(log: Path) -> Iterator[str]:
    """The files of a file sink, by its own log: the last compacted entry and those after it."""
    entries = [each for each in log.iterdir() if each.name.split(".")[0].isdigit()]
    compacted = [int(each.name.split(".")[0]) for each in entries if each.suffix == ".compact"]
    begin = max(compacted, default=-1)
    for entry in sorted(entries, key=lambda each: int(each.name.split(".")[0])):
        number, is_compact = int(entry.name.split(".")[0]), entry.suffix == ".compact"
        if number > begin or (number == begin and is_compact):
            for line in entry.read_text().splitlines()[1:]:
                yield json.loads(line)["path"].removeprefix("file://")
