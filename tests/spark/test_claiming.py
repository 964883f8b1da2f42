"""The protocol of a streaming query, step by step, as Spark takes the steps: no JVM is needed to
see what a crash between two of them does."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from nexo.spark import claims, queue_stream
from nexo.spark.link import link_to
from nexo.spark.options import read_options
from nexo.spark.patience import Patience
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import Fenced, LeaseLost, QueueNotFound
from nexo.wire.columns import WirePart, encode_parts

if TYPE_CHECKING:
    from nexo.spark.queue_stream import QueueStreamReader
    from tests.spark.place import Place

ALL = ReadAllAvailable()


def texts(reader: QueueStreamReader, planned: Any) -> list[str]:
    """What the executors would read."""
    return [
        body.decode()
        for piece in planned
        for rows in reader.read(piece)
        for body in rows.column("body").to_pylist()
    ]


def advance(reader: QueueStreamReader, start: Any) -> tuple[Any, list[str]]:
    """One micro-batch as Spark runs it."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end, texts(reader, reader.partitions(start, end))


def all_available(reader: QueueStreamReader) -> list[str]:
    """An available-now run, as Spark does it."""
    taken: list[str] = []
    end = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    while True:
        start = end
        end, got = advance(reader, start)
        if end == start:
            return taken
        taken += got


def test_a_batch_is_acked_when_the_next_is_asked_for(place: Place) -> None:
    place.queue.push_batch([f"m{number}" for number in range(5)])
    reader = place.reader(maxMessagesPerTrigger=3)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    first, got = advance(reader, start)
    assert got == ["m0", "m1", "m2"]
    assert place.queue.info().depth == 5, "Spark has not committed it yet"
    second, got = advance(reader, first)
    assert got == ["m3", "m4"]
    assert place.queue.info().depth == 2
    assert reader.latestOffset(second, ALL) == second
    place.assert_empty(5)


def test_a_new_driver_reads_the_same_batch_again(place: Place) -> None:
    place.queue.push_batch([f"m{number}" for number in range(5)])
    reader = place.reader(maxMessagesPerTrigger=3, minPartitions=2)
    start = reader.initialOffset()
    end, got = advance(reader, start)
    place.queue.push("later", priority=9)
    again = place.reader(maxMessagesPerTrigger=5, minPartitions=3)
    planned = again.partitions(start, end)
    assert len(planned) == 2, "cut as before"
    assert texts(again, planned) == got == ["m0", "m1", "m2"]
    _, rest = advance(again, end)
    assert rest == ["later", "m3", "m4"]


def test_a_claim_that_spark_never_logged_is_claimed_again(place: Place) -> None:
    place.queue.push_batch(["a", "b"])
    start = place.reader().initialOffset()
    first = place.reader().latestOffset(start, ReadMaxRows(1))
    again = place.reader()
    assert again.latestOffset(start, ALL) == first
    assert texts(again, again.partitions(start, first)) == ["a"]


def test_a_second_driver_of_a_checkpoint_fences_the_first(place: Place) -> None:
    place.queue.push_batch(["a", "b"])
    old, start = place.reader(), place.reader().initialOffset()
    end = old.latestOffset(start, ALL)
    planned = old.partitions(start, end)
    new = place.reader()
    assert texts(new, new.partitions(start, end)) == ["a", "b"]
    for step in (
        lambda: old.latestOffset(end, ALL),
        lambda: old.partitions(end, {**end, "batch": 2}),
        lambda: old.commit(end),
        lambda: texts(old, planned),
    ):
        with pytest.raises(Fenced, match=r"another Spark driver .* only one query per checkpoint"):
            step()
    assert new.latestOffset(end, ALL) == end
    place.assert_empty(2)


def test_a_fenced_driver_keeps_its_claims_no_longer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_KEEP_S", 0.01)
    place.queue.push("a")
    link = link_to(read_options(place.options(queue=place.queue.name)))
    old = claims.Claims(link, place.name, "query")
    assert old.claim(0, 1, 1_000).number == 1
    new = claims.Claims(link, place.name, "query")
    assert new.claim(0, 1, 1_000).number == 1
    assert old._keeper is not None
    old._keeper.join(30)
    assert not old._keeper.is_alive()
    assert new._keeper is not None
    assert new._keeper.is_alive()
    new.abandon()
    new._keeper.join(30)
    assert not new._keeper.is_alive()
    assert place.queue.info().ready == 1


