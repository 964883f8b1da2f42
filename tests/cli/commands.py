"""The command as a user runs it: in a process of its own, with a time limit."""

import atexit
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

NEXO = str(Path(sys.executable).with_name("nexo"))
TIME_LIMIT_S = 30

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["nexo.cli.main"])


def run_command(
    arguments: list[str], folder: Path, environment: dict[str, str], files: list[Path]
) -> None:
    """`nexo` in this process, which is a new one, with files for its input, output and errors."""
    from nexo.cli.main import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    sys.argv = [NEXO, *arguments]
    try:
        main()
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()


class Outcome:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

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
        given = list(map(str, arguments))
        # What a variable changes may be read as Python starts, and a worker that is forked has
        # children that look for modules in the wrong folder.
        alone = environment is not None or "worker" in given[:1]
        run = self._started if alone else self._forked
        done = run(given, stdin or "", self.environment(environment))
        told = f"nexo {' '.join(given)}\n{done.out}\n{done.err}"
        assert done.status == status, f"{told}\nleft with {done.status}, not {status}"
        assert "Traceback" not in done.err, told
        return done

    def _started(self, arguments: list[str], stdin: str, environment: dict[str, str]) -> Outcome:
        done = subprocess.run(
            [NEXO, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def _forked(self, arguments: list[str], stdin: str, environment: dict[str, str]) -> Outcome:
        """A process that has the modules of nexo loaded already, which takes longer than most
        commands: tests run 400 of them."""
        with tempfile.TemporaryDirectory(prefix="nexo-command-") as made:
            files = [Path(made) / name for name in ("in", "out", "err")]
            files[0].write_text(stdin)
            process = _FORKS.Process(
                target=run_command, args=(arguments, self.folder, environment, files)
            )
            process.start()
            process.join(TIME_LIMIT_S)
            if process.exitcode is None:
                process.kill()
                process.join()
                raise subprocess.TimeoutExpired(arguments, TIME_LIMIT_S)
            return Outcome(process.exitcode, files[1].read_text(), files[2].read_text())

    def start(
        self,
        *arguments: str | Path,
        log: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
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
                env=self.environment(environment),
            )

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name[:5] != "NEXO_"}
        url = {"NEXO_URL": self.url} if self.url is not None else {}
        return {**plain, "COLUMNS": "120", **url, **(more or {})}


class BrokerProcess:
    """`nexo serve` on a data directory and a free port."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        data: str = "data",
        log: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._arguments = arguments
        self._log, self._environment = log, environment
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
            environment=self._environment,
        )
        give_up = time.monotonic() + TIME_LIMIT_S
        while not ports.exists():
            assert self.process.poll() is None, self._told()
            assert time.monotonic() < give_up, "the broker did not get ready"
            time.sleep(0.01)
        written = json.loads(ports.read_text())
        self.port, self.http_port = written["rpc"], written["http"]
        self.udp_port = written["udp"]
        return self

    def _told(self) -> tuple[str, str]:
        """What one that has ended printed and logged."""
        assert self.process is not None
        out, err = self.process.communicate()
        return out, err if self._log is None else self._log.read_text()[-4_000:]

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
