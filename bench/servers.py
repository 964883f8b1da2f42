"""Servers of others that this broker is measured beside: how they are started, on a port of their
own, and what they cost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
_MOUNTS = Path("/proc/mounts")


class Server(NamedTuple):
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Seconds of CPU that it has used with all its threads, as Linux counts it."""
        told = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        fields = told.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def running(command: str, environment: str, directory: Path) -> Iterator[Server]:
    """What a server gets stands as `{port}`, `{below}` (another port) and `{directory}` in its
    command and its environment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    given = {"port": port, "below": port - 10_000, "directory": directory.absolute()}
    variables = dict(each.split("=", 1) for each in environment.format(**given).split())
    started = subprocess.Popen(
        command.format(**given).split(),
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await(port, started)
        yield Server(port, started.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have died
            os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(START_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def kept_on(directory: Path) -> str:
    """Where what is written there is kept: on disk, unless the file system is in memory."""
    if not _MOUNTS.exists():
        return "on disk"
    path, kinds = str(directory.absolute()), {}
    for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
        _, mounted, kind, *_ = line.split()
        if mounted == "/" or path == mounted or path.startswith(f"{mounted}/"):
            kinds[len(mounted)] = kind
    return "in memory (tmpfs)" if kinds and kinds[max(kinds)] == "tmpfs" else "on disk"


def _await(port: int, started: subprocess.Popen[bytes]) -> None:
    ends = perf_counter() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if started.poll() is not None or perf_counter() > ends:
                raise
            time.sleep(0.1)
        else:
            return