def test_a_batch_that_lapsed_before_it_was_planned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver was away for long after the offsets log: somebody else has its messages."""
    monkeypatch.setattr(claims, "CLAIM_TIMEOUT_MS", 50)
    place.queue.push_batch(["a", "b"])
    start = place.reader().initialOffset()
    end = place.reader().latestOffset(start, ALL)
    message = place.queue.pop(wait=5.0)
    assert message is not None
    monkeypatch.undo()
    again = place.reader()
    assert texts(again, again.partitions(start, end)) == ["b"], "what is left in line"
    assert again.latestOffset(end, ALL) == end
    message.ack()
    place.assert_empty(2)


def test_a_lapsed_batch_is_empty_when_nothing_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "CLAIM_TIMEOUT_MS", 50)
    place.queue.push("a")
    start = place.reader().initialOffset()
    end = place.reader().latestOffset(start, ALL)
    message = place.queue.pop(wait=5.0)
    assert message is not None
    monkeypatch.undo()
    again = place.reader()
    assert again.partitions(start, end) == []
    message.nack(delay=0.0)
    after, got = advance(again, end)
    assert got == ["a"]
    assert again.latestOffset(after, ALL) == after
    place.assert_empty(1)


def test_a_released_batch_is_empty_and_its_messages_come_again(place: Place) -> None:
    place.queue.push_batch(["a", "b"])
    reader = place.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    assert place.queue.info().claimed == {start["consumer"]: 2}
    assert place.queue.release(start["consumer"]) == 2
    with pytest.raises(LeaseLost, match="released while it was read"):
        texts(reader, planned)
    again = place.reader()
    assert again.partitions(start, end) == []
    after, got = advance(again, end)
    assert got == ["a", "b"]
    assert again.latestOffset(after, ALL) == after
    place.assert_empty(2)


def test_a_checkpoint_older_than_the_acks_fails(place: Place) -> None:
    place.queue.push_batch(["a", "b", "c", "d"])
    reader = place.reader(maxMessagesPerTrigger=1)
    start = reader.initialOffset()
    first, _ = advance(reader, start)
    second, _ = advance(reader, first)
    reader.latestOffset(second, ALL)
    with pytest.raises(LeaseLost, match=r"acked already .*checkpoint is out of date"):
        place.reader().latestOffset(first, ALL)
    with pytest.raises(LeaseLost):
        place.reader().partitions(start, first)
    careless = place.reader(failOnDataLoss="false")
    assert careless.partitions(start, first) == []
    moved = careless.latestOffset(first, ALL)
    assert moved["consumer"] != start["consumer"]
    careless.commit(first)
    planned = careless.partitions(first, moved)
    careless.commit(first)
    assert careless.reportLatestOffset() == {**moved, "ready": 0, "scheduled": 0}
    assert [piece.epoch for piece in planned] == [1], "it must not fence itself"  # type: ignore[attr-defined]
    assert texts(careless, planned) == ["c", "d"]
    assert careless.latestOffset(moved, ALL) == moved
    place.assert_empty(4)


def test_limits_of_a_batch(place: Place) -> None:
    place.queue.push_batch([f"m{number:07}" for number in range(10)])
    reader = place.reader(maxMessagesPerTrigger=4, maxBytesPerTrigger=24)
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    start = reader.initialOffset()
    first, got = advance(reader, start)
    assert len(got) == 3, "24 bytes"
    end = reader.latestOffset(first, ReadMaxRows(2))
    assert len(texts(reader, reader.partitions(first, end))) == 2
    last = reader.latestOffset(end, ALL)
    assert len(texts(reader, reader.partitions(end, last))) == 5
    assert place.reader(maxBytesPerTrigger=9).getDefaultReadLimit() == ReadMaxBytes(9)
    assert place.reader().getDefaultReadLimit() == ALL


def test_an_available_now_run_takes_what_was_there(place: Place) -> None:
    place.queue.push_batch(["a", "b", "c"])
    reader = place.reader(maxMessagesPerTrigger=2)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    first, got = advance(reader, start)
    place.queue.push_batch(["late"] * 5)
    second, more = advance(reader, first)
    assert got + more == ["a", "b", "c"]
    assert reader.latestOffset(second, ALL) == second
    info = place.queue.info()
    assert (info.ready, info.in_flight, info.acked) == (5, 0, 3)


@pytest.mark.parametrize(
    "settings", [{"fifo": True}, {"max_receive_rate": 4.0}], ids=["fifo", "rate"]
)
def test_an_available_now_run_goes_on(place: Place, settings: dict[str, Any]) -> None:
    """In the moment when it asks, the next message is locked by the one before, or not due."""
    place.queue = place.client.create_queue(place.name, **settings)
    place.queue.push_batch(["a", "b", "c"], group_id="g")
    assert all_available(place.reader(maxMessagesPerTrigger=1)) == ["a", "b", "c"]
    place.assert_empty(3)


def test_an_available_now_run_waits_for_what_a_dead_driver_had_claimed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before Spark wrote its name down, so nobody will ever ask for that batch again."""
    place.queue.push_batch(["a", "b", "c"])
    monkeypatch.setattr(claims, "CLAIM_TIMEOUT_MS", 1_000)
    monkeypatch.setattr(claims.Claims, "_keep", lambda self: None)
    dead = place.reader(maxMessagesPerTrigger=2)
    start = dead.initialOffset()
    assert dead.latestOffset(start, ReadMaxRows(2)) != start, "it has claimed something"
    monkeypatch.undo()  # the claims of those who live do not lapse while this machine is busy
    assert sorted(all_available(place.reader())) == ["a", "b", "c"]
    place.assert_empty(3)


