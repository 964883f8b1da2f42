"""replay: what the lake holds comes back byte for byte, in order, and once."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import nexo
from nexo.pipeline.commits import Commits
from nexo.pipeline.delta import MESSAGES_TABLE
from nexo.pipeline.replay import Found, Replay, Wave, jobs, run, sender, waves_of
from nexo.spark.options import read_options
from nexo.vocabulary.errors import InvalidArgument, QueueFull, QueueNotFound, ReadOnly
from tests.pipeline.place import some_bodies
from tests.pipeline.rows import NOON, messages, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import InSession
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


def test_stopped_in_the_middle_it_goes_on(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.pipeline.replay.JOB_S", 1.0)
    source = place.client.create_topic(place.name)
    for number in range(30):
        source.publish(str(number))
    place.archive(spark, topics=(source.name,))
    target = place.client.create_queue(f"{place.name}-back")
    asked = Replay(source=source.name, to_queue=target.name, rate=10.0, replay_id="mine")
    stopping = place.running(spark, "replay", lambda: target.info().depth >= 10)
    assert run(stopping, place.lake, asked) == {"matched": 30, "added": 10}
    # As if it had died before it could say that the wave is with the broker.
    plan = place.directory / "lake" / "_nexo" / "replays" / "mine.json"
    plan.write_text(plan.read_text().replace('"waves_done":0', '"waves_done":-1'))
    source.publish("what came later belongs to another replay")
    place.archive(spark, topics=(source.name,))
    running = place.running(spark, "replay")
    assert run(running, place.lake, asked)["matched"] == 30
    # As if it had died in the middle of a job of several waves, of which the plan knows nothing.
    plan.write_text(plan.read_text().replace('"waves_done":2', '"waves_done":-1'))
    monkeypatch.setattr("nexo.pipeline.replay.JOB_S", 10.0)
    run(running, place.lake, asked)
    back = [message.text for message in target.pop_batch(100, wait=5.0)]
    assert back == [str(number) for number in range(30)]
    assert target.info().pushed == 30
    other = Replay(source=source.name, to_queue=target.name, where="true", replay_id="mine")
    with pytest.raises(InvalidArgument, match="other messages or another target"):
        run(running, place.lake, other)


def test_a_time_ago_is_that_of_the_first_run(
    spark: SparkSession, place: Place, nexo_in_session: InSession
) -> None:
    source = place.client.create_queue(place.name, archive=True)
    source.push_batch(["a", "b"])
    place.archive(spark, queues=(source.name,))
    target = place.client.create_queue(f"{place.name}-back")
    asked = ["replay", "--source", source.name, "--to-queue", target.name, "--from", "1h"]
    asked += ["--lake", place.lake.uri, "--replay-id", "again", "--json"]
    for added in (2, 0):
        status, told, error = nexo_in_session(place.url, *asked)
        assert status == 0, error
        found = json.loads(told)
        assert (found["matched"], found["added"]) == (2, added)
    assert target.info().pushed == 2
    # Long after, "an hour ago" is another moment, and the replay still the same.
    later = Replay(
        source=source.name,
        to_queue=target.name,
        since=datetime.now(UTC) + timedelta(days=1),
        since_ago="1h",
        replay_id="again",
    )
    found = run(place.running(spark, "replay"), place.lake, later)
    assert found == {"matched": 2, "added": 0}


def test_waves_that_few_messages_are_in_go_together() -> None:
    waves = [Wave(number, 3) for number in (0, 4, 5, 90)] + [Wave(91, 20), Wave(92, 1)]
    together = [[wave.number for wave in each] for each in jobs(waves, 10)]
    assert together == [[0, 4, 5], [90], [91], [92]]


def test_rows_are_cut_into_waves_whatever_batches_they_come_in() -> None:
    rows = pa.table({"offset": pa.array([1, 2, 9, 10, 11, 35, 36], pa.int64())})
    for size in (1, 2, 3, 7):
        found = waves_of(rows.to_batches(max_chunksize=size), 10)
        cut = [(number, each["offset"].to_pylist()) for number, each in found]
        assert cut == [(0, [1, 2, 9]), (1, [10, 11]), (3, [35, 36])]


class Clock:
    """Stands still but for those who wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_full_queue_is_waited_for_as_long_as_a_broker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = place.client.create_queue(place.name, max_depth=2)
    full.push("a")
    rows = pa.table({"offset": pa.array([0, 1], pa.int64()), "body": ["x", "y"]}).to_batches()
    clock = Clock()
    monkeypatch.setattr("nexo.pipeline.replay.time", clock)

    def send(**asked: str) -> None:
        clock.now = 0.0
        options = read_options({"endpoint": place.url, "queue": full.name, **asked})
        list(sender(options, place.name, 10, None)(rows))

    for asked, waited_s in (({}, 60.0), ({"timeout": "5m"}, 300.0)):
        with pytest.raises(QueueFull):
            send(**asked)
        assert waited_s < clock.now < waited_s + 1
    full.edit(max_depth=1)
    with pytest.raises(InvalidArgument, match=r"never holds more than 1 .*another --replay-id"):
        send()
    assert (clock.now, full.info().depth) == (0.0, 1), "waiting would not help"


