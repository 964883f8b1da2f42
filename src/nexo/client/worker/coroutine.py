"""Handlers that are coroutine functions: all slots share one event loop, in a thread of its own.

A handler that takes too long is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from nexo.client.worker.invocation import Verdict, perform_async, timed_out
from nexo.vocabulary.limits import WORKER_CLOSE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.worker.function import Function
    from nexo.client.worker.invocation import Invocation


_log = logging.getLogger("nexo.worker")


class LoopInvoker:
    """Any number of slots may call it at once."""

    def __init__(self, handler: Callable[..., Any], function: Function) -> None:
        self._handler = handler
        self._function = function
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._live, name="nexo-handlers", daemon=True)
        self._thread.start()

    def call(self, invocation: Invocation) -> Verdict:
        performed = asyncio.run_coroutine_threadsafe(
            perform_async(self._handler, invocation, self._function), self._loop
        )
        try:
            return performed.result(self._function.timeout_s)
        except TimeoutError:  # of this wait: what the handler raises is in its verdict
            performed.cancel()
            return timed_out(invocation, self._function)
        except CancelledError:
            return Verdict(error="the handler was cancelled")

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WORKER_CLOSE_S)

    def _live(self) -> None:
        with self._runner:  # leaving it cancels what handlers left behind
            while True:
                try:
                    self._loop.run_forever()
                    return
                except (KeyboardInterrupt, SystemExit) as error:
                    # By a task that a handler has started: asyncio lets these two end the loop.
                    _log.error("a task of a handler raised", exc_info=error)