def test_the_backlog_is_reported(place: Place) -> None:
    place.queue.push_batch(["a", "b", "c"])
    reader = place.reader(maxMessagesPerTrigger=2)
    start = reader.initialOffset()
    assert reader.reportLatestOffset() is None
    end, _ = advance(reader, start)
    assert reader.reportLatestOffset() == {**end, "ready": 1, "scheduled": 0}


def test_a_queue_that_is_not_there(place: Place) -> None:
    reader = place.reader()
    place.queue.delete()
    with pytest.raises(QueueNotFound, match=place.name):
        reader.latestOffset(reader.initialOffset(), ALL)


class _Answers:
    """A link whose broker has given these answers."""

    def __init__(self, *answers: tuple[int, list[WirePart]]) -> None:
        self._answers = list(answers)

    def begin(self, request: object) -> object:
        return request

    def wait(self, request: object) -> Any:
        came_to, parts = self._answers.pop(0)
        body = memoryview(b"".join(encode_parts(parts)))
        return SimpleNamespace(head=msgspec.msgpack.encode(came_to), body=body)


def test_a_slice_goes_on_behind_messages_that_the_broker_cannot_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (WirePart(at, 0, 0, 1, batch_of([b"m%d" % at])) for at in (3, 7))
    answers = _Answers((5, [one]), (7, []), (8, [two]))
    monkeypatch.setattr(queue_stream, "link_to", lambda _: answers)
    reader = queue_stream.QueueStreamReader(read_options({"queue": "q"}))
    piece = queue_stream.QueueSlice("spark", 1, 1, 1, 3, 8)
    assert texts(reader, [piece]) == ["m3", "m7"]
    assert [record.getMessage()[:10] for record in caplog.records] == ["1 messages", "2 messages"]


def test_a_slice_of_a_batch_that_was_given_back_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_stream, "link_to", lambda _: _Answers((3, [])))
    reader = queue_stream.QueueStreamReader(read_options({"queue": "q"}))
    with pytest.raises(LeaseLost, match="was released while it was read"):
        texts(reader, [queue_stream.QueueSlice("spark", 1, 1, 1, 3, 8)])


def test_what_another_query_holds_is_said_at_the_start(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.queue.push_batch(["a", "b"])
    old = place.reader()
    start = old.initialOffset()
    old.partitions(start, old.latestOffset(start, ALL))
    assert not caplog.records, "nobody holds anything yet"
    place.reader().initialOffset()
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"queue {place.name} has messages claimed by the query {start['consumer']}" in told
    assert re.search(r"does not get: 2, for \d+s\.", told), told
    assert f"nexo queue release {place.name} --consumer {start['consumer']}" in told


def test_a_stream_waits_until_enough_is_there(place: Place) -> None:
    place.queue.push_batch(["a", "b"])
    reader = place.reader(minMessagesPerTrigger=3, maxTriggerDelay="1h")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert place.queue.info().ready == 2, "nothing is claimed"
    place.queue.push("c")
    end, got = advance(reader, start)
    assert got == ["a", "b", "c"]
    place.queue.push("d")
    assert reader.latestOffset(end, ALL) == end
    info = place.queue.info()
    assert (info.ready, info.acked) == (1, 3), "what is committed is acked all the same"
    now = place.reader(minMessagesPerTrigger=3)
    assert all_available(now) == ["d"], "an available-now run waits for nothing"


def test_a_stream_waits_anew_after_each_batch(place: Place) -> None:
    """The delay counts from the last micro-batch, not from the start of the query."""
    now = [0.0]
    asked = {"minMessagesPerTrigger": 3, "maxTriggerDelay": "60s"}
    reader = place.reader(**asked)
    options = read_options(place.options(queue=place.queue.name, **asked))
    reader._patience = Patience(options, lambda: now[0])
    start = reader.initialOffset()
    place.queue.push("a")
    assert reader.latestOffset(start, ALL) == start
    now[0] = 61.0
    end, got = advance(reader, start)
    assert got == ["a"], "the last one is too long ago"
    place.queue.push("b")
    assert reader.latestOffset(end, ALL) == end
    now[0] = 122.0
    assert advance(reader, end)[1] == ["b"]
