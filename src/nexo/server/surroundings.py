"""What is known of a broker outside of its engine: its version, its connections, its disk."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from nexo import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

_STATM = Path("/proc/self/statm")


class BrokerSurroundings:
    def __init__(self, data: Path | None, connections: dict[str, Callable[[], int]]) -> None:
        self.version = __version__
        self._data = data
        self._connections = connections

    def connections(self) -> dict[str, int]:
        """Open connections by door."""
        return {door: count() for door, count in self._connections.items()}

    def resident_bytes(self) -> int:
        """The memory of the process: now where Linux tells it, else the most it ever was."""
        try:
            pages = int(_STATM.read_text(encoding="ascii").split()[1])
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return pages * resource.getpagesize()

    def disk_free_bytes(self) -> int | None:
        if self._data is None:
            return None
        try:
            return shutil.disk_usage(self._data).free
        except OSError:
            return None
