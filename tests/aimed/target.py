"""The broker under attack: a process of its own that requires access, tokens of every kind, and a
witness who wants nothing but to push."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

import nexo
from tests.access.speaker import Speaker

COMMAND = Path(sys.executable).with_name("nexo")
CONFIRMED_S = 5.0  # a push of somebody else takes no longer, whatever happened before it
QUEUE, TOPIC = "orders", "news"
ALLOWED = {
    "push": "*:push",
    "pop": "*:pop",
    "peek": "*:peek",
    "manage": "*:manage",
    "everything": "*:*",
    "elsewhere": "nothing:push",
}


class Target:
    """Started and stopped as a user does it."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "log").open("w+", encoding="utf-8", errors="replace")
        data, ports = str(folder / "data"), folder / "ports"
        everything = _token(data)
        self._process = subprocess.Popen(
            [
                *(str(COMMAND), "serve", "--data", data, "--access", "required"),
                *("--http-port", "0", "--rpc-port", "0", "--udp-port", "0"),
                *("--ports-file", str(ports)),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.ports: dict[str, int] = _wait_for(ports, self._process)
        with Speaker(self.ports["rpc"], everything) as admin:
            self.tokens = {name: _weaker(admin, name, allow) for name, allow in ALLOWED.items()}
        self._client = nexo.connect(
            f"nexo://127.0.0.1:{self.ports['rpc']}", token=everything, timeout=CONFIRMED_S
        )
        self._witness = self._client.queue("witness", create=True)
        self._health = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=10)
        self._pushed = 0
        self.restore()

    def restore(self) -> None:
        """What an attack may have deleted is there again."""
        self._client.queue(QUEUE, create=True).push(b"x")
        self._client.create_topic(TOPIC)
        self._client.topic(TOPIC).bind(QUEUE, where={"a": "b"})

    def check(self, after: str) -> None:
        """Others are served, and health tells the truth about that."""
        assert self._process.poll() is None, f"the broker ended after {after}:\n{self.log()}"
        try:
            self._witness.push(b"x")
        except nexo.NexoError as error:
            raise AssertionError(
                f"a push of somebody else failed after {after}: {error!r}\n{self.log()}"
            ) from error
        self._pushed += 1
        self._health.request("GET", "/health")
        answer = self._health.getresponse()
        told = json.loads(answer.read())
        assert (answer.status, told["status"]) == (200, "ok"), f"after {after}: {told}"

    def stop(self) -> None:
        """What was confirmed is there, SIGTERM ends it, and nothing went wrong inside."""
        held = self._witness.info().depth
        self._client.close()
        self._health.close()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(30)
        log = self.log()
        self._log.close()
        assert held == self._pushed, f"{held} of {self._pushed} confirmed messages are there"
        assert code == 0, f"exit code {code}:\n{log}"
        assert "Traceback" not in log, f"an error that nobody expected:\n{log}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()[-20_000:]


def _token(data: str) -> str:
    """The first one is made before the first start."""
    made = subprocess.run(
        [
            *(str(COMMAND), "token", "create", "first"),
            *("--allow", "*:*", "--data", data, "--json"),
        ],
        check=True,
        capture_output=True,
    )
    told: dict[str, Any] = json.loads(made.stdout)
    return str(told["token"])


def _weaker(admin: Speaker, name: str, allow: str) -> str:
    answer = admin.call("create_token", name=name, allow=[allow])
    assert answer is not None
    told: dict[str, Any] = msgspec.msgpack.decode(bytes(answer.body))
    return str(told["token"])


def _wait_for(ports: Path, process: subprocess.Popen[bytes]) -> dict[str, int]:
    while True:
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            if ports.exists() and (text := ports.read_text()):
                found: dict[str, int] = json.loads(text)
                return found
        else:
            raise AssertionError(f"the broker ended with {process.returncode} at its start")
