"""The journals of many shards in one PostgreSQL, for one node: they share the connections of one
`Writer` (what waited while one transaction ran is the next one, of all shards together, each with
its fence) and one that opens shards and reads.

Only who owns a shard, by the table `owner`, may open it; opening raises its epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import errors as postgresql

from nexo.journal.postgresql import PostgresqlJournal
from nexo.journal.postgresql_connection import connect_node
from nexo.journal.postgresql_track import Link
from nexo.journal.postgresql_transaction import RENEWED, Lease
from nexo.journal.postgresql_writer import Writer
from nexo.vocabulary.errors import Fenced, NexoError, NotReady
from nexo.vocabulary.limits import JOINING_TURNS

if TYPE_CHECKING:
    from nexo.journal.postgresql_connection import Connection
    from nexo.journal.postgresql_pipeline import Pipeline
    from nexo.journal.postgresql_track import Done
    from nexo.journal.postgresql_writer import Job

_ROWS = "SELECT row FROM payload WHERE shard = %b"
_RAISE_EPOCH = """
    UPDATE shard SET epoch = epoch + 1 WHERE id = %b AND EXISTS (
        SELECT FROM owner JOIN node ON node.name = owner.node
        WHERE owner.shard = %b AND node.name = %b AND node.run = %b)
    RETURNING epoch, last_row
"""


class Shards(Writer):
    """The store of a node: `node` is its name, `run` the number that it drew at its start."""

    def __init__(self, url: str, node: str, run: int, *, schema: str = "nexo") -> None:
        def connect() -> Connection:
            return connect_node(url, schema, node, run)

        super().__init__(connect, JOINING_TURNS, RENEWED)
        self.node, self.run_number = node, run
        self._url, self._schema = url, schema
        self.reader = Link(connect)

    def renewed(self, until_us: int) -> None:
        """The lease of the node lasts until then: whatever is written checks that it is stored."""
        self.lease = Lease(self.run_number, until_us)

    def journal(self, shard: int) -> ShardJournal:
        return ShardJournal(self, self._url, shard, self._schema)

    def _read(self, job: Job, done: Done) -> None:
        if getattr(job, "__func__", None) is ShardJournal.tidy:
            # It looks at a flag, for each shard each second: a thread would be most of what an
            # idle node costs.
            try:
                done(job(), None)
            except NexoError as error:
                done(None, error)
        else:
            super()._read(job, done)

    def close(self) -> None:
        """One shard needs it no more; the others may."""

    def end(self) -> None:
        """Let go of everything, once what waits is done. May block."""
        super().close()
        self.reader.drop()


class ShardJournal(PostgresqlJournal):
    """The journal of one shard. Between `open` and a fault it belongs to this node."""

    def __init__(self, shards: Shards, url: str, shard: int, schema: str) -> None:
        super().__init__(url, shard=shard, schema=schema)
        self._shards = shards
        self._is_open = False

    @property
    def shard(self) -> int:
        return self._shard

    def open(self) -> int:
        self.close()
        try:
            self._open()
        except NotReady:  # a connection that was not used for long may have ended meanwhile
            self._open()
        self._is_open, self._fault = True, None
        return self._epoch

    def _open(self) -> None:
        shards, shard = self._shards, self._shard
        connection = shards.reader.get().connection
        try:
            raised = connection.execute(
                _RAISE_EPOCH.encode(), (shard, shard, shards.node, shards.run_number)
            ).fetchone()
            if raised is None:
                raise self.overtaken()
            self._read(connection, *raised)
        except psycopg.Error as error:
            raise self._failed(error, "opening") from error

    def close(self) -> None:
        self._is_open = False
        self._found = None
        self._numbers.clear()

    def rows(self) -> list[int]:
        """The numbers of all rows that are stored, also of those that nobody refers to."""
        found = self._open_connection().execute(_ROWS.encode(), (self._shard,)).fetchall()
        return [row for (row,) in found]

    def tidy(self) -> bool:
        """Whether the shard is still ours, the lease of the node tells."""
        self._check_open()
        return False

    def overtaken(self) -> NexoError:
        return Fenced(
            f"shard {self._shard} belongs to another node", "try again: its owner is asked"
        )

    def _check_open(self) -> None:
        if not self._is_open:
            fault = self._fault or NotReady("the shard is not open", "call open() first")
            raise fault.anew()

    def _open_pipeline(self) -> Pipeline:
        self._check_open()
        return self._shards.reader.get()

    def _failed(self, error: psycopg.Error, doing: str) -> NexoError:
        if not isinstance(error, postgresql.DivisionByZero):
            self._shards.reader.drop()
        return super()._failed(error, doing)
