"""The end of a broker: asked for by a signal, and over within its time whatever is stuck.

Stopping in order needs the event loop, the disk and clients that hang up. Any of them may be what
is stuck, so a thread of its own takes the signals, and asks the loop to stop. When the time is over
it says where everything stands and ends the process. That loses nothing: what was confirmed is on
disk, and the next start recovers it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_S = 20.0  # from the signal to the end, at most; the systemd unit allows a little more
LAST_WORDS_S = 1.0  # for the log: whoever reads it may be what is stuck
STOPPED_AT_ONCE = 130  # the exit code of a process that was interrupted
STUCK = 124  # and of one whose time was over, as timeout(1) has it
SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})

logger = logging.getLogger("nexo.server")


class Stopping:
    """From `begin` to `end` the signals belong to it. `ask` is called in its thread, once, with the
    name of the first; the second signal ends the process where it stands."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self.doing = "start"  # what the broker is at, for who wonders why it does not end
        self._ask = ask
        self._is_asked = False
        self._is_over = threading.Event()
        # It must not keep the process alive, nor wait for one that does not end.
        self._thread = threading.Thread(target=self._listen, name="nexo-signals", daemon=True)

    def begin(self) -> None:
        # A signal goes to any thread that does not block it: threads made from now on do as well.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._thread.start()

    def end(self) -> None:
        """The broker has stopped: nothing is left that could be stuck."""
        self._is_over.set()
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)  # wakes it up
            self._thread.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _listen(self) -> None:
        while True:
            name = signal.Signals(signal.sigwait(SIGNALS)).name
            if self._is_over.is_set():
                return
            if self._is_asked:
                _exit(STOPPED_AT_ONCE, "stopped at once", {"signal": name})
            self._is_asked = True
            self._ask(name)
            threading.Thread(target=self._count_down, name="nexo-deadline", daemon=True).start()

    def _count_down(self) -> None:
        if self._is_over.wait(STOP_S):
            return
        _exit(
            STUCK,
            "not stopped in time",
            {
                "after_s": STOP_S,
                "doing": self.doing,
                "threads": _stacks(),
                "hint": "what was confirmed is on disk, the next start recovers it; see what is "
                "stuck in threads, and the system log for disk errors",
            },
        )


def _exit(status: int, message: str, told: dict[str, object]) -> None:
    """End the process. Whoever holds the lock of the log may be stuck: it is not waited for."""

    def tell() -> None:
        logger.error(message, extra=told)
        for handler in logging.getLogger().handlers:
            handler.flush()

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(LAST_WORDS_S)
    os._exit(status)


def _stacks() -> dict[str, str]:
    """Where each thread stands, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        names.get(ident, str(ident)): "".join(traceback.format_stack(frame)).strip()
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    }
