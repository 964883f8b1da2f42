"""How a batch is cut for the executors."""

from __future__ import annotations

READ_MESSAGES = 32_768  # of one answer of the broker, which is one Arrow batch …
READ_BYTES = 4 * 1024 * 1024
_SLICE_MESSAGES = 100_000
_SLICE_BYTES = 32 * 1024 * 1024
_SLICES_MAX = 256  # of those that nobody has asked for


def slices(count: int, payload_bytes: int, least: int | None) -> list[tuple[int, int]]:
    """Even runs of `count` messages, at least `least` of them if there are so many messages."""
    wanted = max(-(-count // _SLICE_MESSAGES), -(-payload_bytes // _SLICE_BYTES))
    parts = min(max(min(wanted, _SLICES_MAX), least or 1), count)
    return [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]
