"""Listens to the queries, and writes down how they are doing."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from examples.gps.progress_file import Batch, Told, read_progress, write_progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Progress(StreamingQueryListener):
    """Make it before the queries are started. A driver that comes after another goes on with its
    totals; a batch that is run again is counted again."""

    def __init__(self, spark: SparkSession, file: Path) -> None:
        self._file = file
        before = read_progress(file)
        ui = spark.sparkContext.uiWebUrl or ""
        self._told = Told("starting", os.getpid(), ui, before.queries if before else {})
        self._lock = threading.Lock()
        spark.streams.addListener(self)

    def tell(self, state: str) -> None:
        with self._lock:
            self._told.state = state
            write_progress(self._file, self._told)

    # -- What Spark calls, from threads of its own --------------------------------------------

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        with self._lock:
            batch = self._told.queries.setdefault(progress.name, Batch())
            batch.number = progress.batchId
            if progress.numInputRows:  # else it only closed windows
                batch.rows = progress.numInputRows
                batch.milliseconds = progress.durationMs.get("triggerExecution", 0)
            batch.rows_total += progress.numInputRows
            batch.late_total += sum(
                each.numRowsDroppedByWatermark for each in progress.stateOperators
            )
            write_progress(self._file, self._told)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
