"""The audit log of all nodes: each keeps its own entries, and tells the others of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.access.audit import Audit, AuditEntry
from nexo.cluster.others import joined
from nexo.cluster.questions import AskAudit

if TYPE_CHECKING:
    from nexo.cluster.others import Others


class ClusterAudit(Audit):
    """Written here, read everywhere."""

    def __init__(self, others: Others) -> None:
        super().__init__(None, tell=True)
        self._others = others
        self._loop = asyncio.get_running_loop()

    def read_own(self, limit: int) -> list[AuditEntry]:
        return super().read(limit)

    def read(self, limit: int) -> list[AuditEntry]:
        """To be called in a thread: that waits for the other nodes."""
        asked = asyncio.run_coroutine_threadsafe(self._others.ask_all(AskAudit(limit)), self._loop)
        others = joined(asked.result().values(), list[AuditEntry])
        found = [*self.read_own(limit), *others]
        return sorted(found, key=lambda each: each.at_ms, reverse=True)[:limit]
