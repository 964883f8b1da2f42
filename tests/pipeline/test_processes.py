"""Jobs as processes: killed in the middle, on a cluster, and a file of a user's own."""

from __future__ import annotations

import json
import os
import time
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.pipeline import archive
from nexo.pipeline.archive import Archive
from nexo.pipeline.delta import MESSAGES_TABLE, find_table
from nexo.pipeline.replay import Replay
from nexo.pipeline.replay import run as replay
from nexo.pipeline.status import read_statuses
from tests.client.eventually import eventually
from tests.pipeline.place import Place, some_bodies
from tests.pipeline.process import LIMIT_S, DeadlyJob, Job
from tests.spark.cluster import HOST, Cluster
from tests.spark.stage import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import InSession

COUNT = 600


def drawn() -> Random:
    seed = int(os.environ.get("NEXO_KILL_SEED") or SystemRandom().randrange(2**32))
    print(f"seed {seed}: repeat with NEXO_KILL_SEED={seed}")  # noqa: T201
    return Random(seed)


def kill_the_archive(spark: SparkSession, place: Place, random: Random) -> None:
    """Somewhere after its first commits; then another run finishes the work."""
    topic = place.client.create_topic(place.name)
    bodies = some_bodies(COUNT)
    for start in range(0, COUNT, 50):
        for body in bodies[start : start + 50]:
            topic.publish(body)
    job = Job(
        place.directory,
        place.url,
        *("archive", "--once", "--topic", topic.name, "--lake", place.lake.uri),
        *("--batch-messages", "10"),  # it has long to go when it is killed
    )

    def is_under_way() -> bool:
        assert job.process.poll() is None, f"it has ended before it was killed\n{job.log()}"
        table = find_table(place.lake, MESSAGES_TABLE)
        return table is not None and table.version() > wanted

    wanted = random.randint(0, 4)
    eventually(is_under_way, LIMIT_S)
    time.sleep(random.uniform(0, 1.0))  # any moment will do: this is the chance of the test
    job.kill()
    states = {each.job: each.state for each in read_statuses(place.lake)}
    assert states == {"archive": "died"}
    place.archive(spark, topics=(topic.name,))
    rows = place.messages(topic.name)
    assert [row["offset"] for row in rows] == list(range(COUNT))
    assert [row["body"] for row in rows] == bodies


def test_an_archive_killed_somewhere(spark: SparkSession, place: Place) -> None:
    kill_the_archive(spark, place, drawn())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_an_archive_killed_at(spark: SparkSession, place: Place, seed: int) -> None:
    kill_the_archive(spark, place, Random(seed))


STEPS = ("before events", "after events", "before messages", "after messages", "task")


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_an_archive_killed_at_each_step_of_a_commit(
    spark: SparkSession, place: Place, step: str
) -> None:
    """The driver before and after each of its two commits, and a task in the middle of its rows,
    which Spark runs again."""
    topic = place.client.create_topic(place.name)
    queue = place.client.create_queue(f"{place.name}-queue", archive=True)
    bodies = some_bodies(COUNT)
    topic.publish_batch(bodies)
    queue.push_batch(bodies)
    flags = ["--once", "--topic", topic.name, "--queue", queue.name, "--batch-messages", "250"]
    flags += ["--lake", place.lake.uri, "--master", "local[2,3]"]
    job = DeadlyJob(step, place.directory, place.url, "archive", *flags)
    ended = job.end()
    assert job.marker.exists(), job.log()
    assert ended == (0 if step == "task" else -9), job.log()
    place.archive(spark, topics=(topic.name,), queues=(queue.name,))
    for name in (topic.name, queue.name):
        rows = place.messages(name)
        assert [row["offset"] for row in rows] == list(range(COUNT))
        assert [row["body"] for row in rows] == bodies
    assert sum(row["count"] for row in place.events() if row["kind"] == "pushed") == COUNT


