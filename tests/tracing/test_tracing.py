"""Traces with the real SDK: one trace from push to handler, across the broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import nexo
from nexo.client import tracing
from nexo.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from nexo.testing import Broker

EXPORTER = InMemorySpanExporter()
LOOK = tracing.look


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    EXPORTER.clear()
    monkeypatch.setattr(tracing, "look", LOOK)
    with broker() as running:
        yield running
    tracing.tracer = None  # other tests are not traced


def spans() -> dict[str, ReadableSpan]:
    return {span.name: span for span in EXPORTER.get_finished_spans()}


def assert_one_trace(found: dict[str, ReadableSpan], outer: str, queue: str) -> None:
    assert len({span.context.trace_id for span in found.values() if span.context}) == 1
    way = [outer, f"send {queue}", f"deliver {queue}", f"process {queue}"]
    for parent, child in pairwise(way):
        context = found[parent].context
        assert context is not None
        above = found[child].parent
        assert above is not None, child
        assert above.span_id == context.span_id, child


def test_one_trace_from_push_to_handler(running: Broker) -> None:
    with running.client() as client:
        queue = client.create_queue("orders")
        with trace.get_tracer("test").start_as_current_span("checkout"):
            queue.push("hello", attributes={"tenant": "a"})
        message = queue.pop(wait=5)
        assert message is not None
        assert message.attributes["tenant"] == "a"
        with message, trace.get_tracer("test").start_as_current_span("work"):
            pass
    found = spans()
    assert_one_trace(found, "checkout", "orders")
    assert found["work"].parent is not None
    process = found["process orders"]
    assert process.context is not None
    assert found["work"].parent.span_id == process.context.span_id
    assert process.attributes is not None
    assert process.attributes["messaging.message.id"] == message.id
    deliver, send = found["deliver orders"], found["send orders"]
    assert deliver.start_time is not None
    assert send.start_time is not None
    assert deliver.start_time >= send.start_time - 1_000_000, "times of messages are milliseconds"


def test_the_async_twin_does_the_same(running: Broker) -> None:
    async def main() -> None:
        async with nexo.connect_async(running.url) as client:
            queue = await client.create_queue("orders")
            with trace.get_tracer("test").start_as_current_span("checkout"):
                await queue.push_batch([b"a"])
            message = await queue.pop(wait=5)
            assert message is not None
            async with message:
                pass

    asyncio.run(main())
    assert_one_trace(spans(), "checkout", "orders")


def test_a_failure_is_in_the_trace(running: Broker) -> None:
    with running.client() as client:
        queue = client.create_queue("orders")
        queue.push("hello")
        message = queue.pop(wait=5)
        assert message is not None
        with pytest.raises(ZeroDivisionError), message:
            1 / 0  # noqa: B018
        with pytest.raises(nexo.QueueNotFound):
            client.queue("nowhere").push("lost")
    found = spans()
    assert found["process orders"].status.status_code is trace.StatusCode.ERROR
    assert found["send nowhere"].status.status_code is trace.StatusCode.ERROR


def test_topics_carry_it_too(running: Broker) -> None:
    with running.client() as client:
        topic = client.create_topic("news")
        topic.bind("readers")
        with trace.get_tracer("test").start_as_current_span("checkout"):
            topic.publish("hello")
        message = client.queue("readers").pop(wait=5)
        assert message is not None
        with message:
            pass
    found = spans()
    assert len({span.context.trace_id for span in found.values() if span.context}) == 1


def test_the_header_of_aws_and_back() -> None:
    parent = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    assert tracing.aws_header(parent) == header
    assert tracing.parent_of(header) == parent
    assert tracing.parent_of("Root=1-5759e988-bd862e3fe1be46a994272793") is None
    assert tracing.parent_of("anything") is None


def test_a_message_from_sqs_continues_its_trace(running: Broker) -> None:
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    tracing.tracer = None
    with running.client() as client:
        tracing.tracer = None  # pushed by somebody who traces in AWS's way
        queue = client.create_queue("orders")
        queue.push("hello", attributes={tracing.AWS_HEADER: header})
        tracing.look()
        message = queue.pop(wait=5)
        assert message is not None
        with message:
            pass
    process = spans()["process orders"]
    assert process.context is not None
    assert f"{process.context.trace_id:032x}" == "5759e988bd862e3fe1be46a994272793"


def test_without_opentelemetry_nothing_of_it_is_loaded() -> None:
    program = textwrap.dedent(
        """
        import sys
        from nexo.testing import broker
        with broker() as running, running.client() as client:
            queue = client.create_queue("orders")
            queue.push("hello")
            message = queue.pop(wait=5)
            with message:
                pass
            assert message.attributes == {}
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_worker_continues_the_trace(running: Broker) -> None:
    with running.client() as client:
        queue = client.create_queue("orders", max_attempts=1)
        with trace.get_tracer("test").start_as_current_span("checkout"):
            queue.push("hello")
        handled: list[int] = []

        def handler(event: dict[str, object], context: object) -> None:
            handled.append(trace.get_current_span().get_span_context().trace_id)

        nexo.Worker(client, "orders", handler).run(idle=2.0)
    found = spans()
    assert_one_trace(found, "checkout", "orders")
    process = found["process orders"]
    assert process.context is not None
    assert handled == [process.context.trace_id]
