"""replay: what the lake holds comes back byte for byte, in order, and once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from nexo.pipeline.replay import Replay, run
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound
from tests.pipeline.place import some_bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place

COUNT = 200


def test_there_and_back(spark: SparkSession, place: Place) -> None:
    source = place.client.create_queue(place.name, archive=True)
    bodies = [*some_bodies(COUNT), b'{"total": 7}', b'{"total": 70}']
    source.push_batch(bodies, attributes={"tenant": "a"})
    place.archive(spark, queues=(source.name,))
    target = place.client.create_queue(f"{place.name}-back")
    running = place.running(spark, "replay")

    asked = Replay(source=source.name, to_queue=target.name)
    dry = Replay(source=source.name, to_queue=target.name, dry_run=True)
    assert run(running, place.lake, dry) == {"matched": len(bodies), "added": 0}
    assert target.info().depth == 0
    assert run(running, place.lake, asked) == {"matched": len(bodies), "added": len(bodies)}
    back = target.pop_batch(1_000, wait=5.0)
    assert [message.body for message in back] == bodies
    assert all(message.attributes == {"tenant": "a"} for message in back)
    assert run(running, place.lake, asked) == {"matched": len(bodies), "added": 0}
    assert target.info().pushed == len(bodies)

    # A condition, a time range and a topic to go to.
    topic = place.client.create_topic(f"{place.name}-topic")
    now = datetime.now(UTC)
    sql = "get_json_object(text, '$.total') > 10"
    some = Replay(
        source=source.name, to_topic=topic.name, where=sql, since=now - timedelta(hours=1)
    )
    assert run(running, place.lake, some)["added"] == 1
    assert [event.body for event in topic.read(0)] == [b'{"total": 70}']
    none = Replay(source=source.name, to_topic=topic.name, since=now + timedelta(hours=1))
    assert run(running, place.lake, none)["added"] == 0


def test_stopped_in_the_middle_it_goes_on(spark: SparkSession, place: Place) -> None:
    source = place.client.create_topic(place.name)
    for number in range(30):
        source.publish(str(number))
    place.archive(spark, topics=(source.name,))
    target = place.client.create_queue(f"{place.name}-back")
    asked = Replay(source=source.name, to_queue=target.name, rate=10.0, replay_id="mine")
    stopping = place.running(spark, "replay", lambda: target.info().depth >= 10)
    assert run(stopping, place.lake, asked) == {"matched": 30, "added": 10}
    # As if it had died before it could say that the wave is with the broker.
    plan = place.lake.internal("replays", "mine.json")
    plan.write_text(plan.read_text().replace('"waves_done":0', '"waves_done":-1'))
    source.publish("what came later belongs to another replay")
    place.archive(spark, topics=(source.name,))
    running = place.running(spark, "replay")
    assert run(running, place.lake, asked)["matched"] == 30
    back = [message.text for message in target.pop_batch(100, wait=5.0)]
    assert back == [str(number) for number in range(30)]
    other = Replay(source=source.name, to_queue=target.name, where="true", replay_id="mine")
    with pytest.raises(InvalidArgument, match="something else"):
        run(running, place.lake, other)


def test_what_cannot_be_replayed(spark: SparkSession, place: Place) -> None:
    running = place.running(spark, "replay")
    place.client.create_queue(place.name)
    (place.lake.messages / "source=a").mkdir(parents=True)
    for asked, refusal in (
        (Replay(source="a"), InvalidArgument),
        (Replay(source="a", to_queue="b", to_topic="c"), InvalidArgument),
        (Replay(source="a", to_queue="nobody"), QueueNotFound),
        (Replay(source="b", to_queue=place.name), InvalidArgument),
        (Replay(source="a", to_queue=place.name, where="no_such = 1"), InvalidArgument),
        (Replay(source="a", to_queue=place.name, where="text ="), InvalidArgument),
    ):
        with pytest.raises(refusal):
            run(running, place.lake, asked)
