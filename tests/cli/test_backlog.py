"""A broker that starts with a backlog of single messages: it serves, and stays alive."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

import nexo
from nexo.engine.engine import Engine
from nexo.journal.sqlite import SqliteJournal
from tests.cli.commands import BrokerProcess
from tests.engine.rig import bodies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES = 450  # a row each: more than calls could nest when each was read inside the one before


async def publish_one_by_one(data: Path) -> None:
    engine = await Engine(SqliteJournal(data), events=None, new_incarnation=lambda: 1).open()
    topic = await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.create_queue("other")
    await engine.bind("t", "q")
    for number in range(MESSAGES):
        await topic.publish(bodies(str(number)))
    await engine.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    asyncio.run(publish_one_by_one(tmp_path / "data"))
    yield running.start()
    running.kill()


def test_a_subscriber_after_a_restart(broker: BrokerProcess) -> None:
    with nexo.connect(broker.url) as client:
        other = client.queue("other")
        with client.queue("q").subscribe(prefetch=1_000) as subscription:
            messages = iter(subscription)
            other.push(b"confirmed")
            got = [next(messages).body for _ in range(MESSAGES)]
            other.push(b"confirmed")
        assert got == [b"%d" % number for number in range(MESSAGES)]
        assert other.info().depth == 2
    with urlopen(f"http://127.0.0.1:{broker.http_port}/health") as answer:
        assert json.load(answer) == {"status": "ok"}
    status, _, logged = broker.stop()
    assert status == 0
    assert [json.loads(line)["message"] for line in logged.splitlines()][-1] == "stopped"
