"""A redrive under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.client import requests
from nexo.client.info import read_progress

if TYPE_CHECKING:
    from nexo.client.blocking.connection import Connection
    from nexo.client.info import Progress

WAIT_MS = 5_000  # one question; many of them may be asked


class Redrive:
    def __init__(self, connection: Connection, task: int) -> None:
        self._connection = connection
        self._task = task

    def progress(self) -> Progress:
        """How far it is. Raises what stopped it."""
        progress: Progress = self._connection.run(requests.redrive_progress(self._task, 0))
        return progress

    def cancel(self) -> Progress:
        """Stop after the step under way; what was moved stays moved."""
        asked = requests.call("redrive_cancel", read_progress, task=self._task)
        progress: Progress = self._connection.run(asked)
        return progress

    def wait(self) -> int:
        """Wait for its end; returns how many messages were moved."""
        while True:
            asked = requests.redrive_progress(self._task, WAIT_MS)
            progress: Progress = self._connection.run(asked)
            if progress.finished:
                return progress.moved
