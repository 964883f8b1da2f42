"""What a task of the archive does with the batches that Spark hands to it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nexo.pipeline.files import GATHERED_BYTES, GATHERED_ROWS, gathered


def batch(first: int, rows: int, body: bytes = b"x") -> pa.RecordBatch:
    offsets = pa.array(range(first, first + rows), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, pa.array([body] * rows)], ["offset", "body"])


@pytest.mark.parametrize("rows", [1, 499, 500, GATHERED_ROWS, 3 * GATHERED_ROWS])
def test_small_batches_are_gathered_and_no_row_is_lost_or_moved(rows: int) -> None:
    total = 4 * GATHERED_ROWS if rows > 1 else 300
    came = [batch(first, min(rows, total - first)) for first in range(0, total, rows)]
    made = list(gathered(iter(came)))
    assert [each for some in made for each in some["offset"].to_pylist()] == list(range(total))
    assert len(made) == min(len(came), -(-total // max(rows, -(-GATHERED_ROWS // rows) * rows)))


def test_large_bodies_do_not_wait_for_many_rows() -> None:
    body = bytes(GATHERED_BYTES // 4)
    made = list(gathered(batch(number, 1, body) for number in range(8)))
    assert [each.num_rows for each in made] == [4, 4]


def test_nothing_stays_nothing() -> None:
    assert list(gathered(iter([]))) == []
