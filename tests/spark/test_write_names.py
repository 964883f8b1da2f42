"""What a write is called, and the checksum by which the broker knows its rows again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from nexo.spark import writer as writing
from nexo.spark.checksums import checksum_of
from nexo.spark.options import read_options
from nexo.spark.write_names import MicroBatch, done_writes, micro_batch_of, note_done, place_of
from nexo.spark.writer import batch_of_rows
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, QueueFull

if TYPE_CHECKING:
    from pathlib import Path

    from nexo import Queue
    from tests.spark.place import Place

PLAIN = batch_of([b"a", b"b", b"", b"long" * 50])


class Context:
    """What a task is told by Spark."""

    def __init__(self, **properties: str) -> None:
        self.properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name.rpartition(".")[2])


def batch(number: int, run: str = "0", query: str = "q") -> MicroBatch:
    return MicroBatch(query, number, f"{number}/{run}")


def test_the_micro_batch_of_a_task() -> None:
    assert micro_batch_of(Context()) is None
    found = micro_batch_of(Context(queryId="q", batchId="3", id="7"))
    assert found == MicroBatch("q", 3, "3/7")
    assert found.first == 3 << 24


def test_writes_of_a_micro_batch_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    assert done_writes() == {}
    note_done([batch(0), batch(0)])  # two tasks of one write
    note_done([batch(0)])
    note_done([batch(4, query="other")])
    done = done_writes()
    assert place_of(done, batch(0)) == 2
    assert place_of(done, batch(1)) == 0
    assert place_of(done, batch(0, run="1")) == 0, "it runs again, and counts from the beginning"
    assert place_of(done, batch(4, query="other")) == 1
    note_done([batch(1)])
    assert done_writes() == {"q": ("1/0", 1), "other": ("4/0", 1)}, "the last of each query"


def test_without_a_folder_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    note_done([batch(0)])
    assert done_writes() == {}


def test_a_checksum_does_not_go_by_order() -> None:
    turned = batch_of([b"long" * 50, b"", b"b", b"a"])
    assert checksum_of(PLAIN) == checksum_of(turned)
    one, two = [("x", "1"), ("y", "2")], [("y", "2"), ("x", "1")]
    rows = as_batch({"body": ["a", "b"], "attributes": [one, []], "priority": [0, 3]})
    other = as_batch({"body": ["b", "a"], "attributes": [[], two], "priority": [3, 0]})
    assert checksum_of(rows) == checksum_of(other)


def as_batch(columns: dict[str, list[Any]]) -> Any:
    kinds = {"attributes": pa.map_(pa.string(), pa.string())}
    table = pa.table({name: pa.array(each, kinds.get(name)) for name, each in columns.items()})
    return batch_of_rows(table, to_topic=False)


@pytest.mark.parametrize(
    "other",
    [
        batch_of([b"a", b"b", b"", b"long" * 51]),
        batch_of([b"ab", b"", b"", b"long" * 50]),
        batch_of([b"a", b"b", b"long" * 50]),
        batch_of([b"a", b"a", b"", b"long" * 50]),
        msgspec.structs.replace(PLAIN, priority=1),
        msgspec.structs.replace(PLAIN, priority=bytes([0, 0, 0, 1])),
        msgspec.structs.replace(PLAIN, delay_ms=5),
        msgspec.structs.replace(PLAIN, groups=["g", None, None, None]),
        msgspec.structs.replace(PLAIN, groups=[None, "g", None, None]),
        msgspec.structs.replace(PLAIN, attributes=b"x"),
        msgspec.structs.replace(PLAIN, deduplication_ids=["1", "2", "3", "4"]),
    ],
)
def test_a_checksum_goes_by_everything_else(other: Any) -> None:
    assert 0 < checksum_of(other) < 2**63
    assert checksum_of(other) != checksum_of(PLAIN)


def test_exchanged_ends_are_noticed() -> None:
    """Sums of plain CRCs are often the same when two messages exchange a part."""
    for number in range(500):
        one = batch_of([f"left-{number}".encode(), f"right-{number + 1}".encode()])
        other = batch_of([f"left-{number + 1}".encode(), f"right-{number}".encode()])
        assert checksum_of(one) != checksum_of(other)


@pytest.mark.parametrize("to_topic", [False, True])
def test_other_rows_are_refused_by_the_broker(place: Place, to_topic: bool) -> None:
    place.client.create_topic(place.name, retention_messages=100)
    target = {"topic" if to_topic else "queue": place.queue.name}

    def push(*texts: str, **options: Any) -> None:
        asked = read_options(place.options(**target, **options))
        task = writing._Writing(asked, to_topic, f"p-{place.name}", 7)
        task.push(pa.table({"body": pa.array(texts)}))
        task.finish()

    push("a", "b")
    push("b", "a")
    with pytest.raises(InvalidArgument, match=r"these 2 are not written .*verifyRepeats"):
        push("a", "c")
    with pytest.raises(InvalidArgument, match="writeId 'mine' was used before"):
        push("a", "c", writeId="mine")
    push("a", "c", verifyRepeats="false")
    if to_topic:
        assert place.client.topic(place.name).info().end == 2
    else:
        assert place.queue.info().depth == 2


def test_a_push_that_never_fits_fails_at_once(place: Place) -> None:
    """Waiting helps only where the queue may become empty enough."""
    small = place.client.create_queue(f"{place.name}-small", max_depth=3)
    asked = read_options(place.options(queue=small.name, timeout="1h"))
    task = writing._Writing(asked, to_topic=False, producer=f"p-{place.name}", first=0)
    task.push(pa.table({"body": pa.array(["x"] * 4)}))
    with pytest.raises(InvalidArgument, match=r"never holds more than 3 .*repartition.*max_depth"):
        task.finish()
    assert small.info().depth == 0


class Clock:
    """Stands still but for those who wait; at some time a queue becomes empty."""

    def __init__(self, queue: Queue, freed_s: float) -> None:
        self._queue = queue
        self._freed_s = freed_s
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self._freed_s:
            self._queue.purge()


@pytest.mark.parametrize(("timeout", "waited_s"), [(None, 60.0), ("5m", 300.0)])
def test_a_full_queue_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, timeout: str | None, waited_s: float
) -> None:
    small = place.client.create_queue(f"{place.name}-small", max_depth=2)
    small.push("before")
    patience = {"timeout": timeout} if timeout else {}
    asked = read_options(place.options(queue=small.name, **patience))
    for number, is_freed in enumerate((True, False)):
        clock = Clock(small, waited_s / 2 if is_freed else 2 * waited_s)
        monkeypatch.setattr(writing, "time", clock)
        task = writing._Writing(asked, to_topic=False, producer=f"{place.name}-{number}", first=0)
        task.push(pa.table({"body": pa.array(["x", "y"])}))
        if is_freed:
            assert task.finish().messages == 2
        else:
            with pytest.raises(QueueFull):
                task.finish()
            assert waited_s < clock.now < waited_s + 1
    assert [message.text for message in small.peek(5)] == ["x", "y"]
