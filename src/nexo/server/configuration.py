"""Every setting of the broker with its default, in one place.

A setting comes from its flag, else from the environment (`NEXO_` and its name in capitals), else
from `nexo.toml`, else it has the default that stands here.
"""

from __future__ import annotations

import msgspec

from nexo.vocabulary.limits import MEMORY_LIMIT_BYTES


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nexo serve` without any of these runs a broker on loopback with its data in ./nexo-data."""

    data: str = "nexo-data"  # the data directory; :memory: keeps nothing
    host: str = "127.0.0.1"  # the address to listen on
    rpc_port: int = 9325  # the native protocol; 0: any free port
    memory_limit: int = MEMORY_LIMIT_BYTES  # bytes of payload kept in memory
