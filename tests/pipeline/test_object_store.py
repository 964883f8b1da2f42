"""A lake on an object store: the same tables, jobs and promises, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from nexo.pipeline import archive, compact, insights, replay
from nexo.pipeline.archive import Archive
from nexo.pipeline.commits import Commits
from nexo.pipeline.compact import Compact
from nexo.pipeline.delta import MESSAGES_TABLE, check_lake, create_table
from nexo.pipeline.insights import Insights
from nexo.pipeline.lake import Lake
from nexo.pipeline.replay import Replay
from nexo.pipeline.status import read_statuses
from nexo.vocabulary.errors import InvalidArgument, NexoError, Unauthorized, Unreachable
from tests.pipeline.object_store import BUCKET, ObjectStore
from tests.pipeline.place import some_bodies
from tests.pipeline.process import NEXO
from tests.pipeline.rows import messages, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import InSession
    from tests.pipeline.place import Place

WRITERS, BATCHES, ROWS_EACH = 3, 5, 10


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    running = ObjectStore(tmp_path_factory.mktemp("store"))
    yield running
    running.stop()


@pytest.fixture
def lake(store: ObjectStore, request: pytest.FixtureRequest) -> Lake:
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)
    return Lake(f"s3a://{BUCKET}/{name}/", store.options)


def offsets(lake: Lake, source: str) -> list[int]:
    table = DeltaTable(lake.table("messages"), storage_options=lake.options)
    rows = table.to_pyarrow_table().to_pylist()
    return sorted(row["offset"] for row in rows if row["source"] == source)


def test_writers_at_once(lake: Lake) -> None:
    """Each has a source of its own, and all of them one together, of which one wins each time."""
    create_table(lake, MESSAGES_TABLE)
    taken: list[int] = []
    failed: list[BaseException] = []

    def commit_some(name: str) -> None:
        try:
            commits = Commits(lake, MESSAGES_TABLE)
            for batch in range(BATCHES):
                some = range(batch * ROWS_EACH, (batch + 1) * ROWS_EACH)
                assert commits.commit(write(lake, messages(name, some)), name, batch) == set()
                shared = write(lake, messages("shared", some))
                if not commits.commit(shared, name, batch):
                    taken.append(batch)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=commit_some, args=(f"w{n}",)) for n in range(WRITERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed
    for number in range(WRITERS):
        assert offsets(lake, f"w{number}") == list(range(BATCHES * ROWS_EACH))
    shared = offsets(lake, "shared")
    assert len(shared) == len(set(shared)) == ROWS_EACH * len(taken), "nothing twice"


def test_all_jobs(spark: SparkSession, place: Place, lake: Lake, store: ObjectStore) -> None:
    queue = place.client.create_queue(place.name, archive=True)
    bodies = some_bodies(60)
    place.lake = lake
    for first in (0, 30):
        queue.push_batch(bodies[first : first + 30])
        running = place.running(spark, "archive")
        archive.run(running, lake, Archive(queues=(queue.name,), once=True))
        running.teller.tell("finished")
    assert [row["body"] for row in place.messages(queue.name)] == bodies
    found = compact.run(place.running(spark, "compact"), lake, Compact())
    assert found["files_before"] > found["files_after"] >= 1
    back = place.client.create_queue(f"{place.name}-back")
    asked = Replay(source=queue.name, to_queue=back.name)
    for added in (60, 0):
        told = replay.run(place.running(spark, "replay"), lake, asked)
        assert told == {"matched": 60, "added": added}
    assert [message.body for message in back.pop_batch(100, wait=5.0)] == bodies
    checkpoint = str(place.directory / "checkpoint")
    running = place.running(spark, "insights")
    with pytest.raises(InvalidArgument, match="--checkpoint"):
        insights.run(running, lake, Insights(once=True))
    insights.run(running, lake, Insights(once=True, checkpoint=checkpoint))
    place.name = queue.name
    assert sum(row["arrivals"] for row in place.insights("queue_minutes")) >= 60
    insights.run(running, lake, Insights(from_lake=True))
    assert sum(row["arrivals"] for row in place.insights("queue_minutes")) >= 60
    states = {each.job: each.state for each in read_statuses(lake)}
    assert states["archive"] == "finished"
    assert store.keys(lake.uri.removeprefix(f"s3://{BUCKET}/") + "/_nexo/replays")


def test_the_command(place: Place, lake: Lake, nexo_in_session: InSession) -> None:
    place.client.create_topic(place.name).publish_batch(["a", "b"])
    flags = ["--lake", lake.uri, "--json"]
    for name, value in lake.options.items():
        flags += ["--storage-option", f"{name}={value}"]
    status, said, error = nexo_in_session(
        place.url, "archive", "--once", "--topic", place.name, *flags
    )
    assert status == 0, error
    assert json.loads(said)["sources"][place.name] == 2
    place.lake = lake
    assert [row["body"] for row in place.messages(place.name)] == [b"a", b"b"]


def test_a_store_of_which_nothing_is_known_is_one_line() -> None:
    """Neither region nor keys: what delta-rs has tried in vain, it keeps to itself."""
    environment = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
    environment |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}  # no machine's role
    command = [NEXO, "pipeline", "run", "compact", "--lake", "s3://nobody-has-this/lake"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr


def test_what_is_refused_is_one_line(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    nobody = {name: value for name, value in store.options.items() if name not in keys}
    nobody["AWS_METADATA_ENDPOINT"] = "http://127.0.0.1:1"  # no machine's role either
    cases: list[tuple[Lake, type[NexoError]]] = [
        (Lake("s3://nobody-has-this/lake", store.options), InvalidArgument),
        (Lake(f"s3://{BUCKET}/x", nobody), Unauthorized),
        (
            Lake(f"s3://{BUCKET}/x", {**store.options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
            Unreachable,
        ),
    ]
    for lake, refusal in cases:
        with pytest.raises(refusal) as refused:
            check_lake(lake)
        assert "\n" not in str(refused.value)
        with pytest.raises(NexoError):
            create_table(lake, MESSAGES_TABLE)
    store.client.put_object(Bucket=BUCKET, Key="taken/messages/data.csv", Body=b"mine")
    before = store.keys("")
    with pytest.raises(InvalidArgument, match="not a Delta table"):
        create_table(Lake(f"s3://{BUCKET}/taken", store.options), MESSAGES_TABLE)
    assert store.keys("") == before
