"""`nexo serve` with its SQS door, in a process of its own, as the SDKs of the world meet it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

NEXO = str(Path(sys.executable).with_name("nexo"))
TIME_LIMIT_S = 30


class ServedBroker:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log.txt"
        self.http_port = 0
        self.rpc_port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def native_url(self) -> str:
        return f"nexo://127.0.0.1:{self.rpc_port}"

    def start(self) -> "ServedBroker":
        ports = self._folder / "ports.json"
        ports.unlink(missing_ok=True)
        command = [NEXO, "serve", "--data", str(self._folder / "data"), "--ports-file", str(ports)]
        command += ["--http-port", "0", "--rpc-port", "0", *self._arguments]
        # A door that a broker does not have is a setting that it passes over.
        environment = {**os.environ, "NEXO_UDP_PORT": "0"}
        # A file, not a pipe: nobody reads along, and a full pipe would stop the broker.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        give_up = time.monotonic() + TIME_LIMIT_S
        while not ports.exists():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, f"not ready in time\n{self.log.read_text()}"
            time.sleep(0.01)
        chosen = json.loads(ports.read_text())
        self.http_port, self.rpc_port = chosen["http"], chosen["rpc"]
        return self

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIME_LIMIT_S) == 0, self.log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
