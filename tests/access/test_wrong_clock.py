"""A clock that was wrong once: one start a day ahead, and then the clock is right again."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.engine.clock import SystemClock
from nexo.engine.engine import Engine
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.batch import batch_of
from tests.access.guarded import GuardedBroker
from tests.cli.commands import BrokerProcess, Nexo
from tests.compliance.clients import client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400.0
HALF_A_DAY_MS = 12 * 3_600_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a broker left that ran with a clock a day ahead."""

    async def run() -> None:
        clock = SystemClock(wall=lambda: time.time() + DAY_S)
        engine = Engine(SqliteJournal(tmp_path / "data"), clock=clock, new_incarnation=lambda: 1)
        await engine.open()
        queue = await engine.create_queue("orders")
        await queue.push(batch_of([b"from tomorrow"]))
        await engine.close()

    asyncio.run(run())
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[GuardedBroker]:
    guarded = GuardedBroker(data=str(data))
    yield guarded
    guarded.stop()


def test_nobody_is_shut_out(broker: GuardedBroker) -> None:
    assert broker.engine.clock_ahead_ms() == pytest.approx(DAY_S * 1000, abs=60_000)
    key = broker.mint("*:*", aws=True, expires_after_ms=HALF_A_DAY_MS)
    sqs = client(broker.http, key=key.access_key_id, secret=key.secret_access_key)
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]  # signed by the clock of today
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "from tomorrow"
    token = broker.mint("*:*", expires_after_ms=HALF_A_DAY_MS)
    assert token.defined.expires_ms == pytest.approx(time.time() * 1000 + HALF_A_DAY_MS, abs=60_000)
    with nexo.connect(broker.url, token=token.token) as connected:
        connected.create_queue("today")
    (entry,) = broker.audit(1)
    assert entry.at_ms == pytest.approx(time.time() * 1000, abs=60_000)


def test_timeouts_go_on(broker: GuardedBroker) -> None:
    token = broker.mint("*:*").token
    with nexo.connect(broker.url, token=token) as connected:
        orders = connected.queue("orders")
        assert orders.pop_batch(1, visibility_timeout=0.2)
        again = orders.pop(wait=20)
        assert again is not None
        assert again.attempts == 2


def test_it_is_told(broker: GuardedBroker, tmp_path: Path) -> None:
    token = broker.mint("*:*").token
    request = urllib.request.Request(
        f"{broker.http}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as answer:
        (line,) = [
            line
            for line in answer.read().decode().splitlines()
            if line.startswith("nexo_clock_ahead_seconds ")
        ]
    assert float(line.split()[1]) == pytest.approx(DAY_S, abs=60)
    checks = Nexo(tmp_path, broker.url)(
        "doctor", "--json", environment={"NEXO_TOKEN": token}
    ).json()["checks"]
    assert any("the broker's queues is 86,4" in each["detail"] for each in checks), checks


def test_it_is_logged(data: Path) -> None:
    running = BrokerProcess(data.parent).start()
    assert running.process is not None
    assert running.process.stdout is not None
    for line in running.process.stdout:
        if line.startswith("ready"):
            break  # from here on it looks at its clock before it takes a signal
    status, _, log = running.stop()
    assert status == 0
    warnings = [
        line
        for line in map(json.loads, log.splitlines())
        if "the clock of queues" in line["message"]
    ]
    assert [each["level"] for each in warnings] == ["warning"]
    assert warnings[0]["by_s"] == pytest.approx(DAY_S, abs=60)


def test_doctor_tells_it_of_a_stopped_broker(data: Path, tmp_path: Path) -> None:
    checks = Nexo(tmp_path)("doctor", "--data", data, "--json").json()["checks"]
    details = [each["detail"] for each in checks if each["name"] == "clock"]
    assert any("the clock of the journal is 86," in each for each in details), checks
