"""SQL on live queues, topics and the lake: `nexo.sql`, over a real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import nexo
from nexo.client import sql as client_sql
from nexo.query.outputs import plain, rows_of, write
from tests.client.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nexo.Client]:
    broker = RunningBroker(str(tmp_path_factory.mktemp("broker") / "data")).start()
    with nexo.connect(broker.url) as connected:
        yield connected
    broker.stop()


def rows(client: nexo.Client, statement: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nexo.sql(client, statement, **more).to_pylist()
    return found


def test_types_times_and_maps(client: nexo.Client) -> None:
    queue = client.create_queue("typed", max_attempts=1)
    before = datetime.now(UTC)
    pushed = queue.push("grüß", priority=7, attributes={"a": "b"}, group_id="g")
    queue.push(b"\xff\x00", priority=1)
    table = nexo.sql(client, "SELECT * FROM typed ORDER BY priority DESC")
    assert table.schema.field("created_at").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("body").type == pa.binary()
    first, second = table.to_pylist()
    assert (first["id"], first["text"], first["priority"]) == (pushed, "grüß", 7)
    assert (dict(first["attributes"]), first["group_id"]) == ({"a": "b"}, "g")
    assert (first["source"], first["state"], first["reason"]) == ("typed", "ready", None)
    assert before - timedelta(seconds=2) < first["created_at"] < before + timedelta(minutes=1)
    assert (second["body"], second["text"], second["attributes"]) == (b"\xff\x00", None, None)
    (found,) = rows(client, "SELECT attributes['a'] AS a FROM typed WHERE text = 'grüß'")
    assert found == {"a": "b"}


def test_dead_letters_by_reason(client: nexo.Client) -> None:
    queue = client.create_queue("failing", max_attempts=1)
    for number in range(5):
        queue.push(str(number))
        popped = queue.pop(wait=5.0)
        assert popped is not None
        popped.nack(reason="late" if number % 2 else "bad")
    told = rows(client, "SELECT reason, count(*) AS n FROM failing_dlq GROUP BY ALL ORDER BY n")
    assert told == [{"reason": "late", "n": 2}, {"reason": "bad", "n": 3}]


def test_a_queue_may_be_read_twice_and_is_the_same(client: nexo.Client) -> None:
    client.create_queue("a-b.c").push_batch([str(number) for number in range(3_000)])
    (told,) = rows(client, 'SELECT count(*) AS n FROM "a-b.c" x JOIN "a-b.c" y USING (id)')
    assert told == {"n": 3_000}
    assert client.queue("a-b.c").info().depth == 3_000


def test_a_large_queue_is_streamed(client: nexo.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sql, "_READ_BYTES", 10_000)
    client.create_queue("large").push_batch([b"x" * 100] * 5_000)
    pages: list[int] = []
    honest = client_sql._Source.queue

    def counted(self: Any, name: str) -> Any:
        for page in honest(self, name):
            pages.append(page.num_rows)
            yield page

    monkeypatch.setattr(client_sql._Source, "queue", counted)
    assert rows(client, "SELECT count(*) AS n FROM large") == [{"n": 5_000}]
    assert max(pages) <= 200, "a page is as large as one read"


def test_topics(client: nexo.Client) -> None:
    topic = client.create_topic("news")
    for number in range(5):
        topic.publish(f"event {number}", attributes={"n": str(number)})
    told = rows(client, "SELECT \"offset\", text FROM topic('news') WHERE attributes['n'] > '2'")
    assert told == [{"offset": 3, "text": "event 3"}, {"offset": 4, "text": "event 4"}]
    literal = rows(client, "SELECT 'topic(''news'')' AS t")
    assert literal == [{"t": "topic('news')"}]


def test_the_lake(client: nexo.Client, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    table = pa.table({"id": ["a", "b"], "source": ["orders", "news"]})
    write_deltalake(str(tmp_path / "messages"), table, partition_by=["source"])
    told = rows(client, "SELECT id FROM lake('messages') ORDER BY id", lake=str(tmp_path))
    assert told == [{"id": "a"}, {"id": "b"}]
    with pytest.raises(nexo.InvalidArgument, match="has no table events"):
        rows(client, "FROM lake('events')", lake=str(tmp_path))
    with pytest.raises(nexo.InvalidArgument, match="no table 'nonsense'"):
        rows(client, "FROM lake('nonsense')", lake=str(tmp_path))
    with pytest.raises(nexo.InvalidArgument, match="no lake"):
        rows(client, "FROM lake('messages')")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT * FROM nowhere", "there is no queue nowhere"),
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM range(1)", "nothing"),
    ],
)
def test_what_is_wrong_is_said(client: nexo.Client, statement: str, error: str) -> None:
    with pytest.raises(nexo.InvalidArgument, match=error):
        rows(client, statement)


def test_what_the_broker_refuses_keeps_its_words(client: nexo.Client) -> None:
    with pytest.raises(nexo.TopicNotFound):
        rows(client, "FROM topic('nowhere')")


def test_out_and_rows(client: nexo.Client, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    client.create_queue("kept").push_batch(["a", "b"])
    with client_sql.running(client, "SELECT text FROM kept ORDER BY text") as run:
        assert write(run, tmp_path / "kept.parquet") == 2
    assert pq.read_table(tmp_path / "kept.parquet").to_pylist() == [{"text": "a"}, {"text": "b"}]
    with client_sql.running(client, "SELECT text, created_at FROM kept LIMIT 1") as run:
        (row,) = rows_of(run)
    assert row["created_at"].endswith("Z")
    with (
        client_sql.running(client, "SELECT 1 AS a") as run,
        pytest.raises(nexo.InvalidArgument, match="neither Parquet nor CSV"),
    ):
        write(run, tmp_path / "kept.txt")
    assert plain([("a", b"\xff")]) == {"a": "/w=="}
