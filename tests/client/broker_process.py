"""A broker in a process of its own, so that it can be killed. Arguments: data directory, port;
it prints the port once it listens."""

from __future__ import annotations

import asyncio
import sys

from nexo.engine.process import run
from nexo.server.broker import Broker
from nexo.server.configuration import Configuration


async def main(data: str, port: int) -> None:
    ports = await Broker(Configuration(data=data, http_port=0, rpc_port=port, udp="off")).start()
    sys.stdout.write(f"{ports.rpc}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2])))
