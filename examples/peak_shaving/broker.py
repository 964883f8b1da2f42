"""A broker for the length of the example: `nexo serve` with its data in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY_S = 30.0


@contextlib.contextmanager
def own_broker(folder: Path) -> Iterator[str]:
    """Start it on free ports; gives its URL."""
    ports = folder / "ports.json"
    nexo = [sys.executable, "-c", "from nexo.cli.main import main; main()"]
    flags = ["--data", str(folder / "data"), "--ports-file", str(ports)]
    for door in ("http", "rpc", "udp"):
        flags += [f"--{door}-port", "0"]
    broker = subprocess.Popen(
        [*nexo, "serve", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        give_up = time.monotonic() + READY_S
        while not ports.exists():
            if broker.poll() is not None or time.monotonic() > give_up:
                raise SystemExit("the broker did not start; try: nexo serve")
            time.sleep(0.02)
        yield f"nexo://127.0.0.1:{json.loads(ports.read_text())['rpc']}"
    finally:
        broker.terminate()
        broker.wait()
