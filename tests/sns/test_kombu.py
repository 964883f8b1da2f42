"""Fanout of kombu's SQS transport, which publishes to SNS: by itself, and under Celery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker
    from tests.sns.rig import Rig

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {
    "is_secure": False,
    "region": "us-east-1",
    "supports_fanout": True,
    "wait_time_seconds": 1,
    "polling_interval": 0.1,
}


def url(broker: Broker) -> str:
    return broker.sqs_url.replace("http://", "sqs://test:secret@") + "//"


def test_every_queue_of_a_fanout_exchange_gets_a_message(broker: Broker, rig: Rig) -> None:
    exchange = Exchange(rig.name, type="fanout")
    queues = [Queue(f"{rig.name}-{which}", exchange=exchange) for which in "ab"]
    got: list[tuple[str, Any]] = []
    with Connection(url(broker), transport_options=OPTIONS) as connection:
        channel = connection.channel()
        for queue in queues:
            name = queue.name

            def receive(body: Any, message: Any, name: str = name) -> None:
                got.append((name, body))
                message.ack()

            Consumer(channel, [queue], callbacks=[receive]).consume()
        producer = Producer(channel, exchange=exchange)
        for number in range(3):
            producer.publish({"number": number})
        while len(got) < 6:
            connection.drain_events(timeout=20)
        assert sorted(got, key=str) == [
            (queue.name, {"number": number}) for queue in queues for number in range(3)
        ]
        arn = rig.topic()  # it is that of the exchange
        subscribed = rig.sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
        assert [each["Endpoint"].rpartition(":")[2] for each in subscribed] == [
            queue.name for queue in queues
        ]


def test_subscriptions_without_a_queue_are_cleaned_up(broker: Broker, rig: Rig) -> None:
    exchange = Exchange(rig.name, type="fanout")
    with Connection(url(broker), transport_options=OPTIONS) as connection:
        channel = connection.channel()
        Queue(f"{rig.name}-a", exchange=exchange)(channel).declare()
        rig.sqs.delete_queue(QueueUrl=rig.queue("-a").url)
        channel.remove_stale_sns_subscriptions(rig.name)
        subscribed = rig.sns.list_subscriptions_by_topic(TopicArn=rig.topic())
        assert subscribed["Subscriptions"] == []


@contextmanager
def workers(names: str, environment: dict[str, str], folder: Path) -> Iterator[None]:
    running = []
    for name in names:
        command = [sys.executable, "-m", "celery", "-A", "tests.sns.celery_application", "worker"]
        command += ["--pool", "solo", "--hostname", name, "--without-gossip", "--without-mingle"]
        command += ["--without-heartbeat", "-l", "INFO"]
        with (folder / f"{name}.log").open("wb") as log:
            given = {**environment, "CELERY_WORKER": name}
            running.append(subprocess.Popen(command, env=given, cwd=folder, stdout=log, stderr=log))
    try:
        yield
    finally:
        for worker in running:
            worker.send_signal(signal.SIGTERM)
        for worker in running:
            try:
                worker.wait(15)
            finally:
                worker.kill()
                worker.wait()


def test_a_broadcast_reaches_every_worker(broker: Broker, rig: Rig, tmp_path: Path) -> None:
    results = tmp_path / "results.txt"
    results.touch()
    environment = {
        **os.environ,
        "CELERY_BROKER": url(broker),
        "CELERY_PREFIX": rig.name,
        "CELERY_RESULTS": str(results),
        "PYTHONPATH": str(ROOT),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CELERY_BROKER", "CELERY_PREFIX", "CELERY_RESULTS"):
            patch.setenv(name, environment[name])
        from tests.sns.celery_application import EXCHANGE, app, everywhere

        def logs() -> str:
            return "\n".join(each.read_text() for each in sorted(tmp_path.glob("*.log")))

        with workers("ab", environment, tmp_path):
            give_up = time.monotonic() + 60
            while logs().count(" ready.") < 2:
                assert time.monotonic() < give_up, logs()
                time.sleep(0.05)
            everywhere.apply_async((7,), declare=[EXCHANGE])
            while len(results.read_text().splitlines()) < 2:
                assert time.monotonic() < give_up, logs()
                time.sleep(0.05)
        app.close()
    assert sorted(results.read_text().splitlines()) == ["a 7", "b 7"]
