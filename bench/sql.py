"""`nexo sql`: from the command to its answer on a hundred thousand messages, and what a queue many
times as large costs in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import nexo
from bench.result import Result
from bench.rpc import ROUNDS, running_broker

if TYPE_CHECKING:
    from nexo import Client

MESSAGES = 100_000
HUGE_MESSAGES = 1_000_000
HUGE_BODY_BYTES = 500  # half a gigabyte in all
STATEMENT = "SELECT count(*) AS n, avg((text->>'amount')::int) AS mean FROM {queue}"
NEXO = str(Path(sys.executable).with_name("nexo"))


def run(directory: Path) -> list[Result]:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            _fill(client, "orders", MESSAGES, 0)
            _fill(client, "huge", HUGE_MESSAGES, HUGE_BODY_BYTES)
        asked = [_ask(broker.url, "orders") for _ in range(ROUNDS)]
        huge_s, _, huge_bytes = _ask(broker.url, "huge")
    shutil.rmtree(directory, ignore_errors=True)
    took_s, cpu_s, peak_bytes = (min(figures) for figures in zip(*asked, strict=True))
    stored = f"{HUGE_MESSAGES // 1_000_000}M messages of {HUGE_BODY_BYTES} bytes"
    return [
        Result(f"nexo sql on {MESSAGES:,} messages", took_s * 1000, "ms", 1_000, "most"),
        Result("its CPU time", cpu_s * 1000, "ms", 1_000, "most"),
        Result(f"nexo sql on {stored}", huge_s, "s"),
        Result("memory beyond that for the small one", (huge_bytes - peak_bytes) / 2**20, "MB",
               256, "most"),
    ]  # fmt: skip


def _fill(client: Client, name: str, count: int, body_bytes: int) -> None:
    queue = client.create_queue(name)
    space = b" " * body_bytes
    for start in range(0, count, 10_000):
        numbers = range(start, start + 10_000)
        queue.push_batch([b'{"id": %d, "amount": %d}%b' % (n, n % 97, space) for n in numbers])


def _ask(url: str, queue: str) -> tuple[float, float, int]:
    """Seconds on the clock, of CPU, and the most memory that it had at once."""
    began = perf_counter()
    process = subprocess.Popen(
        [NEXO, "sql", STATEMENT.format(queue=queue)],
        env={**os.environ, "NEXO_URL": url},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    took_s = perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"nexo sql left with {process.returncode}"
    return took_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
