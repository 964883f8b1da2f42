"""The lake of a broker's pipeline, for the console: what its jobs tell, and what they found out.

Spark's packages are not needed to run a broker, so they are loaded when somebody first looks, and
their absence is told and not a failure.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from nexo.doors.console.spark import (
    Insights,
    Job,
    LakeState,
    QueueMinutes,
    ReasonCount,
    Table,
)
from nexo.vocabulary.errors import NexoError

KEPT_S = 10.0  # tables are written about once a minute; a page that is loaded again reads nothing
KEPT_MAX = 100  # queues whose tables are kept that long
_NO_PACKAGES = "The tables are Delta tables; pip install 'nexo-broker[spark]' to see them here."
_NO_LAKE = "There is no table yet; run: nexo pipeline run archive"
_NO_TABLES = "There are no insights of the last day yet; run: nexo pipeline run insights"


class LakeFolder:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: dict[str, tuple[float, Insights]] = {}
        self._state: tuple[float, LakeState] = (0.0, LakeState())

    async def jobs(self) -> list[Job]:
        return await asyncio.to_thread(self._read_jobs)

    async def tables(self) -> LakeState:
        kept_s, found = self._state
        if kept_s and time.monotonic() - kept_s < KEPT_S:
            return found
        found = await asyncio.to_thread(self._read_tables)
        self._state = (time.monotonic(), found)
        return found

    async def insights(self, queue: str) -> Insights:
        kept_s, found = self._kept.get(queue, (0.0, Insights()))
        if kept_s and time.monotonic() - kept_s < KEPT_S:
            return found
        found = await asyncio.to_thread(self._read_insights, queue)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[queue] = (time.monotonic(), found)
        return found

    def _read_jobs(self) -> list[Job]:
        from nexo.pipeline.lake import Lake
        from nexo.pipeline.status import read_statuses

        try:
            statuses = read_statuses(Lake(self.folder))
        except (OSError, msgspec.DecodeError):  # a folder that is not there, or not ours
            return []
        return [
            Job(
                name=each.job,
                state=each.state,
                rows=each.rows,
                rows_per_second=each.rows_per_second,
                lag=each.lag,
                batches=each.batches,
                updated_ms=round(each.updated_at.timestamp() * 1000) if each.updated_at else 0,
                error=each.error,
            )
            for each in statuses
        ]

    def _read_tables(self) -> LakeState:
        from nexo.pipeline.lake import Lake

        try:
            from nexo.pipeline.compact import table_states
        except ImportError:
            return LakeState(why=_NO_PACKAGES)
        try:
            found = table_states(Lake(self.folder))
        except NexoError as error:
            return LakeState(why=f"The tables cannot be read: {error}")
        tables = [Table(**msgspec.structs.asdict(each)) for each in found]
        return LakeState(tables) if tables else LakeState(why=_NO_LAKE)

    def _read_insights(self, queue: str) -> Insights:
        from nexo.pipeline.lake import Lake

        try:
            from nexo.pipeline.tables import queue_day
        except ImportError:
            return Insights(why=_NO_PACKAGES)
        try:
            day = queue_day(Lake(self.folder), queue)
        except NexoError as error:
            return Insights(why=f"The tables cannot be read: {error}")
        if not day.queues:
            return Insights(why=_NO_TABLES)
        minutes = [round(each.timestamp()) for each in day.columns.pop("minute")]
        lines = msgspec.convert({"minute_s": minutes, **day.columns}, QueueMinutes)
        return Insights(day.queues, lines, [ReasonCount(*each) for each in day.reasons])
