"""Columns: what Arrow is given is what the broker holds, and what Spark has declared."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nexo.query.rows import QUEUE_SCHEMA, TOPIC_SCHEMA, declared, id_column, queue_rows, topic_rows
from nexo.spark import writer
from nexo.spark.slices import cut, slice_count
from nexo.spark.topic_stream import shared_out
from nexo.spark.writer import RUN_ROWS_MAX, RUN_ROWS_WIDE, batch_of_rows, runs
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import Batch, DeadLetter, Origin, batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import first_seq, message_id
from nexo.wire.columns import RawPart, WirePart, encode_parts, raw_parts

if TYPE_CHECKING:
    from collections.abc import Iterator


def parts_of(*parts: WirePart) -> list[RawPart]:
    return raw_parts(memoryview(b"".join(encode_parts(parts))))


def part(first: int, batch: Batch, attempts: int = 1, created_ms: int = 1_000) -> WirePart:
    return WirePart(first, created_ms, 0, attempts, batch)


@pytest.mark.parametrize(("with_state", "schema"), [(True, QUEUE_SCHEMA), (False, TOPIC_SCHEMA)])
@pytest.mark.usefixtures("spark")  # only a running Spark reads its own words
def test_the_declared_schema_is_the_one_of_arrow(with_state: bool, schema: pa.Schema) -> None:
    read = StructType.fromDDL(declared(with_state))
    assert isinstance(read, StructType)
    assert to_arrow_schema(read, timezone="UTC").equals(schema)


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**56 - 1), min_size=1))
def test_ids(incarnation: int, numbers: list[int]) -> None:
    column = id_column(incarnation, np.array(numbers, dtype=np.uint64))
    column.validate(full=True)
    assert column.to_pylist() == [message_id(incarnation, number) for number in numbers]


def test_rows_of_a_queue() -> None:
    letter = DeadLetter("boom", "orders", 3, 5_000, 6_000)
    moved = msgspec.structs.replace(
        batch_of([b"c", b""]),
        groups=["g", None],
        attributes=[encode_attributes({"k": "v"}), None],
        origins=[Origin("of-old", 2_000, letter), None],
    )
    high = first_seq(9) + 4
    rows = queue_rows(
        parts_of(part(7, batch_of([b"a", b"bb"])), part(high, moved, attempts=5)),
        "orders_dlq",
        incarnation=1,
        states=["ready", "received"],
    )
    rows.validate(full=True)
    assert rows.schema.equals(QUEUE_SCHEMA)
    assert rows["body"].to_pylist() == [b"a", b"bb", b"c", b""]
    assert rows["id"].to_pylist() == [
        message_id(1, 7),
        message_id(1, 8),
        "of-old",
        message_id(1, high + 1),
    ]
    assert rows["priority"].to_pylist() == [0, 0, 9, 9]
    assert rows["attempts"].to_pylist() == [1, 1, 5, 5]
    assert rows["created_at"].to_pylist() == [datetime.fromtimestamp(s, UTC) for s in (1, 1, 2, 1)]
    assert rows["group_id"].to_pylist() == [None, None, "g", None]
    assert rows["offset"].to_pylist() == [7, 8, high, high + 1]
    assert rows["source"].to_pylist() == ["orders_dlq"] * 4
    assert rows["state"].to_pylist() == ["ready", "ready", "received", "received"]
    plain, _, dead, _ = rows["attributes"].to_pylist()
    assert plain is None
    assert dict(dead) == {
        "k": "v",
        "nexo.dead_letter.reason": "boom",
        "nexo.dead_letter.source": "orders",
        "nexo.dead_letter.attempts": "3",
        "nexo.dead_letter.first_failed_at": "1970-01-01T00:00:05.000Z",
        "nexo.dead_letter.last_failed_at": "1970-01-01T00:00:06.000Z",
    }


def test_rows_of_a_topic() -> None:
    batch = msgspec.structs.replace(
        batch_of([b"a", b"b"]), attributes=encode_attributes({"k": "v"})
    )
    rows = topic_rows(parts_of(part(3, batch)), "news")
    rows.validate(full=True)
    assert rows.schema.equals(TOPIC_SCHEMA)
    assert rows["id"].to_pylist() == ["news:3", "news:4"]
    assert rows["offset"].to_pylist() == [3, 4]
    assert rows["attributes"].to_pylist() == [[("k", "v")]] * 2


@given(st.integers(1, 10**7), st.integers(0, 10**10), st.integers(1, 300) | st.none())
def test_slices_cover_everything_once(count: int, size: int, least: int | None) -> None:
    slices = cut(count, slice_count(count, size, least))
    assert slices[0][0] == 0
    assert slices[-1][1] == count
    assert all(low < high for low, high in slices)
    assert all(left[1] == right[0] for left, right in pairwise(slices))
    assert len(slices) >= min(least or 1, count)


def test_nothing_has_no_slices() -> None:
    assert cut(0, slice_count(0, 0, 5)) == []


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 1000), min_size=1), st.data())
def test_a_limit_is_shared_out_exactly(waiting: dict[str, int], data: Any) -> None:
    total = sum(waiting.values())
    if total:
        admitted = data.draw(st.integers(1, total))
        shares = shared_out(admitted, waiting)
        assert sum(shares.values()) == admitted
        assert all(0 <= shares[name] <= count for name, count in waiting.items())


def cut_into(bodies: list[bytes], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(bodies), size):
        yield pa.record_batch({"body": pa.array(bodies[at : at + size], pa.binary())})


@given(st.lists(st.integers(0, 1_200), min_size=1, max_size=12), st.integers(1, 12))
def test_runs_do_not_depend_on_how_spark_cuts(lengths: list[int], size: int) -> None:
    bodies = [bytes(length) for length in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "RUN_BYTES_MAX", 3_000)
        whole = [run["body"].to_pylist() for run in runs(cut_into(bodies, len(bodies)))]
        assert [run["body"].to_pylist() for run in runs(cut_into(bodies, size))] == whole
    assert [body for run in whole for body in run] == bodies
    assert all(sum(map(len, run)) <= 3_000 or len(run) == 1 for run in whole)


def test_runs_of_many_rows() -> None:
    bodies = [b""] * (RUN_ROWS_MAX + 5)
    assert [run.num_rows for run in runs(cut_into(bodies, 999))] == [RUN_ROWS_MAX, 5]
    wide = pa.record_batch(
        {"body": pa.array([b""] * 10_001), "attributes": pa.nulls(10_001, pa.string())}
    )
    assert [run.num_rows for run in runs(iter([wide]))] == [RUN_ROWS_WIDE, 1]


def test_rows_become_a_batch() -> None:
    rows = pa.table(
        {
            "body": pa.array(["x", "a", "bé", ""]),
            "priority": pa.array([0, 0, 9, None]),
            "delay": pa.array([None, 0.5, None, 2.0]),
            "attributes": pa.array(
                [None, [("k", "v"), ("nexo.dead_letter.reason", "x")], None, []],
                pa.map_(pa.string(), pa.string()),
            ),
            "group_id": pa.array([None, "g", None, None]),
            "deduplication_id": pa.array([None, None, None, None], pa.string()),
        }
    ).slice(1)
    batch = batch_of_rows(rows, to_topic=False)
    assert batch.bodies() == [b"a", "bé".encode(), b""]
    assert batch.priority == bytes([0, 9, 0])
    assert batch.delay_ms == [500, 0, 2000]
    assert batch.attributes == [encode_attributes({"k": "v"}), None, None]
    assert batch.groups == ["g", None, None]
    assert batch.deduplication_ids is None
    assert batch_of_rows(rows, to_topic=True).groups is None


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"body": [None]}, "no body"),
        ({"body": ["a"], "priority": [256]}, "priority 256"),
        ({"body": ["a"], "priority": [-1]}, "priority -1"),
        ({"body": ["a"], "delay": [-1.0]}, "delay of -1.0 s"),
    ],
)
def test_rows_that_cannot_be_pushed(columns: dict[str, list[Any]], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        batch_of_rows(pa.table(columns), to_topic=False)
