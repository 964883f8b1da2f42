"""`kill -9` of a broker under load, again and again: nothing confirmed is lost or done twice.

The seed decides what the load does and when the end comes; what happens in between is the
machine's. It is printed, and taken from NEXO_KILL_SEED if that is set.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker
from tests.e2e.load import WORK, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.engine.engine import Engine
    from nexo.vocabulary.message import Message
    from tests.postgresql import PostgresqlServer

ROOT = Path(__file__).resolve().parents[2]
LIVES = 8
LIFE_S = (0.05, 1.6)  # from the moment that the broker is ready


class Ledger:
    """What the children told, in the order in which they told it."""

    def __init__(self) -> None:
        self.pushed: set[str] = set()
        self.published: set[str] = set()
        self.acking: dict[str, set[str]] = {"work": set(), "copy": set()}
        self.acked: dict[str, set[str]] = {"work": set(), "copy": set()}
        self.returned: list[str] = []  # acked, and delivered again all the same
        self.broken: list[str] = []
        self.lines = 0
        self.next_number = 1

    def note(self, line: str) -> None:
        self.lines += 1
        kind, _, key = line.partition(" ")
        verb, _, queue = kind.partition("-")
        if key.startswith("BROKEN"):
            self.broken.append(key)
        if verb == "pushed":
            self.pushed.add(key)
            if key.startswith("numbered."):
                self.next_number = int(key.split(".")[1]) + 1
        elif verb == "published":
            self.published.add(key)
        elif verb == "acking":
            self.acking[queue].add(key)
        elif verb == "acked":
            self.acked[queue].add(key)
        elif verb == "got" and key in self.acked[queue]:
            self.returned.append(f"{queue}: {key}")


def live(place: str, life: int, seed: int, ledger: Ledger, life_s: float) -> None:
    """One life of the broker, ended by `kill -9`; what it told stands in the ledger then."""
    arguments = [place, str(life), str(seed), str(ledger.next_number)]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.load", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        ready = child.stdout.readline()
        assert ready.startswith("ready"), f"life {life} did not begin: {child.stderr.read()}"
        reader = threading.Thread(target=_read, args=(child.stdout, ledger))
        reader.start()
        time.sleep(life_s)
        assert child.poll() is None, f"life {life} ended by itself: {child.stderr.read()}"
    finally:
        child.kill()
        child.wait()
    reader.join()
    child.stdout.close()
    child.stderr.close()


def _read(lines: Iterable[str], ledger: Ledger) -> None:
    for line in lines:
        if line.endswith("\n"):  # the last one may be cut
            ledger.note(line.rstrip("\n"))


def drain(place: str) -> dict[str, list[Message]]:
    """Everything that is left in the queues, once no delivery of a former life is out any more."""

    async def empty(engine: Engine) -> dict[str, list[Message]]:
        async with asyncio.timeout(20):
            while any(queue.info().in_flight for queue in engine.queues.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # nobody tells when a lease has ended
        left: dict[str, list[Message]] = {}
        for name, queue in engine.queues.items():
            found = left[name] = []
            while (delivery := await queue.pop(1_000, one_ack=True)).parts:
                messages = queue.messages(delivery)
                found += messages
                for part in delivery.parts:
                    await queue.ack(delivery.lease, part.first, part.first + part.count)
        return left

    with broker(place) as running:
        return running.call(empty)


def published_in(place: str) -> list[str]:
    async def read(engine: Engine) -> list[str]:
        topic, keys, offset = engine.topic("news"), [], 0
        while (reading := await topic.read(offset, 1_000)).parts:
            offset = reading.next
            for part in reading.parts:
                content = part.content
                for index in range(part.index, part.index + part.count):
                    low, high = content.offsets[index], content.offsets[index + 1]
                    keys.append(key_of(bytes(content.payload[low:high])))
        return keys

    with broker(place) as running:
        return running.call(read)


def twice(keys: list[str]) -> list[str]:
    return [key for key, count in Counter(keys).items() if count > 1]


@pytest.fixture(params=["directory", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the broker keeps its journal."""
    if request.param == "directory":
        yield str(tmp_path)
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    with server.database("kills") as url:
        yield url


@pytest.mark.timeout(120)
def test_nothing_confirmed_is_lost_or_comes_back(place: str) -> None:
    seed = int(os.environ.get("NEXO_KILL_SEED") or SystemRandom().randrange(2**32))
    print(f"seed {seed}: repeat with NEXO_KILL_SEED={seed}")  # noqa: T201
    random, ledger = Random(seed), Ledger()
    for life in range(LIVES):
        live(place, life, seed, ledger, random.uniform(*LIFE_S))
    messages = drain(place)
    left = {name: [key_of(each.body) for each in found] for name, found in messages.items()}
    work, copy, graves = left["work"], left["copy"], left["work_dlq"]
    acked, told = ledger.acked, f"seed {seed}, {ledger.lines} lines"
    assert not ledger.broken, told
    assert not [key for keys in left.values() for key in keys if key.startswith("BROKEN")], told
    assert not ledger.returned, f"acked, and delivered again ({told})"

    lost = ledger.pushed - ledger.acking["work"] - set(work) - set(graves)
    assert not lost, f"pushed, never acked, and gone ({told})"
    assert not acked["work"] & {*work, *graves}, f"acked, and still there ({told})"
    assert not twice(work + graves), f"in two places ({told})"

    assert not ledger.published - ledger.acking["copy"] - set(copy), f"published, gone ({told})"
    assert not acked["copy"] & set(copy), f"acked, and still there ({told})"
    assert not twice(copy), told
    kept = published_in(place)
    assert not ledger.published - set(kept), f"published, not in the topic ({told})"
    assert not twice(kept), told

    for message in messages["work_dlq"]:
        fate = message.dead_letter
        assert fate is not None, (message, told)
        assert (fate.source, fate.attempts) == ("work", WORK.max_attempts), (message, told)
    # The test is worth nothing unless much happened.
    assert len(acked["work"]) > 500, told
    assert len(acked["copy"]) > 200, told
    assert len(graves) > 10, told
    assert ledger.next_number > 20, told
