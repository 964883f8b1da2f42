"""Places where a journal can live, so that one test runs on all of them."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING, Protocol

import psycopg

from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.journal.port import Commit, Write
from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_cluster import ClusterTables, create_cluster
from nexo.journal.postgresql_shards import Shards
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import SimulatedDisk
from nexo.vocabulary.batch import Batch, batch_of

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.journal.port import Journal


_SCHEMAS = count(1)


class Place(Protocol):
    def journal(self) -> Journal: ...

    def leave(self) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self._disk = MemoryDisk()

    def journal(self) -> Journal:
        return MemoryJournal(self._disk)

    def leave(self) -> None:
        pass


class OnFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._journals: list[SqliteJournal] = []

    def journal(self) -> SqliteJournal:
        self._journals.append(SqliteJournal(self._path))
        return self._journals[-1]

    def leave(self) -> None:
        for journal in self._journals:
            journal.close()


class OnShard:
    """One of three shards, whose node has its lease."""

    def __init__(self, url: str) -> None:
        self._url, self._schema = url, f"shards_{next(_SCHEMAS)}"
        create_cluster(url, 3, schema=self._schema)
        tables = ClusterTables(url, "a", 1, schema=self._schema)
        assert tables.join("a:1", "a:2", "0")
        assert tables.take(1, None)
        tables.close()
        self._shards = Shards(url, "a", 1, schema=self._schema)

    def journal(self) -> Journal:
        return self._shards.journal(1)

    def leave(self) -> None:
        self._shards.end()
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {self._schema} CASCADE".encode())


class OnSimulatedDisk:
    def __init__(self, seed: int = 1) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self._journals: list[SqliteJournal] = []

    def journal(self) -> SqliteJournal:
        self._journals.append(SqliteJournal("data", vfs=self.disk.name, reserve_bytes=0))
        return self._journals[-1]

    def leave(self) -> None:
        for journal in self._journals:
            journal.close()
        self.disk.close()


class OnPostgresql:
    """A schema of its own in a server that all tests share."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schema = f"nexo_{next(_SCHEMAS)}"
        self._journals: list[PostgresqlJournal] = []

    def journal(self) -> PostgresqlJournal:
        for journal in self._journals:  # the server lets one at a time have it
            journal.close()
        self._journals.append(PostgresqlJournal(self._url, schema=self._schema))
        return self._journals[-1]

    def leave(self) -> None:
        for journal in self._journals:
            journal.close()
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE".encode())


def change(
    *writes: Write,
    rows: dict[int, Batch] | None = None,
    dropped_rows: list[int] | None = None,
    dropped_owners: list[int] | None = None,
) -> Commit:
    return Commit(
        writes=list(writes),
        rows=list((rows or {}).items()),
        dropped_rows=dropped_rows or [],
        dropped_owners=dropped_owners or [],
    )


def bodies(*texts: str) -> Batch:
    return batch_of([text.encode() for text in texts])
