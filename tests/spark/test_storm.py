"""Twenty minutes on a real cluster in which everything is killed at random: drivers, executors and
their Python processes, workers and the broker. Two queries take the messages of a queue each, into
Parquet and into a third queue; in the end every message is in its sink once.

The seed is printed, and taken from NEXO_KILL_SEED if that is set; NEXO_STORM_SECONDS makes it
shorter or longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

import pyarrow.parquet as pq
import pytest

import nexo
from tests.spark.cluster import HOST, ROOT, Cluster
from tests.spark.fast import FAST_JAVA
from tests.spark.stage import BrokerProcess, _committed_files

STORM_S = 20 * 60
BETWEEN_S = (4.0, 15.0)  # two kills
PUSH_EVERY_S, PUSHED_AT_ONCE = 0.2, 50
END_S = 600.0  # how long what is left may take once nothing is killed any more
EXECUTOR_S = 60.0  # how long to look for one to kill: each dies with its driver and its worker
# Each once, in an order of chance, then all of them again: chance alone leaves some out for long.
TARGETS = ("broker", "driver", "executor", "executor", "executor's Python", "worker")


class Driver:
    """A query of `tests.spark.storm_query`, started again whenever it ends."""

    def __init__(self, directory: Path, name: str, arguments: dict[str, str]) -> None:
        self._log = directory / f"{name}.log"
        self._arguments = json.dumps(arguments)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **FAST_JAVA, "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.storm_query", self._arguments],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def watch(self) -> None:
        if self.process.poll() is not None:
            self.process = self._start()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log(self) -> str:
        return self._log.read_text()[-2_000:]


def at_work(directory: Path, program: str) -> list[int]:
    """The processes of this kind that work for our drivers: executors (`java`), and the Python
    that these have started. All of them run in the folders of the workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            is_ours = str((process / "cwd").readlink()).startswith(f"{directory}/worker-")
            if is_ours and (process / "comm").read_text().startswith(program):
                found.append(int(process.name))
    return found


class Producer(threading.Thread):
    """Pushes numbered texts to both queues until it is told to end; remembers what is confirmed."""

    def __init__(self, url: str, queues: list[str]) -> None:
        super().__init__(name="producer")
        self._url = url
        self._queues = queues
        self.over = threading.Event()
        self.pushed: list[str] = []

    def run(self) -> None:
        with nexo.connect(self._url, timeout=120) as client:
            while not self.over.wait(PUSH_EVERY_S):
                first = len(self.pushed)
                texts = [f"m{number}" for number in range(first, first + PUSHED_AT_ONCE)]
                for name in self._queues:
                    client.queue(name).push_batch(texts)
                self.pushed += texts


@pytest.mark.soak
@pytest.mark.timeout(STORM_S + int(END_S) + 300)
def test_everything_is_killed_for_twenty_minutes(tmp_path: Path) -> None:
    seed = int(os.environ.get("NEXO_KILL_SEED") or SystemRandom().randrange(2**32))
    storm_s = float(os.environ.get("NEXO_STORM_SECONDS") or STORM_S)
    print(f"seed {seed}: repeat with NEXO_KILL_SEED={seed}")  # noqa: T201
    random, kills = Random(seed), Counter[str]()
    order: list[str] = []
    broker = BrokerProcess(tmp_path / "data")
    client = nexo.connect(broker.url, timeout=120)
    for name in ("to-files", "to-queue", "arrived"):
        client.create_queue(name)
    common = {"endpoint": broker.url, "driver_host": HOST}
    # Executors are killed again and again, and the master must not lose patience with a driver.
    patience = {"SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1"}
    with Cluster(tmp_path, 2, patience) as cluster:
        drivers = [
            Driver(
                tmp_path,
                name,
                {
                    **common,
                    "master": cluster.url,
                    "queue": name,
                    "checkpoint": str(tmp_path / f"checkpoint-{name}"),
                    **sink,
                },
            )
            for name, sink in (
                ("to-files", {"out": str(tmp_path / "out")}),
                ("to-queue", {"to": "arrived"}),
            )
        ]
        producer = Producer(broker.url, ["to-files", "to-queue"])
        producer.start()
        try:
            until = time.monotonic() + storm_s
            while time.monotonic() < until:
                time.sleep(random.uniform(*BETWEEN_S))
                order = order or random.sample(TARGETS, len(TARGETS))
                kills[_strike(order.pop(), random, broker, drivers, cluster, tmp_path)] += 1
                for driver in drivers:
                    driver.watch()
        finally:
            producer.over.set()
            producer.join()
        print(f"{sum(kills.values())} kills: {dict(kills)}; {len(producer.pushed):,} pushed")  # noqa: T201
        try:
            _wait_for_the_end(client, drivers, len(producer.pushed))
        finally:
            for driver in drivers:
                driver.kill()
    try:
        _check("Parquet", _in_files(tmp_path / "out"), producer.pushed, drivers[0])
        arrived = [message.text for message in _all_of(client.queue("arrived"))]
        _check("the queue", arrived, producer.pushed, drivers[1])
    finally:
        client.close()
        broker.stop()
    missed = set(TARGETS) - set(kills)
    assert not missed or sum(kills.values()) < 2 * len(TARGETS), f"never killed: {missed}"


def _strike(
    what: str,
    random: Random,
    broker: BrokerProcess,
    drivers: list[Driver],
    cluster: Cluster,
    directory: Path,
) -> str:
    if what == "broker":
        broker.process.kill()
    elif what == "driver":
        random.choice(drivers).kill()
    elif what == "worker":
        cluster.replace_worker(random.randrange(2))
    else:
        program = "java" if what == "executor" else "python"
        until = time.monotonic() + EXECUTOR_S
        while not (found := at_work(directory, program)):
            if time.monotonic() > until:
                return "nobody"
            for driver in drivers:
                driver.watch()
            time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
            os.kill(random.choice(found), signal.SIGKILL)
    return what


def _wait_for_the_end(client: nexo.Client, drivers: list[Driver], count: int) -> None:
    until = time.monotonic() + END_S
    while True:
        infos = [client.queue(name).info() for name in ("to-files", "to-queue")]
        if all((info.depth, info.acked) == (0, count) for info in infos):
            return
        for driver in drivers:
            driver.watch()
        logs = "\n".join(driver.log() for driver in drivers)
        assert time.monotonic() < until, f"it does not end: {infos}\n{logs}"
        time.sleep(1)


def _in_files(out: Path) -> list[str]:
    found: list[str] = []
    for file in _committed_files(out / "_spark_metadata"):
        found += pq.read_table(file, columns=["text"])["text"].to_pylist()
    return found


def _all_of(queue: nexo.Queue) -> list[nexo.Message]:
    found: list[nexo.Message] = []
    while got := queue.pop_batch(10_000):
        found += got
    return found


def _check(where: str, found: list[str], pushed: list[str], driver: Driver) -> None:
    counted = Counter(found)
    lost = sorted(set(pushed) - counted.keys())
    doubled = sorted(text for text, count in counted.items() if count > 1)
    assert not lost, f"{len(lost)} are not in {where}: {lost[:10]}\n{driver.log()}"
    assert not doubled, f"{len(doubled)} are twice in {where}: {doubled[:10]}\n{driver.log()}"
    assert len(found) == len(pushed), f"{where} has {len(found)}, not {len(pushed)}"
