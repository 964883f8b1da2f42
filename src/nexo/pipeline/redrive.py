"""redrive: dead letters go back to work, chosen by SQL, and repaired by SQL if need be.

The letters are looked at in a snapshot, which takes nothing. Those that match are named to the
broker by their sequence numbers, some at a time, together with their new bodies; it moves them in
one commit, and passes over those that are not there any more. So killed at any moment and run
again, a message is in one place: where it was, or where it went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f

from nexo.pipeline.failures import checked_sql
from nexo.spark.link import link_to
from nexo.spark.options import Options, read_options
from nexo.vocabulary.errors import InvalidArgument
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from nexo.pipeline.job import JobRun

CALL_MESSAGES = 1_000
CALL_BYTES = 8 * 1024 * 1024
_MOVED = "moved long, skipped long, missing long"


class Redrive(msgspec.Struct, frozen=True):
    queue: str
    to: str | None = None
    where: str | None = None
    set_body: str | None = None
    dry_run: bool = False


def run(job: JobRun, asked: Redrive) -> dict[str, int]:
    """How many letters there are, match and were moved."""
    options = read_options({**job.broker, "queue": asked.queue})
    with job.client() as client:
        client.queue(asked.queue).info()
        if asked.to is not None:
            client.queue(asked.to).info()
    incarnation = _incarnation(options, asked.queue)  # before the look: the same queue, or none
    letters = _letters(job, asked)
    found = _counted(letters)
    job.teller.add(asked.queue, 0, found["matched"])
    if asked.dry_run or not found["matched"]:
        return found
    if found["empty"]:
        raise InvalidArgument(
            f"--set-body gives NULL for {found['empty']} messages",
            "leave them out with --where, or write coalesce(…, text)",
        )
    # One task, so that they keep their order; what has changed since they were counted is seen.
    # A letter that came since and has no new body stays: nobody was told of it.
    chosen = letters.where("matches AND new_body IS NOT NULL").select("offset", "new_body")
    chosen = chosen.coalesce(1)
    with_bodies = asked.set_body is not None
    move = _mover(options, asked.queue, asked.to, incarnation, with_bodies)
    for row in chosen.mapInArrow(move, _MOVED).toLocalIterator():
        for name in ("moved", "skipped", "missing"):
            found[name] += row[name]
        job.teller.add(asked.queue, row["moved"], max(0, found["matched"] - found["moved"]))
    return found


def _letters(job: JobRun, asked: Redrive) -> DataFrame:
    """What is in line, with `matches` and `new_body`."""
    letters = job.table(queue=asked.queue).where("state = 'ready'")
    letters = letters.withColumn("text", f.col("body").cast("string"))
    where, set_body = asked.where or "true", asked.set_body or "body"
    checked_sql("--where", where, lambda sql: letters.where(sql).schema)
    checked_sql("--set-body", set_body, lambda sql: letters.select(f.expr(sql).cast("binary")))
    return letters.select(
        "offset",
        f.coalesce(f.expr(where), f.lit(False)).alias("matches"),
        f.expr(set_body).cast("binary").alias("new_body"),
    )


def _counted(letters: DataFrame) -> dict[str, int]:
    row = letters.agg(
        f.count("*").alias("letters"),
        f.count_if("matches").alias("matched"),
        f.count_if(f.col("matches") & f.col("new_body").isNull()).alias("empty"),
    ).first()
    assert row is not None
    return {**row.asDict(), "moved": 0, "skipped": 0, "missing": 0}


def _incarnation(options: Options, queue: str) -> int:
    link = link_to(options)
    seen = link.call(calls.OpenSnapshot(queue))
    link.call(calls.CloseSnapshot(queue, seen.snapshot))
    return seen.incarnation


def _mover(
    options: Options, queue: str, to: str | None, incarnation: int, with_bodies: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs on an executor: it has the letters moved, and yields what came of it."""

    def move(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        link = link_to(options)
        for rows in batches:
            for part in parts(rows.sort_by("offset")):
                done = link.call(
                    calls.RedriveChosen(
                        name=queue,
                        incarnation=incarnation,
                        seqs=part.column("offset").to_pylist(),
                        to=to,
                        bodies=part.column("new_body").to_pylist() if with_bodies else None,
                    )
                )
                columns = [pa.array([each]) for each in (done.moved, done.skipped, done.missing)]
                yield pa.RecordBatch.from_arrays(columns, ["moved", "skipped", "missing"])

    return move


def parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in parts that one call may carry."""
    start = size = 0
    for index, body in enumerate(rows.column("new_body")):
        size += len(body.as_buffer())
        if index - start + 1 >= CALL_MESSAGES or size >= CALL_BYTES:
            yield rows.slice(start, index + 1 - start)
            start, size = index + 1, 0
    if start < rows.num_rows:
        yield rows.slice(start)
