"""The processes of the demo. Who dies is started again, as a service manager would."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

import nexo
from examples.gps import names
from examples.gps.demo.process import Process
from examples.gps.progress_file import read_progress

if TYPE_CHECKING:
    from pathlib import Path

    from examples.gps.demo.happenings import Happenings

WORKERS = 2
READY_S = 60.0
LOOK_S = 0.02
FAILURES_MAX = 3  # of one process, without being killed
PATIENCE_S = 10.0
USUAL_PORTS = (9324, 9325, 9326)
_NEXO = ("-c", "from nexo.cli.main import main; main()")


class Broken(Exception):
    """The demo cannot go on."""


class Ports(NamedTuple):
    http: int
    rpc: int
    udp: int


class Stage:
    def __init__(
        self, folder: Path, happenings: Happenings, *, vehicles: int, usual_ports: bool, ui: bool
    ) -> None:
        self.folder = folder
        self.ports = Ports(0, 0, 0)
        self._happenings = happenings
        self._vehicles = vehicles
        self._ui = ui
        self._is_away = False
        self._failures: dict[str, int] = {}
        self._ports_file = folder / "ports.json"
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.broker = self._process("broker", "the broker", *self._serve(usual_ports))
        self.fleet = self._process("fleet", "the fleet")
        self.spark = self._process("spark", "Spark")
        self.workers = [
            self._process(f"worker {number}", f"worker {number}")
            for number in range(1, WORKERS + 1)
        ]

    @property
    def url(self) -> str:
        return f"nexo://127.0.0.1:{self.ports.rpc}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def processes(self) -> list[Process]:
        return [self.broker, self.fleet, self.spark, *self.workers]

    def begin(self) -> None:
        """The broker first; the others need its ports."""
        self.broker.start()
        self._await_broker()
        self._happenings.tell("the broker is ready")
        self.broker.arguments = [*_NEXO, *self._serve_at(self.ports)]
        with nexo.connect(self.url) as client:
            names.create(client)
        where = ("--url", self.url)
        lake = ("--lake", str(self.folder / "lake"))
        ui = ("--ui",) if self._ui else ()
        self.spark.arguments = ["-m", "examples.gps.pipeline", *where, *lake, *ui]
        tally = ("--tally", str(self.folder / "tally.db"), "--vehicles", str(self._vehicles))
        doors = ("--http", self.http, "--udp", f"udp://127.0.0.1:{self.ports.udp}")
        self.fleet.arguments = ["-m", "examples.gps.fleet", *where, *doors, *tally]
        handled = ("--handled", str(self.folder / "handled.db"))
        for worker in self.workers:
            worker.arguments = ["-m", "examples.gps.dispatch", *where, *handled]
        for process in self.processes[1:]:
            process.start()

    def tend(self) -> None:
        """Start again what has died. The fleet is not among them: it dies of mistakes only."""
        if self._is_away and self._ports_file.exists():
            self._is_away = False
            self._happenings.tell("the broker is ready again")
        if not self.fleet.is_running:
            raise Broken(f"the fleet ended with {self.fleet.code}\n{self.fleet.last_words()}")
        for process in (self.broker, self.spark, *self.workers):
            self.tend_one(process)

    def tend_one(self, process: Process) -> None:
        if process.is_running:
            return
        if process.code != -9:
            self._count_failure(process)
        if process is self.broker:
            self._ports_file.unlink(missing_ok=True)
            self._is_away = True
        process.kill()  # what it may have left behind
        process.start()

    def finish_spark(self) -> bool:
        """Let Spark work on all that is there, and end; to be called until it is done."""
        if self.spark.code == 0:
            return True
        self.tend_one(self.spark)
        told = read_progress(self.folder / "lake" / "_progress.json")
        # Before it runs it has nothing to finish, and may not even listen.
        if told is not None and told.process == self.spark.number and told.state == "running":
            self.spark.ask_to_end()
        return False

    def end(self) -> None:
        """In the order in which nobody misses another."""
        self.fleet.end(PATIENCE_S)
        self.spark.end(PATIENCE_S)
        for worker in self.workers:
            worker.ask_to_end()
        for process in (*self.workers, self.broker):
            process.end(PATIENCE_S)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def _count_failure(self, process: Process) -> None:
        count = self._failures[process.name] = self._failures.get(process.name, 0) + 1
        self._happenings.tell(f"{process.title} ended with {process.code}", is_bad=True)
        if count > FAILURES_MAX:
            raise Broken(f"{process.title} does not stay alive\n{process.last_words()}")

    def _await_broker(self) -> None:
        until = time.monotonic() + READY_S
        while not self._ports_file.exists():
            if not self.broker.is_running or time.monotonic() > until:
                raise Broken(f"the broker did not start\n{self.broker.last_words()}")
            time.sleep(LOOK_S)
        self.ports = Ports(**json.loads(self._ports_file.read_text(encoding="utf-8")))

    def _process(self, name: str, title: str, *arguments: str) -> Process:
        log = self.folder / "logs" / f"{name.replace(' ', '-')}.log"
        return Process(name, title, arguments, log)

    def _serve(self, usual_ports: bool) -> list[str]:
        is_free = usual_ports and all(map(_is_free, USUAL_PORTS))
        return [*_NEXO, *self._serve_at(Ports(*USUAL_PORTS) if is_free else Ports(0, 0, 0))]

    def _serve_at(self, ports: Ports) -> list[str]:
        flags = ["serve", "--data", str(self.folder / "data"), "--host", "127.0.0.1"]
        flags += ["--ports-file", str(self._ports_file)]
        for door, port in ports._asdict().items():
            flags += [f"--{door}-port", str(port)]
        return flags


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                door.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
