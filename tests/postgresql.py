"""A real PostgreSQL of the tests' own: from the wheel of the development tools, on any machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from examples.failover import postgresql
from examples.failover.postgresql import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PostgresqlServer", "free_port", "postgresql_server"]


class PostgresqlServer(postgresql.PostgresqlServer):
    """The server of the demo, which can also have standbys. Nothing is synced to disk: tests that
    kill the server itself ask for `durable`."""

    def follow(self, primary: PostgresqlServer) -> None:
        """Become a standby of another server, from nothing."""
        self._prepare()
        shutil.rmtree(self._data, ignore_errors=True)
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        self._run("pg_basebackup", "-D", str(self._data), "-d", primary.url, *options)
        self.start()


@contextlib.contextmanager
def postgresql_server(*, durable: bool = False) -> Iterator[PostgresqlServer]:
    folder = Path(tempfile.mkdtemp(prefix="nexo-postgresql-"))
    server = PostgresqlServer(folder, durable=durable)
    try:
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
