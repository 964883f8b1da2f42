"""Streaming queries while they run: progress is told; a failure, or a stop, ends all of them."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from nexo.pipeline.failures import SPARK_ERRORS, explained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from nexo.pipeline.status import Teller

    Sources = dict[str, tuple[int, int | None]]  # of each the rows that are done, and its lag

POLL_S = 0.2
CALM_S = 30.0  # how long a micro-batch may take to end when the job is to stop
_LOOK_S = 0.02
RESTARTS_MAX = 10
# Spark gives a Python process ten seconds to appear, which on a busy machine is not always enough.
# A query goes on from its checkpoint, so it can as well be started again.
_NOT_HEARD_OF = "failed to connect back"
LAST_WORDS_S = 10.0  # how long the last progress of an ended query may take to arrive


class Watch(StreamingQueryListener):
    """Make it before the queries are started, or it misses their first words."""

    def __init__(
        self, spark: SparkSession, teller: Teller, sources: Callable[[Any], Sources] | None = None
    ) -> None:
        """`sources` says of the progress of a query what came of each of its sources; by default
        a query is one."""
        self._spark = spark
        self._teller = teller
        self._sources = sources or self._one_source
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()
        self._ended = 0
        self._may_interrupt = True
        self._changed = threading.Condition(self._lock)
        spark.streams.addListener(self)

    def run(
        self, starts: Mapping[str, Callable[[], StreamingQuery]], should_stop: Callable[[], bool]
    ) -> None:
        """Start queries, and stay until all have ended by themselves or are to be stopped; raises
        what made one fail."""
        self._teller.tell("starting")
        queries: dict[str, StreamingQuery] = {}
        try:
            for name, start in starts.items():
                queries[name] = start()
            self._teller.tell("running")
            restarts = 0
            while not should_stop():
                # Asked first: of a query that is seen to have ended, the reason is there as well.
                goes_on = any(query.isActive for query in queries.values())
                reasons = {name: _reason(query) for name, query in queries.items()}
                for name, reason in reasons.items():
                    if _NOT_HEARD_OF in reason and restarts < RESTARTS_MAX:
                        queries[name] = starts[name]()
                        restarts += 1
                        reasons[name], goes_on = "", True
                if any(reasons.values()) or not goes_on:
                    break
                with self._lock:
                    self._changed.wait(POLL_S)
            _stop_calmly(list(queries.values()))
            with self._lock:
                everyone = len(queries) + restarts
                self._changed.wait_for(lambda: self._ended >= everyone, LAST_WORDS_S)
        finally:
            for query in queries.values():
                query.stop()
            self._spark.streams.removeListener(self)
        for query in queries.values():
            error = query.exception()
            if error is not None:
                raise explained(error)

    def stop_soon(self) -> None:
        """Stop all queries calmly, from a thread of its own: whoever calls this may be in the
        middle of a call to Spark. If there are none, the main thread is interrupted."""

        def stop() -> None:
            active: list[StreamingQuery] = []
            with contextlib.suppress(*SPARK_ERRORS):  # Java is gone, and its queries with it
                active = list(self._spark.streams.active)
            if active:
                # Whoever waited for a query may end the session while its stop is answered.
                with contextlib.suppress(*SPARK_ERRORS):
                    _stop_calmly(active)
            else:
                self._interrupt()

        threading.Thread(target=stop, name="nexo-stop", daemon=True).start()

    def work_ended(self) -> None:
        """The main thread has done what it may be interrupted in."""
        with self._lock:
            self._may_interrupt = False

    def _interrupt(self) -> None:
        with self._lock:
            if self._may_interrupt:
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGINT)  # unlike interrupt_main, ends a sleep too

    def close(self) -> None:
        """Others have started queries, and are done: those that still run are stopped, and all of
        them heard out."""
        for query in self._spark.streams.active:
            query.stop()
        with self._lock:
            self._changed.wait_for(lambda: self._ended >= len(self._names), LAST_WORDS_S)
        self._spark.streams.removeListener(self)

    # -- What Spark calls, from threads of its own --------------------------------------------

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        with self._lock:
            late = sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
            self._teller.status.late += late
            self._teller.add_all(self._sources(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            self._teller.tell("running")

    def _one_source(self, progress: Any) -> Sources:
        name = self._names.get(str(progress.id), progress.name)
        behind = lags(progress)
        return {name: (progress.numInputRows, sum(behind.values()) if behind else None)}

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            self._ended += 1
            self._changed.notify_all()


def _stop_calmly(queries: list[StreamingQuery]) -> None:
    """Let the micro-batch under way come to its end. To cut it off would be as safe, but loud."""
    until = time.monotonic() + CALM_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            time.sleep(_LOOK_S)
        query.stop()


def _reason(query: StreamingQuery) -> str:
    """Why it failed; empty: it did not."""
    return str(query.exception() or "")


def lags(progress: Any) -> dict[str, int]:
    """How many messages of each queue and topic wait that are not read yet; nothing of other
    sources."""
    behind: dict[str, int] = {}
    for source in progress.sources:
        latest, end = _told(source.latestOffset), _told(source.endOffset)
        consumer = latest.get("consumer")
        if isinstance(consumer, str):  # a queue: what is in line and not claimed
            behind[consumer] = behind.get(consumer, 0) + int(latest.get("ready", 0))
            continue
        for name in latest.keys() & end.keys():  # up to where each topic goes
            if isinstance(latest[name], int) and isinstance(end[name], int):
                behind[name] = behind.get(name, 0) + max(0, latest[name] - end[name])
    return behind


def _told(text: str | None) -> dict[str, Any]:
    """An offset of ours; of a source that says it in another way, nothing."""
    try:
        told = json.loads(text or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
