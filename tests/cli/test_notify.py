"""What systemd hears of a broker that it started with `Type=notify`."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import NEXO, TIME_LIMIT_S


@pytest.mark.parametrize("abstract", [False, True])
def test_it_says_when_it_is_ready_and_when_it_stops(tmp_path: Path, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        name = f"nexo-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
        systemd.bind("\0" + name if abstract else name)
        systemd.settimeout(TIME_LIMIT_S)
        environment = {**os.environ, "NOTIFY_SOCKET": "@" + name if abstract else name}
        command = [NEXO, "serve", "--data", str(tmp_path / "data")]
        command += ["--http-port", "0", "--rpc-port", "0", "--udp-port", "0"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as broker:
            assert systemd.recv(100) == b"READY=1"
            broker.send_signal(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"
            assert broker.wait(TIME_LIMIT_S) == 0
