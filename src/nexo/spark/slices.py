"""How a batch is cut for the executors."""

from __future__ import annotations

READ_MESSAGES = 32_768  # of one answer of the broker, which is one Arrow batch …
READ_BYTES = 4 * 1024 * 1024
_SLICE_MESSAGES = 100_000
_SLICE_BYTES = 32 * 1024 * 1024
_SLICES_MAX = 256  # of those that nobody has asked for


def slice_count(count: int, payload_bytes: int, least: int | None) -> int:
    """In how many slices so many messages are read, at least `least`. The bytes are an estimate
    that others change, so the answer is not the same twice: a stream asks once for each batch and
    keeps the number in its offset."""
    wanted = max(-(-count // _SLICE_MESSAGES), -(-payload_bytes // _SLICE_BYTES))
    return max(min(wanted, _SLICES_MAX), least or 1)


def cut(count: int, parts: int) -> list[tuple[int, int]]:
    """Even runs of `count` messages: `parts` of them if there are so many messages."""
    parts = min(parts, count)
    return [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]
