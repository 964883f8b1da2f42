"""A queue as a stream, each message exactly once.

    latestOffset(N)       batch N is in Spark's commits log: ack it, and claim batch N + 1
    partitions(N, N + 1)  N + 1 is in the offsets log: seal it. After a crash this comes first
    read(slice)           on the executors: the same messages however often it is asked

Spark calls `commit` only when the next batch is planned, and never for the last one of an
available-now run, so acks that hang on it alone would come late or never; and an ack before the
commits log would lose what a crash throws away. `latestOffset` is called after both.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nexo.spark.claims import CLAIM_TIMEOUT_MS, Claims, empty
from nexo.spark.link import link_to, raw_call
from nexo.spark.patience import Patience
from nexo.spark.slices import READ_BYTES, READ_MESSAGES, cut, slice_count
from nexo.vocabulary.errors import LeaseLost
from nexo.vocabulary.units import show_duration
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from nexo.spark.link import Link
    from nexo.spark.options import Options
    from nexo.wire.calls import Claimed, QueueFigures

    Offset = dict[str, Any]

CLAIM_MESSAGES_MAX = 2**31 - 1
CLAIM_BYTES_MAX = 256 * 1024 * 1024  # of one micro-batch, unless it is told otherwise
WAIT_MS = 200  # an idle query asks five times a second; other sources of it wait no longer
_log = logging.getLogger(__name__)


class QueueSlice(InputPartition):
    """Messages `start` to `stop` of a sealed batch, and all that is needed to read them."""

    def __init__(
        self, consumer: str, epoch: int, number: int, incarnation: int, start: int, stop: int
    ) -> None:
        self.consumer = consumer
        self.epoch = epoch
        self.number = number
        self.incarnation = incarnation
        self.start = start
        self.stop = stop


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        assert options.queue is not None
        self._options = options
        self._queue = options.queue
        self._claims: dict[str, Claims] = {}  # by consumer
        self._initial: Offset | None = None
        self._latest: Offset | None = None
        self._planned: tuple[Offset, list[QueueSlice]] | None = None
        self._left: int | None = None  # messages that an available-now run may still take
        self._counted = 0  # the last batch that was taken off them
        self._wait_ms = WAIT_MS
        self._patience = Patience(options)

    def __getstate__(self) -> dict[str, Any]:
        """What executors need: threads and epochs stay with the driver."""
        return {"_options": self._options, "_queue": self._queue}

    # -- The driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        """Asked of a query without a checkpoint, possibly twice: its consumer is named here."""
        if self._initial is None:
            self._initial = {"consumer": f"spark-{uuid.uuid4()}", "batch": 0}
            self._tell_held()
        return self._initial

    def _tell_held(self) -> None:
        """What other queries hold is not for this one; and they may never come back for it."""
        info = self._info()
        for consumer, count in info.claimed.items():
            if count:
                held_for = show_duration(info.claimed_age_ms.get(consumer, 0) // 1000)
                _log.warning(
                    "queue %s has messages claimed by the query %s, which this query does not get: "
                    "%d, for %s. If that query is gone, release them: "
                    "nexo queue release %s --consumer %s",
                    self._queue,
                    consumer,
                    count,
                    held_for,
                    self._queue,
                    consumer,
                )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.messages_max is not None:
            return ReadMaxRows(self._options.messages_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is in line now is what this run takes. Claims count too: one of them may be of
        this query's former life, and others may fall back."""
        info = self._info()
        self._left = info.ready + sum(info.claimed.values())
        rate = info.settings["max_receive_rate"]
        if rate is not None:  # the run must not end because the next message is not due yet
            self._wait_ms = WAIT_MS + int(2_000 / rate)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        claims, after = self._claims_of(start["consumer"]), start["batch"]
        count, bytes_max = self._admitted(limit)
        try:
            if self._left is not None:
                if self._left <= 0:
                    claims.ack(after)
                    return start
                count = min(count, self._left)
            elif self._patience.is_asked and self._patience.waits(self._info().ready):
                claims.ack(after)
                time.sleep(WAIT_MS / 1000)
                return start
            got = claims.claim(after, count, bytes_max, self._wait_ms)
            if not got.number and self._left is not None:
                got = self._wait_for_lapses(claims, after, count, bytes_max)
        except LeaseLost:
            if self._options.fail_on_data_loss:
                raise
            return self._begin_anew(claims, count, bytes_max) or start
        if not got.number:
            return start
        self._patience.begin()
        if self._left is not None and got.number > self._counted:
            self._left -= got.messages
            self._counted = got.number
        self._latest = self._offset_of(claims, got)
        return self._latest

    def _wait_for_lapses(self, claims: Claims, after: int, count: int, bytes_max: int) -> Claimed:
        """A query that died before Spark wrote down its first batch left it to nobody: it falls
        back by itself, and an available-now run does not end before."""
        ends = time.monotonic() + (CLAIM_TIMEOUT_MS + WAIT_MS) / 1000
        while time.monotonic() < ends and self._info().unsealed:
            got = claims.claim(after, count, bytes_max, WAIT_MS)
            if got.number:
                return got
        return claims.claim(after, count, bytes_max)  # it may have lapsed just before it was seen

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """For the Spark UI: how much waits beyond what was claimed."""
        if self._latest is None:
            return None
        info = self._info()
        return {**self._latest, "ready": info.ready, "scheduled": info.scheduled}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if end == start:
            return []
        if self._planned is None or self._planned[0] != end:
            self._planned = (end, self._plan(end))
        return self._planned[1]

    def commit(self, end: Offset) -> None:
        """By now `latestOffset` has acked it; if not, this does."""
        self._claims_of(end["consumer"]).ack(end["batch"])

    def _plan(self, end: Offset) -> list[QueueSlice]:
        claims = self._claims_of(end["consumer"])
        count, bytes_max = self._admitted(self.getDefaultReadLimit())
        try:
            sealed = claims.seal(end["batch"], count, bytes_max)
        except LeaseLost:
            if self._options.fail_on_data_loss:
                raise
            sealed = empty(end["batch"])
        self._latest = end
        if not sealed.messages:
            _log.warning(
                "batch %s of queue %s was released by an operator: it is empty", end, self._queue
            )
        parts = end.get("slices") or self._slices_of(sealed)  # older checkpoints do not say it
        return [
            QueueSlice(claims.consumer, claims.epoch, sealed.number, sealed.incarnation, *each)
            for each in cut(sealed.messages, parts)
        ]

    def _offset_of(self, claims: Claims, got: Claimed) -> Offset:
        """How the batch is cut is part of it: run again, it must be cut the same, or a sink that
        tells rows apart by their partition takes some twice and drops others."""
        slices = self._slices_of(got)
        return {"consumer": claims.consumer, "batch": got.number, "slices": slices}

    def _slices_of(self, got: Claimed) -> int:
        return slice_count(got.messages, got.payload_bytes, self._options.partitions_min)

    def _begin_anew(self, claims: Claims, count: int, bytes_max: int) -> Offset | None:
        """The checkpoint is an old copy, and what it would read again is gone: go on as another
        consumer with what is there."""
        _log.warning("skipping batches of consumer %s that were already acked", claims.consumer)
        claims.abandon()
        anew = self._claims_of(f"spark-{uuid.uuid4()}")
        got = anew.claim(0, count, bytes_max)
        return self._offset_of(anew, got) if got.number else None

    def _admitted(self, limit: ReadLimit) -> tuple[int, int]:
        """How many messages and bytes a batch may have. Spark passes one of our two limits on;
        the other one holds all the same, unless Spark asks for everything."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return CLAIM_MESSAGES_MAX, CLAIM_BYTES_MAX
        count = options.messages_max or CLAIM_MESSAGES_MAX
        bytes_max = options.bytes_max or CLAIM_BYTES_MAX
        if isinstance(limit, ReadMaxRows):
            count = min(count, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = min(bytes_max, limit.max_bytes)
        return count, bytes_max

    def _claims_of(self, consumer: str) -> Claims:
        """Both of a consumer and of the one that went on in its place: Spark still names the
        first, and to open the second again would fence its own readers."""
        claims = self._claims.get(consumer)
        if claims is None:
            claims = self._claims[consumer] = Claims(self._link(), self._queue, consumer)
        return claims

    def _info(self) -> QueueFigures:
        return self._link().call(calls.DescribeQueue(self._queue))

    def _link(self) -> Link:
        return link_to(self._options)

    # -- The executors ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from nexo.query.rows import queue_rows
        from nexo.wire.columns import raw_parts

        assert isinstance(partition, QueueSlice)
        link, at = self._link(), partition.start
        asked = link.begin(self._reading(partition, at))
        while at < partition.stop:
            answer = link.wait(asked)
            parts, came_to = raw_parts(answer.body), at
            at = msgspec.msgpack.decode(answer.head)
            if at == came_to:
                raise LeaseLost(
                    f"batch {partition.number} of consumer {partition.consumer!r} was released "
                    "while it was read",
                    "an operator released it: start the query again, which skips the batch",
                )
            unread = at - came_to - sum(part.count for part in parts)
            if unread:
                _log.warning(
                    "%d messages of queue %s cannot be read: batch %d continues without them, "
                    "and they stay in the queue",
                    unread,
                    self._queue,
                    partition.number,
                )
            if at < partition.stop:
                asked = link.begin(self._reading(partition, at))  # while Spark takes these
            if parts:
                yield queue_rows(parts, self._queue, partition.incarnation, ["sealed"] * len(parts))

    def _reading(self, partition: QueueSlice, at: int) -> Any:
        return raw_call(
            calls.ReadClaim(
                name=self._queue,
                consumer=partition.consumer,
                epoch=partition.epoch,
                number=partition.number,
                start=at,
                count=min(partition.stop - at, READ_MESSAGES),
                bytes_max=READ_BYTES,
            )
        )
