"""Samples of all queues of the cluster, for the lines of the console. They begin when somebody
opens a page, and end a while after the last: nodes do not ask each other for what nobody looks
at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.doors.console.history import Sampler

if TYPE_CHECKING:
    from nexo.cluster.far import Far
    from nexo.cluster.node import Node


class ClusterSampler(Sampler):
    def __init__(self, engine: Any, node: Node, far: Far) -> None:
        super().__init__(engine)
        self._node, self._far = node, far

    async def look(self) -> None:
        if await self._far.follow() and self._is_whole:
            await super().look()

    @property
    def _is_whole(self) -> bool:
        """While a shard moves its queues are nowhere: a sample without them would show that they
        were emptied, and the next that they were filled."""
        found = set(self._node.engines)
        for told in self._far.nodes.values():
            found |= told.backlogs.keys()
        return len(found) == self._node.shards
