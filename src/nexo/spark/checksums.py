"""A checksum of the messages of a push, by which the broker knows it again.

It does not depend on their order: a partition that was shuffled comes in another one when Spark
runs its task again. Each message has a CRC-32 of everything in it; these are stirred, so that no
two changes make up for each other, and added up.
"""

from __future__ import annotations

from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from nexo.vocabulary.limits import INTEGER_MAX

if TYPE_CHECKING:
    from nexo.vocabulary.batch import Batch


def checksum_of(batch: Batch) -> int:
    """From 1 to what the protocol has room for: 0 is none."""
    payload = memoryview(batch.payload)
    bodies = (payload[low:high] for low, high in pairwise(batch.offsets))
    sums = np.fromiter(map(crc32, bodies, _seeds(batch)), np.uint64, batch.count)
    return int(_stirred(sums).sum(dtype=np.uint64)) & INTEGER_MAX or 1


def _seeds(batch: Batch) -> Any:
    """What each message has besides its body: for most batches the same throughout."""
    columns = (
        batch.priority,
        batch.delay_ms,
        batch.attributes,
        batch.groups,
        batch.deduplication_ids,
    )
    various = [
        isinstance(column, list) or (column is batch.priority and isinstance(column, bytes))
        for column in columns
    ]
    if not any(various):
        return repeat(_seed(columns))
    spread = [
        each if is_list else repeat(each, batch.count)
        for each, is_list in zip(columns, various, strict=True)
    ]
    return map(_seed, zip(*spread, strict=True))


def _seed(values: tuple[Any, ...]) -> int:
    return crc32(repr(values).encode())


def _stirred(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The finalizer of SplitMix64: every bit of the result depends on all of a value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    stirred: np.ndarray[Any, Any] = values ^ (values >> np.uint64(31))
    return stirred
