"""SIGTERM ends a broker within its time, whatever is stuck, and nothing confirmed is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nexo
from nexo.engine.engine import Engine
from nexo.journal.sqlite import SqliteJournal
from nexo.server.broker import Broker
from nexo.server.configuration import Configuration
from nexo.server.service import STUCK
from nexo.vocabulary.limits import LAST_WORDS_S, STOP_S
from tests.client.eventually import eventually

if TYPE_CHECKING:
    import pytest

SCRIPT = Path(__file__).with_name("stuck_broker.py")
TIME_LIMIT_S = 30  # far above what it takes: a broker that hangs would take for ever


class StuckBroker:
    def __init__(self, how: str, folder: Path) -> None:
        self.how = how
        self.data = folder / how
        self._ports = folder / f"{how}.json"
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), how, str(self.data), str(self._ports)],
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        give_up = time.monotonic() + TIME_LIMIT_S
        while not self._ports.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < give_up
            time.sleep(0.01)
        return f"nexo://127.0.0.1:{json.loads(self._ports.read_text())['rpc']}"

    def get_stuck(self) -> None:
        """From the second commit on."""
        with nexo.connect(self.url(), timeout=20) as client:
            client.create_queue("orders").push("confirmed")
            (self.data / "stuck").touch()
            client._connection._timeout = 0.3
            with contextlib.suppress(nexo.NexoError):
                client.queue("orders").push("never confirmed")
        eventually((self.data / "waits").exists)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def test_a_broker_whose_commits_do_not_come_ends_all_the_same(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        brokers = [StuckBroker(how, tmp_path) for how in ("loop", "thread", "silent", "logs")]
        for broker in brokers:
            stack.callback(broker.close)
        for broker in brokers:
            broker.get_stuck()
            broker.process.send_signal(signal.SIGTERM)
        for broker in brokers:
            assert broker.process.wait(TIME_LIMIT_S) == STUCK, broker.how  # before the log is read
            assert broker.process.stderr is not None
            _check_log(broker.how, broker.process.stderr.read())
    for broker in brokers:
        asyncio.run(_check_journal(broker.data))


def _check_log(how: str, log: str) -> None:
    if how != "logs":  # there nobody could read on
        last = json.loads(log.splitlines()[-1])
        assert last["message"] == "not stopped in time"
        seen = [last["doing"], *last["threads"].values()]
        assert last["doing"] != "start"
        wanted = "write what waits" if how == "silent" else "stuck_commit"
        assert any(wanted in each for each in seen), seen


async def _check_journal(data: Path) -> None:
    engine = await Engine(SqliteJournal(data), new_incarnation=lambda: 1).open()
    delivery = await engine.queue("orders").pop()
    assert delivery.count == 1
    await engine.close()


def test_doors_say_goodbye_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose clients do not hang up takes nothing from the time of the others."""
    monkeypatch.setattr("nexo.server.broker.GOODBYE_S", 5.0)
    closed = []

    async def stop() -> None:
        together = asyncio.Event()
        asked = []

        class Door:
            async def close(self) -> None:
                asked.append(self)
                if len(asked) == 3:
                    together.set()
                await together.wait()
                closed.append(self)

        broker = Broker(Configuration())
        broker._http, broker._rpc, broker._udp = Door(), Door(), Door()  # type: ignore[assignment]
        await broker.stop()

    asyncio.run(stop())
    assert len(closed) == 3


def test_systemd_waits_longer_than_the_broker_takes() -> None:
    unit = (Path(__file__).parents[2] / "ops/systemd/nexo.service").read_text(encoding="utf-8")
    found = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > STOP_S + LAST_WORDS_S
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
    assert f"within {STOP_S:.0f} s" in page
    assert f"exit code {STUCK}" in page
