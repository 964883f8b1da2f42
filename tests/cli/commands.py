"""The installed command as a user runs it: in a process of its own, with a time limit."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

NEXO = str(Path(sys.executable).with_name("nexo"))
TIME_LIMIT_S = 30


class Outcome:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Nexo:
    """`nexo` with a broker to talk to, if one is given."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = url

    def __call__(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        status: int = 0,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        """Run it; its exit code must be `status`."""
        done = subprocess.run(
            [NEXO, *map(str, arguments)],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(environment),
            timeout=TIME_LIMIT_S,
            check=False,
        )
        told = f"nexo {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == status, f"{told}\nleft with {done.returncode}, not {status}"
        assert "Traceback" not in done.stderr, told
        return Outcome(done)

    def start(self, *arguments: str | Path, log: Path | None = None) -> subprocess.Popen[str]:
        """Let it run; whoever starts it also ends it. One that logs more than a pipe holds, while
        nobody reads, needs a file for its `log`."""
        with log.open("a") if log is not None else nullcontext(subprocess.PIPE) as err:
            return subprocess.Popen(
                [NEXO, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                cwd=self.folder,
                env=self.environment(),
            )

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name[:5] != "NEXO_"}
        url = {"NEXO_URL": self.url} if self.url is not None else {}
        return {**plain, "COLUMNS": "120", **url, **(more or {})}


class BrokerProcess:
    """`nexo serve` on a data directory and a free port."""

    def __init__(
        self, folder: Path, *arguments: str, data: str = "data", log: Path | None = None
    ) -> None:
        self._folder = folder
        self._arguments = arguments
        self._log = log
        self.ports = folder / "ports.json"
        self.data = folder / data if data != ":memory:" else data
        self.process: subprocess.Popen[str] | None = None
        self.port = self.http_port = self.udp_port = 0

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.port}"

    def start(self) -> "BrokerProcess":
        ports = self.ports
        ports.unlink(missing_ok=True)  # a killed broker leaves it
        self.process = Nexo(self._folder).start(
            "serve",
            *("--data", self.data),
            *("--http-port", "0", "--rpc-port", "0", "--udp-port", "0"),
            *("--ports-file", ports),
            *self._arguments,
            log=self._log,
        )
        give_up = time.monotonic() + TIME_LIMIT_S
        while not ports.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < give_up, "the broker did not get ready"
            time.sleep(0.01)
        written = json.loads(ports.read_text())
        self.port, self.http_port = written["rpc"], written["http"]
        self.udp_port = written["udp"]
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """End it; returns its exit code, and what it printed and logged."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        out, err = process.communicate(timeout=TIME_LIMIT_S)
        return process.returncode, out, err

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
