"""`nexo sql`: from the command to its answer on a hundred thousand messages."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import nexo
from bench.result import Result
from bench.rpc import ROUNDS, running_broker

MESSAGES = 100_000
STATEMENT = "SELECT count(*) AS n, avg((text->>'amount')::int) AS mean FROM orders"
NEXO = str(Path(sys.executable).with_name("nexo"))


def run(directory: Path) -> list[Result]:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            orders = client.create_queue("orders")
            for start in range(0, MESSAGES, 10_000):
                numbers = range(start, start + 10_000)
                orders.push_batch([b'{"id": %d, "amount": %d}' % (n, n % 97) for n in numbers])
        took_s, cpu_s = [], []
        for _ in range(ROUNDS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = perf_counter()
            subprocess.run(
                [NEXO, "sql", STATEMENT],
                env={**os.environ, "NEXO_URL": broker.url},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            took_s.append(perf_counter() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    shutil.rmtree(directory, ignore_errors=True)
    return [
        Result(f"nexo sql on {MESSAGES:,} messages", min(took_s) * 1000, "ms", 1_000, "most"),
        Result("its CPU time", min(cpu_s) * 1000, "ms", 1_000, "most"),
    ]