def test_a_queue_that_holds_few_is_filled_bit_by_bit(spark: SparkSession, place: Place) -> None:
    commits = Commits(place.lake, MESSAGES_TABLE)
    commits.commit(write(place.lake, messages("a", range(10))), "q", 0)
    small = place.client.create_queue(place.name, max_depth=4)
    got: list[str] = []
    taking = threading.Thread(target=lambda: got.extend(_taken(place, 10)))
    taking.start()
    asked = Replay(source="a", to_queue=small.name)
    found = run(place.running(spark, "replay"), place.lake, asked)
    taking.join()
    assert found == {"matched": 10, "added": 10}
    assert got == [str(number) for number in range(10)]


def _taken(place: Place, count: int) -> list[str]:
    """As a consumer takes them that comes again and again."""
    got: list[str] = []
    with nexo.connect(place.url) as client:
        while len(got) < count:
            for message in client.queue(place.name).pop_batch(count, wait=5.0):
                message.ack()
                got.append(message.text)
    return got


def test_only_files_with_such_offsets_are_opened(spark: SparkSession, place: Place) -> None:
    source = "123456789012/eu-west-1/a"
    commits = Commits(place.lake, MESSAGES_TABLE)
    for first in (0, 10, 20):  # a message every quarter of an hour from noon on
        rows = messages(source, range(first, first + 10), 900.0)
        commits.commit(write(place.lake, rows, messages("other", range(first, first + 10))), "q", 0)
    running = place.running(spark, "replay")
    found = Found(running, place.lake, Replay(source=source))
    assert len(found.holding(8, 12)) == 2
    rows = found.between(8, 12).collect()
    assert sorted(bytes(row["body"]) for row in rows) == [b"10", b"11", b"8", b"9"]
    assert {(row["source"], row["date"]) for row in rows} == {(source, NOON.date())}
    assert found.all().count() == 30
    hour = NOON + timedelta(hours=2)
    asked = Replay(source=source, since=hour, until=hour + timedelta(hours=1))
    found = Found(running, place.lake, asked)
    assert len(found.holding(0, 100)) == 2, "the third file begins later"
    # What is not opened can be gone.
    for part in Found(running, place.lake, Replay(source=source)).holding(20, 30):
        (place.directory / "lake" / "messages" / part.path).unlink()
    assert [bytes(row["body"]) for row in found.all().orderBy("offset").collect()] == [
        b"8",
        b"9",
        b"10",
        b"11",
    ]


def test_the_table_as_it_was(spark: SparkSession, place: Place) -> None:
    commits = Commits(place.lake, MESSAGES_TABLE)
    commits.commit(write(place.lake, messages("a", range(10))), "q", 0)
    time.sleep(0.1)  # a commit's time is that of its file, which comes a little later
    between = datetime.now(UTC)
    time.sleep(0.1)
    commits.commit(write(place.lake, messages("a", range(10, 20))), "q", 0)
    table = place.table("messages")
    newest = table.version()
    table.delete("offset < 15")
    target = place.client.create_queue(place.name)
    running = place.running(spark, "replay")
    for asked, matched in (
        ({}, 5),
        ({"version": newest}, 20),
        ({"version": newest - 1}, 10),
        ({"as_of": between}, 10),
    ):
        replay = Replay(source="a", to_queue=target.name, dry_run=True, **asked)
        assert run(running, place.lake, replay)["matched"] == matched, asked
    for wrong in ({"version": 99}, {"version": 1, "as_of": between}):
        with pytest.raises(InvalidArgument):
            run(running, place.lake, Replay(source="a", to_queue=target.name, **wrong))


def test_a_plan_that_cannot_be_kept(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lake that can only be read: one line, and nothing is pushed."""
    commits = Commits(place.lake, MESSAGES_TABLE)
    commits.commit(write(place.lake, messages("a", range(3))), "q", 0)
    target = place.client.create_queue(place.name)

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(30, "Read-only file system", str(path))

    running = place.running(spark, "replay")
    monkeypatch.setattr("nexo.pipeline.lake.write_atomically", refuse)
    with pytest.raises(ReadOnly, match="cannot be written"):
        run(running, place.lake, Replay(source="a", to_queue=target.name))
    assert target.info().pushed == 0


def test_what_cannot_be_replayed(spark: SparkSession, place: Place) -> None:
    running = place.running(spark, "replay")
    place.client.create_queue(place.name)
    rows = messages("a", range(3))
    with pytest.raises(InvalidArgument, match="no archive"):
        run(running, place.lake, Replay(source="a", to_queue=place.name))
    commits = Commits(place.lake, MESSAGES_TABLE)
    commits.commit(write(place.lake, rows), "q", 0)
    for asked, refusal in (
        (Replay(source="a"), InvalidArgument),
        (Replay(source="a", to_queue=place.name, since_ago="1h"), InvalidArgument),
        (Replay(source="a", to_queue="b", to_topic="c"), InvalidArgument),
        (Replay(source="a", to_queue="nobody"), QueueNotFound),
        (Replay(source="b", to_queue=place.name), InvalidArgument),
        (Replay(source="a", to_queue=place.name, where="no_such = 1"), InvalidArgument),
        (Replay(source="a", to_queue=place.name, where="text ="), InvalidArgument),
    ):
        with pytest.raises(refusal):
            run(running, place.lake, asked)
