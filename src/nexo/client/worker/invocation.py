"""One call of a handler: what it is given, and what its answer means for the messages, by the rules
of Lambda.

| answer | meaning |
|---|---|
| anything without `batchItemFailures` | all done |
| `batchItemFailures` is an empty list or None | all done |
| `batchItemFailures` names some of the messages | those failed, the others are done |
| `batchItemFailures` is malformed, or names a message that was not in the batch | all failed |

Beyond Lambda, a failed item may carry a `reason`, which its dead letter then tells.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from nexo.client import tracing
from nexo.client.message import reason_of
from nexo.client.worker.function import Caught

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nexo.client.worker.function import Function

LISTED = "the handler listed it in batchItemFailures"
_KEY, _ITEM = "batchItemFailures", "itemIdentifier"
_BYTES_PER_MB = 1024 * 1024

_log = logging.getLogger("nexo.worker")


class Invocation(msgspec.Struct, frozen=True):
    request_id: str
    ids: list[str]
    event: dict[str, Any]


class Context:
    """`handler(event, context)`: who is called, by what name, and how much time is left. Its names
    are those of Lambda's."""

    function_version = "$LATEST"
    identity = None
    client_context = None

    def __init__(self, function: Function, request_id: str, remaining_s: float) -> None:
        name, place = function.name, f"{function.region}:{function.account}"
        self.function_name = name
        self.invoked_function_arn: str = f"arn:aws:lambda:{place}:function:{name}"
        self.memory_limit_in_mb: int = _memory_mb()
        self.aws_request_id = request_id
        self.log_group_name: str = f"/aws/lambda/{name}"
        self.log_stream_name: str = f"nexo-worker/{os.getpid()}"
        self._ends = time.monotonic() + remaining_s

    def get_remaining_time_in_millis(self) -> int:
        """How long the invocation may still take before its messages go back."""
        return max(0, round((self._ends - time.monotonic()) * 1000))

    def __repr__(self) -> str:
        return f"<Context {self.aws_request_id} of {self.function_name}>"


class Verdict(msgspec.Struct, frozen=True):
    """`error` is why all of the batch failed; else `failed` has the reason of each that did."""

    failed: dict[str, str] = {}
    error: str | None = None


DONE = Verdict()


def failure(error: BaseException) -> Verdict:
    """The verdict of a handler that raised."""
    return Verdict(error=reason_of(error))


def read_answer(answer: Any, ids: Collection[str]) -> Verdict:
    """The verdict of a handler that returned, on the messages with these ids."""
    if not isinstance(answer, Mapping) or answer.get(_KEY) is None:
        return DONE
    items = answer[_KEY]
    if not isinstance(items, (list, tuple)):
        return _malformed(f"it is {items!r:.60}, not a list")
    failed: dict[str, str] = {}
    for item in items:
        found = item.get(_ITEM) if isinstance(item, Mapping) else None
        if not isinstance(found, str) or not found:
            return _malformed(f"{item!r:.80} has no {_ITEM}")
        if found not in ids:
            return _malformed(f"{found!r:.80} is not in the batch")
        failed[found] = str(item.get("reason") or LISTED)
    return Verdict(failed) if failed else DONE


class Invoker(Protocol):
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
    facts = {"request_id": invocation.request_id, "messages": len(invocation.ids)}
    # An exception may not even be able to say what it is, and whoever formats the log may ask it.
    with Caught():
        _log.error("the handler raised", exc_info=caught.error, extra=facts)
    with Caught():
        return failure(caught.error)
    return Verdict(error=type(caught.error).__name__)


def timed_out(invocation: Invocation, function: Function) -> Verdict:
    facts = {"request_id": invocation.request_id, "messages": len(invocation.ids)}
    _log.error("the handler took too long", extra={**facts, "timeout_s": function.timeout_s})
    return Verdict(error=f"timed out after {function.timeout_s:g} s")


def _malformed(what: str) -> Verdict:
    return Verdict(error=f"the handler's {_KEY} is malformed: {what}")


def _memory_mb() -> int:
    """What this machine has: nothing holds a handler to less."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _BYTES_PER_MB
    except (AttributeError, OSError, ValueError):  # not on every system
        return 0
