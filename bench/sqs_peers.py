"""The SQS door beside others that speak SQS: what a send, a receive and a delete of boto3 cost the
server, in turns in one run. The others keep messages in memory only.

They are taken from their registries into the directory of the run: fauxqs from npm, ministack and
moto from PyPI. Whatever does not install is left out, and said so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from botocore.config import Config

from bench.result import Result
from bench.rpc import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 5
CYCLES = 200
WARM_UP = 50
INSTALL_S = 300.0
START_S = 60.0
BODY = "x" * 100
_TICKS = os.sysconf("SC_CLK_TCK")


class Peer(NamedTuple):
    """`{folder}` and `{port}` stand in what installs and starts it."""

    name: str
    install: str
    command: str
    environment: str
    bar: float | None = None  # how much of its CPU ours may be


PEERS = (
    Peer(
        "fauxqs (Node, in memory)",
        "npm install --silent --prefix {folder} fauxqs",
        "node {folder}/node_modules/fauxqs/dist/cli.js",
        "FAUXQS_PORT={port} FAUXQS_LOGGER=false",
        1.0,
    ),
    Peer(
        "ministack (Python, in memory)",
        f"{sys.executable} -m pip install --quiet --target {{folder}} ministack",
        f"{sys.executable} -m ministack.app",
        "GATEWAY_PORT={port} PYTHONPATH={folder}",
    ),
    Peer(
        "moto (Python, in memory)",
        f"{sys.executable} -m pip install --quiet --target {{folder}} moto[server,sqs]",
        f"{sys.executable} -m moto.server -p {{port}}",
        "PYTHONPATH={folder}",
    ),
)


def run(directory: Path) -> Iterator[Result]:
    directory = directory.absolute()
    for number, peer in enumerate(PEERS):
        folder = directory / f"peer-{number}"
        try:
            _install(peer, folder)
            with _running(peer, folder) as (port, cpu_s):
                theirs, ours = _in_turns(port, cpu_s, directory / "nexo")
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            print(f"      {peer.name}: not measured ({error!s:.120})", file=sys.stderr)
            continue
        yield Result(f"boto3 cycle, CPU of {peer.name}", median(theirs) * 1e6, "us")
        yield Result("… of this broker, everything on disk, in turns", median(ours) * 1e6, "us")
        ratio = median(mine / its for mine, its in zip(ours, theirs, strict=True))
        yield Result("… ratio", ratio, "x", peer.bar, "most")


def _in_turns(
    port: int, cpu_s: Callable[[], float], directory: Path
) -> tuple[list[float], list[float]]:
    theirs, ours = [], []
    with running_broker(directory) as broker:
        its, mine = _Cycle(port), _Cycle(broker.ports.http)
        for cycle in (its, mine):
            cycle.repeat(WARM_UP)
        for _ in range(ROUNDS):
            before_s = cpu_s()
            its.repeat(CYCLES)
            theirs.append((cpu_s() - before_s) / CYCLES)
            before_s = broker.usage()[0]
            mine.repeat(CYCLES)
            ours.append((broker.usage()[0] - before_s) / CYCLES)
    return theirs, ours


class _Cycle:
    """One client with its queue."""

    def __init__(self, port: int) -> None:
        self._sqs: Any = boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="bench",
            aws_secret_access_key="bench",  # noqa: S106  nobody looks at it
            config=Config(retries={"total_max_attempts": 1}),
        )
        self._url = self._sqs.create_queue(QueueName="bench")["QueueUrl"]

    def repeat(self, count: int) -> None:
        for _ in range(count):
            self._sqs.send_message(QueueUrl=self._url, MessageBody=BODY)
            (message,) = self._sqs.receive_message(QueueUrl=self._url)["Messages"]
            handle = message["ReceiptHandle"]
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=handle)


def _install(peer: Peer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = peer.install.format(folder=folder).split()
    subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True)


@contextmanager
def _running(peer: Peer, folder: Path) -> Iterator[tuple[int, Callable[[], float]]]:
    """Its port, and how to ask for the seconds of CPU that it used."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    given = {"folder": folder, "port": port}
    environment = dict(each.split("=", 1) for each in peer.environment.format(**given).split())
    started = subprocess.Popen(
        peer.command.format(**given).split(),
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(port, started)
        yield port, lambda: _cpu_s(started.pid)
    finally:
        started.kill()
        started.wait(START_S)


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


def _cpu_s(pid: int) -> float:
    """Of a process with all its threads, as Linux counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
