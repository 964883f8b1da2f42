"""What a write is called: the name by which the broker knows what it has taken already.

A batch write inside `foreachBatch` has the ids of the query and of the micro-batch, which only its
tasks are told, and a counter: the how manieth write of that micro-batch it is. Spark plans a write
and commits it in processes that it starts on the driver's machine, so the counter is in a file
between them, in the folder that Spark keeps for this application and removes with it. A
micro-batch that runs again counts from the beginning, by the execution that it is part of.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_EXECUTION = "spark.sql.execution.root.id"  # that of the micro-batch, new when it runs again
_FOLDERS = "SPARK_LOCAL_DIRS"
_FILE = "nexo-writes.json"
_NUMBER_BITS = 24  # runs of one partition in one micro-batch; its number stands above them

Done = dict[str, tuple[str, int]]  # by query: the run of a micro-batch, and how many writes it did


class MicroBatch(NamedTuple):
    """The micro-batch that a task works for; `run` tells one that runs again from before."""

    query: str
    number: int
    run: str

    @property
    def first(self) -> int:
        """Below the numbers of its pushes."""
        return self.number << _NUMBER_BITS


def micro_batch_of(context: Any) -> MicroBatch | None:
    """None if the task is no part of a streaming query, or Spark does not say of which."""
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query is None or number is None:
        return None
    return MicroBatch(query, int(number), f"{number}/{context.getLocalProperty(_EXECUTION)}")


def done_writes() -> Done:
    """The writes of each query's last micro-batch that are done. Asked when one is planned."""
    with _Ledger() as file:
        return _read(file) if file is not None else {}


def place_of(done: Done, batch: MicroBatch) -> int:
    """How many writes of this micro-batch were done before."""
    run, count = done.get(batch.query, ("", 0))
    return count if run == batch.run else 0


def note_done(batches: Iterable[MicroBatch]) -> None:
    """A write of this micro-batch is done; all of its tasks name the same one."""
    for batch in set(batches):
        with _Ledger() as file:
            if file is None:
                return
            done = _read(file)
            done[batch.query] = (batch.run, place_of(done, batch) + 1)
            file.seek(0)
            file.truncate()
            json.dump(done, file)


class _Ledger:
    """The file, for us alone; None where Spark does not say which folder it has."""

    def __enter__(self) -> IO[str] | None:
        folder = os.environ.get(_FOLDERS, "").split(",")[0]
        self._file: IO[str] | None = None
        if folder and Path(folder).is_dir():
            self._file = (Path(folder) / _FILE).open("a+", encoding="utf-8")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        return self._file

    def __exit__(self, *failure: object) -> None:
        if self._file is not None:
            self._file.close()


def _read(file: IO[str]) -> Done:
    file.seek(0)
    text = file.read()
    return {query: (run, count) for query, (run, count) in json.loads(text or "{}").items()}
