"""Handlers written with Powertools for AWS Lambda, unchanged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source

from tests.client.eventually import eventually
from tests.client.worker.letters import reasons

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

    import nexo


def test_a_batch_processor(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=3)
    queue.push_batch([{"id": number} for number in range(20)])
    processor = BatchProcessor(event_type=EventType.SQS)
    seen: Counter[int] = Counter()

    def record_handler(record: SQSRecord, lambda_context: LambdaContext) -> int:
        order: int = record.json_body["id"]
        seen[order] += 1
        assert lambda_context.get_remaining_time_in_millis() > 0
        if order % 10 == 7:
            raise ValueError(f"order {order} is bad")
        return order

    def lambda_handler(event: dict[str, Any], context: LambdaContext) -> Any:
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    running = work("q", lambda_handler)
    eventually(lambda: queue.info().dead_lettered == 2)
    eventually(lambda: queue.info().depth == 0)
    assert seen == {number: 3 if number % 10 == 7 else 1 for number in range(20)}
    assert running.stop().handled == 18


def test_a_batch_that_fails_whole(client: nexo.Client, work: Any) -> None:
    """Powertools raises then, and its text is the reason."""
    client.create_queue("q", max_attempts=1).push("x")
    processor = BatchProcessor(event_type=EventType.SQS)

    def record_handler(record: SQSRecord) -> None:
        raise ValueError("nothing works")

    def lambda_handler(event: dict[str, Any], context: LambdaContext) -> Any:
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    work("q", lambda_handler)
    reason = reasons(client, 1)["x"]
    assert reason.startswith("BatchProcessingError: All records failed")
    assert "nothing works" in reason


def test_a_fifo_processor(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q.fifo", fifo=True, max_attempts=2)
    queue.push_batch(["1", "bad", "3", "4"], group_id="g")
    processor = SqsFifoPartialProcessor()
    done: list[str] = []

    def record_handler(record: SQSRecord) -> None:
        if record.body == "bad":
            raise ValueError("bad")
        done.append(record.body)

    def lambda_handler(event: dict[str, Any], context: LambdaContext) -> Any:
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    work("q.fifo", lambda_handler)
    eventually(lambda: queue.info().acked == 3)
    assert done == ["1", "3", "4"]
    eventually(lambda: queue.info().dead_lettered == 1)


@pytest.mark.parametrize("body", ["hello", b"\xff\x00"])
def test_data_classes_read_the_event(client: nexo.Client, work: Any, body: Any) -> None:
    client.create_queue("q").push(body, attributes={"tenant": "a"}, group_id="g")
    seen: list[SQSRecord] = []

    @event_source(data_class=SQSEvent)
    def lambda_handler(event: SQSEvent, context: LambdaContext) -> None:
        seen.extend(event.records)

    work("q", lambda_handler)
    eventually(lambda: bool(seen))
    (record,) = seen
    tenant = record.message_attributes["tenant"]
    assert tenant is not None
    assert tenant.string_value == "a"
    assert record.attributes.approximate_receive_count == "1"
    assert record.attributes.message_group_id == "g"
    assert record.queue_url.endswith("/000000000000/q")
