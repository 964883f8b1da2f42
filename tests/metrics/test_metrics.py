"""`/metrics` of a running broker, read as Prometheus does."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

import nexo
from nexo.spark.claims import Claims
from nexo.spark.link import Link
from nexo.spark.options import read_options
from nexo.telemetry.families import FAMILIES
from tests.compliance.broker import ServedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path_factory.mktemp("metrics")).start()
    with nexo.connect(served.native_url) as client:  # some families tell of queues only
        queue = client.create_queue("some")
        queue.push(b"a")
        message = queue.pop()
        assert message is not None
        message.ack()
    yield served
    served.kill()


def scraped(broker: ServedBroker) -> Samples:
    with urllib.request.urlopen(f"{broker.endpoint}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names)), "a family is told in pieces"
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_the_figures_of_a_queue(broker: ServedBroker) -> None:
    with nexo.connect(broker.native_url) as client:
        queue = client.create_queue("figures", max_attempts=2)
        queue.push_batch([b"a", b"b", b"c", b"d"])
        queue.push("later", delay=60)
        first, second, third = queue.pop_batch(3)
        first.ack()
        second.nack(delay=0)
        again = queue.pop()
        assert again is not None
        again.nack(delay=0, reason="broken")
        samples = scraped(broker)
        info = queue.info()
        assert (info.depth, info.in_flight) == (3, 1)
        for gauge in ("depth", "ready", "scheduled", "in_flight"):
            assert value(samples, f"nexo_queue_{gauge}", queue="figures") == getattr(info, gauge)
        for event in (
            "pushed",
            "delivered",
            "acked",
            "nacked",
            "timed_out",
            "expired",
            "dead_lettered",
        ):
            told = value(samples, "nexo_messages_total", queue="figures", event=event)
            assert told == getattr(info, event), event
        assert 0 < value(samples, "nexo_queue_oldest_age_seconds", queue="figures") < 30
        assert value(samples, "nexo_retries_total", queue="figures") == 1
        assert value(samples, "nexo_queue_wait_seconds_count", queue="figures") == 3
        assert value(samples, "nexo_queue_work_seconds_count", queue="figures") == 1
        assert value(samples, "nexo_queue_depth", queue="figures_dlq") == 1
        assert value(samples, "nexo_connections", door="rpc") == 1
        third.ack()


@contextmanager
def claiming(broker: ServedBroker, name: str) -> Iterator[nexo.Queue]:
    """A query of Spark holds two messages of this queue."""
    link = Link(read_options({"endpoint": broker.native_url, "queue": name}))
    with closing(link), nexo.connect(broker.native_url) as client:
        queue = client.create_queue(name)
        queue.push_batch([b"a", b"b", b"c"])
        claims = Claims(link, name, "query")
        assert claims.claim(0, 2, 10**6).messages == 2
        claims.seal(1, 2, 10**6)
        yield queue


def test_what_queries_of_spark_hold(broker: ServedBroker) -> None:
    held = {"queue": "claims", "consumer": "query"}
    with claiming(broker, "claims") as queue:
        samples = scraped(broker)
        assert value(samples, "nexo_queue_claimed", **held) == 2
        assert 0 <= value(samples, "nexo_queue_claimed_age_seconds", **held) < 60
        info = queue.info()
        assert info.claimed == {"query": 2}
        assert 0 <= info.claimed_age["query"] < 60
        assert queue.release("query") == 2
        assert queue.info().claimed == {"query": 0}
        assert ("nexo_queue_claimed", frozenset(held.items())) not in scraped(broker)
        queue.release("query", forget=True)
        assert queue.info().claimed == {}


def test_the_figures_of_the_broker(broker: ServedBroker) -> None:
    samples = scraped(broker)
    assert value(samples, "nexo_build_info", version=nexo.__version__) == 1
    assert value(samples, "nexo_read_only") == 0
    assert value(samples, "nexo_stored_bytes") > 0
    assert value(samples, "nexo_disk_free_bytes") > 0
    assert value(samples, "process_resident_memory_bytes") > 10_000_000
    assert value(samples, "nexo_commit_seconds_count") >= 1
    assert 0 < value(samples, "nexo_sync_seconds_sum") <= value(samples, "nexo_commit_seconds_sum")
    assert value(samples, "nexo_published_total", topic="nexo.events") > 0


def test_every_metric_is_on_the_page_and_the_other_way_round(broker: ServedBroker) -> None:
    with claiming(broker, "every-metric"):
        told = {name for name, _ in scraped(broker)}
    for suffix in ("_bucket", "_sum", "_count"):
        told = {name.removesuffix(suffix) for name in told}
    of_nodes = ("nexo_transfer_", "nexo_node_", "nexo_cluster_")
    assert told == {name for name in FAMILIES if not name.startswith(of_nodes)}


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/metrics", 405), ("GET", "/metrics/x", 404)]
)
def test_anything_else_is_refused(
    broker: ServedBroker, method: str, path: str, status: int
) -> None:
    asked = urllib.request.Request(f"{broker.endpoint}{path}", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked)
    with refused.value as answer:
        assert answer.code == status
