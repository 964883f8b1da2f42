"""Handlers in processes: one for each slot, for work that keeps a core busy or must be ended.

A process whose handler takes too long is killed, and one that dies fails its batch; either way
the next batch gets a new one. A process ends by itself when its worker is gone.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import pickle
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.worker.function import Function, find_handler, is_coroutine_function
from nexo.client.worker.invocation import Invocation, Verdict, perform, perform_async, timed_out
from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.vocabulary.limits import WORKER_END_S, WORKER_START_S

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


_log = logging.getLogger("nexo.worker")
_spawn = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
_read_invocation = msgspec.msgpack.Decoder(Invocation).decode
_read_verdict = msgspec.msgpack.Decoder(Verdict).decode
_write = msgspec.msgpack.Encoder().encode


class Task(msgspec.Struct, frozen=True):
    """What a process is started for. `handler` is the function, or its `MODULE:HANDLER`."""

    handler: Any
    function: Function
    initializer: Callable[[], object] | None = None


def check_picklable(task: Task) -> None:
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"this handler cannot be sent to another process: {error}",
            "define it at the top of a module",
        ) from None


class ProcessInvoker:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._process: Any = None
        self._pipe: Connection[Any, Any]

    def call(self, invocation: Invocation) -> Verdict:
        if self._process is None or not self._process.is_alive():
            self._start()
        timeout_s = self._task.function.timeout_s
        try:
            self._pipe.send_bytes(_write(invocation))
            if not self._pipe.poll(timeout_s):
                self._end(kill=True)
                return timed_out(invocation, self._task.function)
            return _read_verdict(self._pipe.recv_bytes())
        except (EOFError, OSError):
            status = self._end()
            facts = {"request_id": invocation.request_id, "messages": len(invocation.ids)}
            _log.error("the handler's process ended", extra={**facts, "exit_code": status})
            return Verdict(error=f"the handler's process ended with exit code {status}")

    def close(self) -> None:
        if self._process is not None:
            self._end(kill=True)

    def _start(self) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(
            target=serve, args=(theirs, self._task), name="nexo-handler", daemon=False
        )
        self._process.start()
        theirs.close()
        try:
            if self._pipe.poll(WORKER_START_S):
                self._pipe.recv_bytes()
                return
        except EOFError:
            pass
        status = self._end(kill=True)
        raise NotReady(
            f"a process for the handler could not start (exit code {status})",
            "see its output above",
        )

    def _end(self, kill: bool = False) -> int | None:
        """Returns its exit code."""
        process, self._process = self._process, None
        self._pipe.close()
        if kill:
            process.kill()
        process.join(WORKER_END_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        status: int | None = process.exitcode
        return status


def serve(pipe: Connection[Any, Any], task: Task) -> None:
    """The life of such a process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A terminal signals all of its processes, but the worker decides what is finished.
        signal.signal(number, lambda *_: None)
    if task.initializer is not None:
        task.initializer()
    handler = find_handler(task.handler) if isinstance(task.handler, str) else task.handler
    pipe.send_bytes(b"ready")
    with asyncio.Runner() as runner:
        while True:
            try:
                invocation = _read_invocation(pipe.recv_bytes())
            except (EOFError, OSError):
                return  # the worker is gone
            if is_coroutine_function(handler):
                verdict = runner.run(perform_async(handler, invocation, task.function))
            else:
                verdict = perform(handler, invocation, task.function)
            try:
                pipe.send_bytes(_write(verdict))
            except OSError:
                return
