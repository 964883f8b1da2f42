"""Samples of all queues of the cluster, for the lines of the console. They begin when somebody
opens a page, and end a while after the last: nodes do not ask each other for what nobody looks
at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.doors.console.history import Sampler

if TYPE_CHECKING:
    from nexo.cluster.far import Far


class ClusterSampler(Sampler):
    def __init__(self, engine: Any, far: Far) -> None:
        super().__init__(engine)
        self._far = far

    async def look(self) -> None:
        if await self._far.follow():
            await super().look()
