"""One call of a handler: what it is given, and what came of it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from nexo.client import tracing
from nexo.client.worker.caught import Caught
from nexo.client.worker.context import Context
from nexo.client.worker.verdict import Verdict, failure, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.worker.function import Function

_log = logging.getLogger("nexo.worker")


class Invocation(msgspec.Struct, frozen=True):
    request_id: str
    ids: list[str]
    event: dict[str, Any]


class Caller(Protocol):
    """Calls a handler for one slot, and waits for it no longer than its timeout."""

    def call(self, invocation: Invocation) -> Verdict: ...

    def close(self) -> None:
        """Nothing more is called. What still runs is left alone, or ended if it can be."""


def perform(handler: Callable[..., Any], invocation: Invocation, function: Function) -> Verdict:
    """Call the handler here and now."""
    context = Context(function, invocation.request_id, function.timeout_s)
    handling = tracing.begin_invocation(invocation.event)
    verdict: Verdict | None = None
    with Caught() as caught:
        verdict = read_answer(handler(invocation.event, context), invocation.ids)
    if handling is not None:
        handling.end(caught.error)
    return verdict if verdict is not None else raised(caught, invocation)


async def perform_async(
    handler: Callable[..., Any], invocation: Invocation, function: Function
) -> Verdict:
    """The same for a coroutine function."""
    context = Context(function, invocation.request_id, function.timeout_s)
    handling = tracing.begin_invocation(invocation.event)
    verdict: Verdict | None = None
    # These are how a coroutine is ended: by its timeout, and with its loop.
    with Caught(asyncio.CancelledError, GeneratorExit) as caught:
        verdict = read_answer(await handler(invocation.event, context), invocation.ids)
    if handling is not None:
        handling.end(caught.error)
    return verdict if verdict is not None else raised(caught, invocation)


def raised(caught: Caught, invocation: Invocation) -> Verdict:
    """The whole trace goes to the log, its last line with the messages."""
    assert caught.error is not None
    told = {"request_id": invocation.request_id, "messages": len(invocation.ids)}
    _log.error("the handler raised", exc_info=caught.error, extra=told)
    with Caught():  # an exception may not even be able to say what it is
        return failure(caught.error)
    return Verdict(error=type(caught.error).__name__)


def timed_out(invocation: Invocation, function: Function) -> Verdict:
    told = {"request_id": invocation.request_id, "messages": len(invocation.ids)}
    _log.error("the handler took too long", extra={**told, "timeout_s": function.timeout_s})
    return Verdict(error=f"timed out after {function.timeout_s:g} s")
