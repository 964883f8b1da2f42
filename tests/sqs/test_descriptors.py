"""File descriptors: a broker takes as many as it may, and keeps some back from connections."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import nexo
from nexo.server import service
from nexo.vocabulary.limits import DESCRIPTORS_MAX, HTTP_STALLED_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LIMIT = 160  # file descriptors of the broker
SERVE = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT // 2}, {LIMIT}))
from nexo.cli.main import main
main()
"""


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    for soft, hard in (
        (1_024, 4_096),
        (1_024, resource.RLIM_INFINITY),
        (1_024, 2**30),
        (4_096, 4_096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        service.raise_descriptors()
    assert given == [
        (4_096, 4_096),
        (DESCRIPTORS_MAX, resource.RLIM_INFINITY),
        (DESCRIPTORS_MAX, 2**30),
    ]


def test_a_limit_that_stays_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4_096))
    service.raise_descriptors()
    assert [each.message for each in caplog.records] == ["cannot raise the limit of open files"]


def test_more_stalled_connections_than_descriptors(tmp_path: Path) -> None:
    """Others are served over both doors, and the log says what is going on."""
    ports_file, log = tmp_path / "ports", tmp_path / "log"
    options = ["--data", str(tmp_path / "data"), "--http-port", "0", "--rpc-port", "0"]
    options += ["--udp", "off", "--ports-file", str(ports_file), "--log-format", "json"]
    with log.open("wb") as written:
        broker = subprocess.Popen([sys.executable, "-c", SERVE, "serve", *options], stderr=written)
    stalled: list[socket.socket] = []
    try:
        while not ports_file.exists():
            assert broker.poll() is None, log.read_text()
            time.sleep(0.05)
        ports = json.loads(ports_file.read_bytes())
        for _ in range(LIMIT + 50):
            client = socket.create_connection(("127.0.0.1", ports["http"]), 10)
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
            stalled.append(client)
        time.sleep(HTTP_STALLED_S)
        for _ in range(5):
            door = HTTPConnection("127.0.0.1", ports["http"], timeout=10)
            door.request("GET", "/health")
            assert door.getresponse().status == 200
            stalled.append(door.sock)
        with nexo.connect(f"nexo://127.0.0.1:{ports['rpc']}") as native:
            native.create_queue("q").push(b"x")
        for _ in range(100):
            if "too many HTTP connections" in log.read_text():
                break
            time.sleep(0.1)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        # It is said again every few seconds.
        told, *_ = [each for each in lines if each["message"] == "too many HTTP connections"]
        assert told["refused"] + told["dropped"] > 0
    finally:
        for client in stalled:
            client.close()
        broker.terminate()
        broker.wait(20)
