"""A broker that is alone has nothing of the cluster."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import asyncio, sys
from nexo.server.configuration import Configuration
from nexo.server.service import broker_of
async def main():
    broker = broker_of(Configuration(data=":memory:", http_port=0, rpc_port=0, udp_port=0))
    await broker.start()
    await broker.stop()
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("nexo.cluster", "psycopg"))])
"""


def test_it_is_not_even_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