def test_an_archive_whose_broker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Before messages come, and while the archive reads them; the query waits, and goes on."""
    bodies = some_bodies(60)
    broker = BrokerProcess(tmp_path / "data")
    try:
        with nexo.connect(broker.url, timeout=60) as client:
            place = Place(broker.url, client, "news", tmp_path)
            topic = client.create_topic("news")
            published = 0

            def is_over() -> bool:
                nonlocal published
                part = running.teller.status.sources.get("news")
                if (0 if part is None else part.rows) < published:
                    return False
                if published < len(bodies):
                    broker.process.kill()
                    topic.publish_batch(bodies[published : published + 30])
                    published += 30
                    broker.process.kill()
                    return False
                return True

            running = place.running(spark, "archive", is_over)
            archive.run(running, place.lake, Archive(topics=("news",), every_s=0.1))
            rows = place.messages("news")
    finally:
        broker.stop()
    assert broker.kills >= 2
    assert [row["offset"] for row in rows] == list(range(len(bodies)))
    assert [row["body"] for row in rows] == bodies


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_redrive_killed_somewhere(place: Place, seed: int) -> None:
    count, moved_first = 100_000, Random(seed).randrange(50_000)
    letters = place.client.create_queue(place.name)
    target = place.client.create_queue(f"{place.name}-target")
    letters.push_batch([f"m{number}" for number in range(count)])
    arguments = ["redrive", "--queue", letters.name, "--to", target.name]
    arguments += ["--set-body", "concat(text, '!')"]
    job = Job(place.directory, place.url, *arguments)
    eventually(lambda: target.info().depth > moved_first, LIMIT_S)
    job.kill()
    assert letters.info().depth > 0, "it was too quick to be killed"
    assert letters.info().depth + target.info().depth == count
    again = Job(place.directory, place.url, *arguments)
    assert again.end() == 0, again.log()
    found: list[str] = []
    while messages := target.pop_batch(10_000, wait=0.2):
        found += [message.text for message in messages]
    assert found == [f"m{number}!" for number in range(count)]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_replay_killed_somewhere(spark: SparkSession, place: Place, seed: int) -> None:
    source = place.client.create_queue(place.name, archive=True)
    bodies = [f"m{number}" for number in range(3_000)]
    source.push_batch(bodies)
    place.archive(spark, queues=(source.name,))
    target = place.client.create_queue(f"{place.name}-back")
    job = Job(
        place.directory,
        place.url,
        *("replay", "--source", source.name, "--to-queue", target.name),
        *("--lake", place.lake.uri, "--rate", "300"),
    )
    eventually(lambda: target.info().depth > Random(seed).randrange(2_000), LIMIT_S)
    job.kill()
    asked = Replay(source=source.name, to_queue=target.name)
    replay(place.running(spark, "replay"), place.lake, asked)
    assert [message.text for message in target.pop_batch(10_000)] == bodies


@pytest.mark.soak  # `tests/spark/test_cluster.py` has a cluster each time
@pytest.mark.timeout(600)
def test_on_a_cluster(place: Place) -> None:
    """The same command with --master, from a queue to the lake, on executors of their own."""
    queue = place.client.create_queue(place.name, archive=True)
    bodies = some_bodies(300)
    queue.push_batch(bodies)
    with Cluster(place.directory, 2, {}) as cluster:
        job = Job(
            place.directory,
            place.url,
            *("archive", "--once", "--queue", queue.name, "--lake", place.lake.uri),
            *("--master", cluster.url, "--json"),
            # One executor will do: it takes long enough to start.
            **{
                "spark.driver.host": HOST,
                "spark.executor.memory": "512m",
                "spark.cores.max": "1",
            },
        )
        assert job.end() == 0, job.log()
        assert "Launching executor" in cluster.log("master")
    assert [row["body"] for row in place.messages(queue.name)] == bodies
    told = json.loads(job.log().splitlines()[-1])
    assert (told["job"], told["state"]) == ("archive", "finished")
    assert told["sources"][queue.name] == len(bodies)


USERS_JOB = """
import os, sys
from next_to_it import title
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
queue, folder = sys.argv[1:3]
options = {"endpoint": os.environ["NEXO_URL"], "queue": queue}
found = spark.read.format("nexo").options(**options).load()
print(title, found.count(), "of", sys.argv[3:], __name__)
rows = spark.readStream.format("nexo").options(**options).load()
writing = rows.writeStream.format("noop").option("checkpointLocation", folder)
writing.trigger(availableNow=True).start().awaitTermination()
sys.exit(7)
"""


def test_a_file_of_a_user(place: Place, nexo_in_session: InSession) -> None:
    place.client.create_queue(place.name).push_batch(["a", "b", "c"])
    file = place.directory / "my_job.py"
    file.write_text(USERS_JOB)
    (place.directory / "next_to_it.py").write_text("title = 'found'")
    flags = ["--lake", place.lake.uri]
    arguments = [place.name, str(place.directory / "checkpoint"), "--day", "x"]
    status, said, error = nexo_in_session(place.url, str(file), *flags, "--", *arguments)
    assert (status, said) == (7, "found 3 of ['--day', 'x'] __main__\n"), error
    (told,) = read_statuses(place.lake)
    assert (told.job, told.rows) == ("my_job.py", 3)
    assert (told.state, told.error) == ("failed", "exit code 7")


def test_a_file_of_a_user_is_told_of_the_broker(place: Place, nexo_in_session: InSession) -> None:
    file = place.directory / "my_job.py"
    names = ("NEXO_URL", "NEXO_TOKEN", "NEXO_TLS_CA")
    file.write_text(f"import os; print(*(os.environ[name] for name in {names}))")
    flags = ["--url", "nexos://nobody", "--token", "secret", "--tls-ca", "ca.pem"]
    status, said, _ = nexo_in_session(place.url, str(file), *flags, "--lake", place.lake.uri)
    assert (status, said) == (0, "nexos://nobody secret ca.pem\n")
    assert [(each.job, each.state) for each in read_statuses(place.lake)] == [
        ("my_job.py", "finished")
    ]
