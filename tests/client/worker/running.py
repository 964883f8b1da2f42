"""A worker in a thread of the test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo import NexoError, Worker
    from nexo.client.worker.batch import Figures

TIME_LIMIT_S = 30.0


class Running:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.failure: NexoError | None = None
        self._thread = threading.Thread(target=self._run, name="worker")
        self._thread.start()

    def stop(self) -> Figures:
        """In order: what runs is finished."""
        self.worker.stop()
        return self.wait()

    def wait(self) -> Figures:
        self._thread.join(TIME_LIMIT_S)
        assert not self._thread.is_alive(), "the worker did not stop"
        return self.worker.figures

    def _run(self) -> None:
        from nexo import NexoError

        try:
            self.worker.run()
        except NexoError as error:
            self.failure = error
