"""The configuration of HAProxy in the guide to clusters, with a real HAProxy and nodes that are
nothing but two ports."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgresql import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "cluster-broker.md"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


class Port:
    """It answers each connection with the name of its node: one that speaks HTTP understands it."""

    def __init__(self, name: str) -> None:
        body = f"{name}\n"
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        self._answer = (head + body).encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.number: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = self._listener.accept()
                with made, contextlib.suppress(OSError):
                    made.settimeout(5)
                    made.recv(65_536)
                    made.sendall(self._answer)

    def close(self) -> None:
        """As of a process that was killed: connections are refused from now on."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def answered(port: int) -> str:
    """Which node answers a new connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        got = b""
        while data := made.recv(65_536):
            got += data
    return got.decode().rpartition("\r\n")[2].strip()


@contextlib.contextmanager
def balanced(folder: Path, nodes: dict[str, dict[str, Port]]) -> Iterator[dict[str, int]]:
    """HAProxy as the guide sets it up; the ports that it listens on."""
    (text,) = re.findall(r"^```\n(defaults\n.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    ports = {"rpc": free_port(), "http": free_port()}
    for kind, written in (("rpc", 9325), ("http", 9324)):
        text = text.replace(f"bind *:{written}", f"bind 127.0.0.1:{ports[kind]}")
        for name, node in nodes.items():
            text = text.replace(f"host-{name}:{written} ", f"127.0.0.1:{node[kind].number} ")
    for name, node in nodes.items():
        text = re.sub(rf"(server {name} .* port )9324", rf"\g<1>{node['http'].number}", text)
    assert "host-" not in text
    # However slow this machine is, no health check notices before the connections are made.
    assert text.count("inter 1s") == 6
    text = text.replace("inter 1s", "inter 600s")
    file = folder / "haproxy.cfg"
    file.write_text(text)
    assert HAPROXY is not None
    process = subprocess.Popen([HAPROXY, "-db", "-q", "-f", str(file)])
    try:
        yield ports
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_no_connection_fails_when_a_node_was_killed(tmp_path: Path) -> None:
    nodes = {name: {kind: Port(name) for kind in ("rpc", "http")} for name in "abc"}
    with balanced(tmp_path, nodes) as ports:
        give_up = time.monotonic() + 20
        seen: set[str] = set()
        while seen != set("abc"):
            with contextlib.suppress(OSError):
                seen.add(answered(ports["http"]))
            assert time.monotonic() < give_up
        for port in nodes["b"].values():
            port.close()
        for kind in ("rpc", "http"):  # before a health check could notice
            assert {answered(ports[kind]) for _ in range(12)} == {"a", "c"}, kind
    for node in nodes.values():
        for port in node.values():
            with contextlib.suppress(OSError):
                port.close()
