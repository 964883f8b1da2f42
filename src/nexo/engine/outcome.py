"""How a call ended, whatever it raised, and who is told of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import Fenced, NexoError, NotReady, ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable


def outcome_of(job: Callable[..., Any], *given: Any) -> tuple[Any, Exception | None]:
    """The result of a call, or what it raised: the one place that catches everything, because
    whoever waits for the call must be told, whatever it was."""
    try:
        return job(*given), None
    except Exception as caught:
        return None, caught


def report(message: str, error: BaseException) -> None:
    """Tell of what should never happen: the log of the broker has it, with its traceback."""
    context = {"message": message, "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def refusal_of(error: BaseException) -> ReadOnly | NotReady:
    """What those are told who wanted something written, when the journal raises this. `NotReady`:
    the journal may belong to another by now, so what is in memory is not to be used either."""
    if isinstance(error, (ReadOnly, NotReady)):
        return error
    if isinstance(error, Fenced):
        return NotReady(error.message, error.hint)
    if isinstance(error, NexoError):
        return ReadOnly(error.message, error.hint)
    return ReadOnly(f"the journal failed: {error}", "see the broker's log")
