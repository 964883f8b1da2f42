"""What a task of a replay does: it pushes the waves of its rows, each under a number of its own.

The whole replay is one producer to the broker, however many waves it has: the broker remembers
only so many. Where a wave begins and ends follows from the offsets, and where it is too large for
one push, from its rows. So run again it is cut as before, and what the broker has it does not
take. One push is under way at a time: a queue that is full for a while changes no order.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nexo.spark.link import TIMEOUT_S, link_to, numbered_publish, numbered_push
from nexo.spark.outgoing import batch_of_rows
from nexo.spark.writer import runs
from nexo.vocabulary.errors import InvalidArgument, QueueFull, RateLimited, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.spark.options import Options

SENT = "sent long"
_NUMBER_BITS = 24  # pushes of one wave; its number stands above them
_PAUSE_S = 0.2


def sender(
    options: Options, producer: str, wave_messages: int, rate: float | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs on an executor, on rows in the order of their offsets; yields how many it sent."""

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, sent = time.monotonic(), 0
        for wave, rows in waves_of(batches, wave_messages):
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            for index, run in enumerate(runs(iter(rows.to_batches()))):
                _push(options, producer, (wave << _NUMBER_BITS) + index + 1, run)
            sent += rows.num_rows
        yield pa.RecordBatch.from_arrays([pa.array([sent], pa.int64())], ["sent"])

    return send


def waves_of(
    batches: Iterable[pa.RecordBatch], wave_messages: int
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each wave, whatever batches they came in."""
    number = -1
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waves = batch.column("offset").to_numpy() // wave_messages
        starts = [0, *(np.flatnonzero(np.diff(waves)) + 1).tolist(), len(waves)]
        for low, high in pairwise(starts):
            if low == high:
                continue
            if waiting and int(waves[low]) != number:
                yield number, pa.Table.from_batches(waiting)
                waiting = []
            number = int(waves[low])
            waiting.append(batch.slice(low, high - low))
    if waiting:
        yield number, pa.Table.from_batches(waiting)


def _push(options: Options, producer: str, number: int, rows: pa.Table) -> None:
    """On disk when it returns."""
    name = options.queue or options.topics[0]
    brought = _brought(options, name, producer, number, rows)
    if brought is not None and brought != rows.num_rows:
        raise InvalidArgument(
            f"{rows.num_rows} messages for {name!r} were sent before as {brought}: the lake has "
            "changed since",
            "replay what is left under another --replay-id, with --from",
        )


def _brought(options: Options, name: str, producer: str, number: int, rows: pa.Table) -> int | None:
    """How many messages the push had, now or when it was taken before. A queue that is full or
    cannot write is waited for."""
    link, until = link_to(options), time.monotonic() + TIMEOUT_S
    to_topic = options.queue is None
    ask = numbered_publish if to_topic else numbered_push
    while True:
        try:
            request = ask(name, batch_of_rows(rows, to_topic), producer, number)
            brought: int | None = link.wait(link.begin(request))
            return brought
        except (QueueFull, RateLimited, ReadOnly):
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)  # nobody tells when there is room
