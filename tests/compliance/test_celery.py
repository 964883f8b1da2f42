"""A Celery worker that knows nothing of Nexo, with SQS as its broker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Queue

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.compliance.celery_application"
TASKS = 5


@pytest.fixture
def protocol() -> str:
    """Of the client that looks at the queue."""
    return "json"


def test_a_worker(broker: ServedBroker, queue: Queue, tmp_path: Path) -> None:
    results = tmp_path / "results.txt"
    results.touch()
    environment = {
        **os.environ,
        "CELERY_BROKER": f"sqs://test:secret@127.0.0.1:{broker.http_port}//",
        "CELERY_QUEUE": queue.name,
        "CELERY_RESULTS": str(results),
        "PYTHONPATH": str(ROOT),
    }
    # Sent first: boto3 in the sender and pycurl in the worker meet the same queue.
    subprocess.run(
        [sys.executable, "-m", MODULE, str(TASKS)], env=environment, check=True, timeout=40
    )
    assert queue.counts()[0] == TASKS + 1
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", MODULE, "worker", "--pool", "solo",
             "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"],
            env=environment, stdout=output, stderr=output, cwd=tmp_path,
        )  # fmt: skip
    try:
        give_up = time.monotonic() + 30
        while len(results.read_text().splitlines()) < TASKS + 1:
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.05)
        while queue.counts() != (0, 0, 0):  # what was done is deleted
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.05)
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(15)
        finally:
            worker.kill()
            worker.wait()
    lines = sorted(results.read_text().splitlines())
    expected = [f"{number} + 1 = {number + 1}" for number in range(TASKS)]
    assert lines == sorted([*expected, "came through on try 2"])
