"""redrive: dead letters that match go back to work, repaired; the others stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.pipeline.redrive import Redrive, run
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nexo import Queue
    from tests.pipeline.place import Place


def letters(place: Place, count: int) -> tuple[Queue, Queue]:
    """A queue, and its dead letters: numbers in JSON, every second one for another reason."""
    queue = place.client.create_queue(place.name, max_attempts=1)
    queue.push_batch([f'{{"n": {number}}}' for number in range(count)])
    for number, message in enumerate(queue.pop_batch(count, wait=5.0)):
        message.nack(reason="odd" if number % 2 else "even")
    return queue, place.client.queue(f"{place.name}_dlq")


def texts(queue: Queue) -> list[str]:
    return [message.text for message in queue.peek(1_000)]


def test_chosen_and_repaired(spark: SparkSession, place: Place) -> None:
    queue, dead = letters(place, 20)
    ids = {message.text: message.id for message in dead.peek(100)}
    running = place.running(spark, "redrive")
    where = "get_json_object(text, '$.n') < 6 and attributes['nexo.dead_letter.reason'] = 'odd'"
    asked = Redrive(queue=dead.name, where=where, set_body="replace(text, 'n', 'number')")

    dry = Redrive(queue=dead.name, where=where, dry_run=True)
    found = run(running, dry)
    assert (found["letters"], found["matched"], found["moved"]) == (20, 3, 0)
    found = run(running, asked)
    assert (found["matched"], found["moved"]) == (3, 3)
    assert texts(queue) == ['{"number": 1}', '{"number": 3}', '{"number": 5}']
    assert [message.id for message in queue.peek(10)] == [ids[f'{{"n": {n}}}'] for n in (1, 3, 5)]
    assert texts(dead) == [f'{{"n": {n}}}' for n in range(20) if n not in (1, 3, 5)]
    assert run(running, asked)["moved"] == 0

    other = place.client.create_queue(f"{place.name}-other")
    assert run(running, Redrive(queue=dead.name, to=other.name))["moved"] == 17
    assert (dead.info().depth, other.info().depth) == (0, 17)


def test_what_cannot_be_redriven(spark: SparkSession, place: Place) -> None:
    _, dead = letters(place, 2)
    running = place.running(spark, "redrive")
    for asked, refusal in (
        (Redrive(queue="nobody"), QueueNotFound),
        (Redrive(queue=dead.name, to="nobody"), QueueNotFound),
        (Redrive(queue=dead.name, where="colour = 1"), InvalidArgument),
        (Redrive(queue=dead.name, set_body="nullif(text, text)"), InvalidArgument),
        (Redrive(queue=dead.name, set_body="array(1)"), InvalidArgument),
    ):
        with pytest.raises(refusal):
            run(running, asked)
    assert dead.info().depth == 2
