"""The console with thousands of queues: what a page takes, how soon a change shows, and what an
open page costs the broker. A page is open when its stream of changes is: no browser is needed."""

from __future__ import annotations

import asyncio
import http.client
import shutil
import time
import urllib.request
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import nexo
from bench.operations import QUEUES, create_queues
from bench.result import Result
from bench.rpc import ROUNDS, running_broker

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = 10
WATCHED_S = 10.0


def run(directory: Path) -> list[Result]:
    with running_broker(directory) as broker:
        asyncio.run(create_queues(broker.url))
        page_ms = _page_ms(f"http://127.0.0.1:{broker.ports.http}/console")
        stream = http.client.HTTPConnection("127.0.0.1", broker.ports.http)
        stream.request("GET", "/console/live/overview")
        open_page = stream.getresponse()
        assert open_page.status == 200
        open_page.read1()
        with nexo.connect(broker.url) as client:
            queue, took_ms = client.queue("queue-1"), []
            for _ in range(CHANGES):
                pushed = perf_counter()
                queue.push("one more")
                open_page.read1()  # only what changed is sent
                took_ms.append((perf_counter() - pushed) * 1000)
        before_s, _ = broker.usage()
        time.sleep(WATCHED_S)
        after_s, _ = broker.usage()
        stream.close()
    shutil.rmtree(directory, ignore_errors=True)
    share = 100 * (after_s - before_s) / WATCHED_S
    return [
        Result(f"overview of {QUEUES:,} queues", page_ms, "ms", 300, "most"),
        Result("a changed depth shows: the slowest", max(took_ms), "ms", 1_000, "most"),
        Result("an open page, the idle broker included", share, "% of a core", 1, "most"),
    ]


def _page_ms(address: str) -> float:
    took_ms = []
    for _ in range(ROUNDS):
        began = perf_counter()
        with urllib.request.urlopen(address) as answer:  # noqa: S310  our own broker
            answer.read()
        took_ms.append((perf_counter() - began) * 1000)
    return median(took_ms)
