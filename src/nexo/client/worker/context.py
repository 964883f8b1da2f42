"""The context of an invocation, with the names that Lambda's has."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.client.worker.function import Function

_BYTES_PER_MB = 1024 * 1024


class Context:
    """`handler(event, context)`: who is called, by what name, and how much time is left."""

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


def _memory_mb() -> int:
    """What this machine has: nothing holds a handler to less."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _BYTES_PER_MB
    except (AttributeError, OSError, ValueError):  # not on every system
        return 0
