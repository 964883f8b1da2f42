"""The SQS door beside others that speak SQS: what a send, a receive and a delete of boto3 cost the
server, in turns in one run. The others keep messages in memory only.

They are taken from their registries: fauxqs from npm, ministack and moto from PyPI. Whatever does
not install is left out, and said so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from botocore.config import Config

from bench.result import Result
from bench.rpc import running_broker
from bench.servers import kept_on, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.servers import Server

ROUNDS = 5
CYCLES = 200
WARM_UP = 50
INSTALL_S = 300.0
BODY = "x" * 100


class Peer(NamedTuple):
    """What stands in `command` and `environment`, `servers.running` says; so in `install`."""

    name: str
    install: str
    command: str
    environment: str
    bar: float | None = None  # how much of its CPU ours may be


PEERS = (
    Peer(
        "fauxqs (Node, in memory)",
        "npm install --silent --prefix {directory} fauxqs",
        "node {directory}/node_modules/fauxqs/dist/cli.js",
        "FAUXQS_PORT={port} FAUXQS_LOGGER=false",
        1.0,
    ),
    Peer(
        "ministack (Python, in memory)",
        f"{sys.executable} -m pip install --quiet --target {{directory}} ministack",
        f"{sys.executable} -m ministack.app",
        "GATEWAY_PORT={port} PYTHONPATH={directory}",
    ),
    Peer(
        "moto (Python, in memory)",
        f"{sys.executable} -m pip install --quiet --target {{directory}} moto[server,sqs]",
        f"{sys.executable} -m moto.server -p {{port}}",
        "PYTHONPATH={directory}",
    ),
)


def run(directory: Path, installed: Path) -> Iterator[Result]:
    directory = directory.absolute()
    kept = kept_on(directory)
    for peer, folder in install(installed.absolute()).items():
        try:
            with running(peer.command, peer.environment, folder) as server:
                theirs, ours = _in_turns(server, directory / "nexo")
        except (OSError, TimeoutError) as error:
            print(f"      {peer.name}: not measured ({error!s:.120})", file=sys.stderr)
            continue
        yield Result(f"boto3 cycle, CPU of {peer.name}", median(theirs) * 1e6, "us")
        yield Result(f"… of this broker, journal {kept}, in turns", median(ours) * 1e6, "us")
        ratio = median(mine / its for mine, its in zip(ours, theirs, strict=True))
        yield Result("… ratio", ratio, "x", peer.bar, "most")


def _in_turns(server: Server, directory: Path) -> tuple[list[float], list[float]]:
    theirs, ours = [], []
    with running_broker(directory) as broker:
        its, mine = _Cycle(server.port), _Cycle(broker.ports.http)
        for cycle in (its, mine):
            cycle.repeat(WARM_UP)
        for _ in range(ROUNDS):
            before_s = server.cpu_s()
            its.repeat(CYCLES)
            theirs.append((server.cpu_s() - before_s) / CYCLES)
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


# -- The others ----------------------------------------------------------------------------------


def install(directory: Path) -> dict[Peer, Path]:
    """The folders of those that are there, or could be had. That takes minutes, once: they stay
    where they are for later runs."""
    folders = {}
    for peer in PEERS:
        name = peer.name.partition(" ")[0]
        folder = directory / name
        done = folder / ".installed"
        if not done.exists():
            print(f"      {name}: installing …", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            command = peer.install.format(directory=folder).split()
            try:
                subprocess.run(command, check=True, timeout=INSTALL_S, capture_output=True)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"      {name}: not measured ({error!s:.120})", file=sys.stderr)
                continue
            done.touch()
        folders[peer] = folder
    return folders


if __name__ == "__main__":  # python -m bench.sqs_peers .bench/installed
    install(Path(sys.argv[1]).absolute())
