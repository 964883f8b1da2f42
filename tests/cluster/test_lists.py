"""Lists while shards move: each queue once, whoever has it at that moment."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING

import nexo
from tests.cli.commands import Nexo
from tests.cluster.test_one_address import sqs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.nodes import Nodes

    Way = Callable[[Nodes, str], list[str]]

QUEUES = sorted(f"queue{each}" for each in range(40))


def by_native(nodes: Nodes, name: str) -> list[str]:
    with nexo.connect(nodes[name].url, timeout=60) as client:
        return [each.name for each in client.queues()]


def by_export(nodes: Nodes, name: str) -> list[str]:
    with nexo.connect(nodes[name].url, timeout=60) as client:
        return [each.name for each in client.export_definitions().queues]


def by_sdk(nodes: Nodes, name: str) -> list[str]:
    return [url.rpartition("/")[2] for url in sqs(nodes, name).list_queues()["QueueUrls"]]


def by_api(nodes: Nodes, name: str) -> list[str]:
    url = f"http://127.0.0.1:{nodes[name].http_port}/api/v1/queues"
    with urllib.request.urlopen(url) as answer:
        return [each["name"] for each in json.loads(answer.read())["queues"]]


def test_lists_are_complete_while_shards_move(moving: Nodes, tmp_path: Path) -> None:
    run, ended = Nexo(tmp_path, moving["a"].url), threading.Event()
    wrong: list[str] = []
    ways: list[Way] = [by_native, by_export, by_sdk, by_api]
    counts: Counter[Way] = Counter()

    def look(way: Way) -> None:
        while not ended.is_set():
            for name in "ab":
                found = way(moving, name)
                counts[way] += 1
                if sorted(found) != QUEUES:
                    lost, twice = set(QUEUES) - set(found), len(found) - len(set(found))
                    wrong.append(f"{way.__name__} at {name}: {len(lost)} lost, {twice} twice")

    with nexo.connect(moving["a"].url) as client:
        for queue in QUEUES:
            client.create_queue(queue)
    looking = [threading.Thread(target=look, args=(way,)) for way in ways]
    for thread in looking:
        thread.start()
    try:
        for _ in range(2):
            moving.start("c")
            run("cluster", "drain", "b")
            run("cluster", "rebalance")
            moving.processes.pop("c").stop()
            moving.settle()
    finally:
        ended.set()
        for thread in looking:
            thread.join()
    assert wrong == []
    assert set(counts) == set(ways)
