"""The tables of a cluster in PostgreSQL: who lives, and who owns which shard.

A lease is a row of a node with a time by the server's clock, so that the clocks of nodes do not
matter. A renewal and the taking of a shard lock the same row: what a node reads after its renewal
tells everything that was taken from it before.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors as postgresql
from psycopg import sql

from nexo.journal.port import CATALOG
from nexo.journal.postgresql_connection import (
    Connection,
    abandon,
    connect,
    connect_node,
    end_transactions,
    no_cluster,
    shown_url,
    stored_version,
    translate,
)
from nexo.journal.rows import snapshot_checksum
from nexo.vocabulary.errors import Fenced, InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_LEASE_S, CLUSTER_SHARDS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

_TABLES = Path(__file__).with_name("postgresql_cluster.sql").read_text(encoding="utf-8")
_JOIN = """
    INSERT INTO node AS known VALUES (%s, %s, %s, %s, %s, false, clock_timestamp() + %s::interval)
    ON CONFLICT (name) DO UPDATE SET run = excluded.run, rpc = excluded.rpc, http = excluded.http,
        version = excluded.version, until = excluded.until
    WHERE known.until < clock_timestamp()
    RETURNING (extract(epoch FROM until) * 1000000)::bigint
"""
# What is stored is compared with what was: no clock is. It may be later, if an answer was lost.
_RENEW = """
    UPDATE node SET until = clock_timestamp() + %s::interval
    WHERE name = %s AND run = %s AND extract(epoch FROM until) * 1000000 >= %s
    RETURNING (extract(epoch FROM until) * 1000000)::bigint
"""
_UNTIL = "SELECT (extract(epoch FROM until) * 1000000)::bigint FROM node WHERE name = %s"
_NODES = """
    SELECT name, run, rpc, http, version, draining,
        extract(epoch FROM until - clock_timestamp())::float8 FROM node
"""
_OWNERS = "SELECT shard, node, epoch FROM owner JOIN shard ON id = shard"
_EPOCHS = "SELECT id, epoch FROM shard"
_RAISE_EPOCHS = """
    UPDATE shard SET epoch = greatest(epoch, %s)
    WHERE id = ANY(%s) AND id IN (SELECT shard FROM owner WHERE node = %s)
"""
_LEASE_OF_OWNER = """
    SELECT node.until > clock_timestamp(), run FROM node
    WHERE name = (SELECT node FROM owner WHERE shard = %s) FOR UPDATE
"""
_TAKE = """
    UPDATE owner SET node = %s, since = now() WHERE shard = %s AND node IS NOT DISTINCT FROM %s
"""
_GIVE = """
    UPDATE owner SET node = %s, since = now() WHERE shard = %s AND node = %s
    AND EXISTS (SELECT FROM node WHERE name = %s AND until > clock_timestamp())
"""


_PUBLISH_TOKENS = """
    UPDATE tokens SET version = version + 1, data = %s
    WHERE data <> %s AND version = coalesce(%s, version)
    AND EXISTS (SELECT FROM owner WHERE shard = 0 AND node = %s)
"""


_TOKENS = "SELECT version, data FROM tokens"


class NodeRow(NamedTuple):
    name: str
    run: int
    rpc: str
    http: str
    version: str
    is_draining: bool
    left_s: float


class Tables(NamedTuple):
    """All of it, as one transaction saw it."""

    nodes: list[NodeRow]
    owners: dict[int, str | None]
    epochs: dict[int, int]  # of shards
    tokens: int  # the version of the tokens …
    tokens_data: bytes | None  # … and they themselves, if that is not the version asked with
    until_us: int = 0  # of the lease that was renewed with it, by the server's clock


class KeptTokens(NamedTuple):
    """What the broker that was alone in a database leaves to the cluster: a snapshot of its
    catalog, with its tokens alone, and the same tokens for the nodes."""

    catalog: bytes
    tokens: bytes


def check_shards(shards: int) -> None:
    if not 1 <= shards <= CLUSTER_SHARDS_MAX:
        raise InvalidArgument(
            f"a cluster has 1 to {CLUSTER_SHARDS_MAX:,} shards, not {shards:,}",
            "64 is a good number",
        )


def create_cluster(
    url: str, shards: int, kept: KeptTokens | None = None, *, schema: str = "nexo"
) -> None:
    """Make the tables of a new cluster, in one transaction. With `kept`, nothing else stays of the
    broker that was there."""
    check_shards(shards)
    connection = connect(url, schema)
    try:
        with connection.transaction():
            if _one(connection, _FIND_CLUSTER)[0] is not None:
                raise InvalidArgument(
                    f"there is a cluster at {shown_url(url)} already",
                    "start a node: nexo serve --journal URL --node NAME --advertise HOST",
                )
            if kept is None and _one(connection, "SELECT EXISTS (SELECT FROM shard)")[0]:
                raise InvalidArgument(
                    f"the database at {shown_url(url)} holds the messages of a broker",
                    "give the cluster a database of its own",
                )
            connection.execute(_TABLES.encode(), prepare=False)
            if kept is not None:
                _keep(connection, kept)
            connection.execute(
                "INSERT INTO cluster VALUES (%s, %s)", (shards, secrets.token_urlsafe(32))
            )
            connection.execute(_MAKE_SHARDS, (shards - 1,))
            connection.execute(
                "INSERT INTO owner SELECT n FROM generate_series(0, %s) n", (shards - 1,)
            )
    except psycopg.Error as error:
        raise translate(error, "creating") from error
    finally:
        abandon(connection)


_FIND_CLUSTER = "SELECT to_regclass('cluster')"
# That of a broker alone stays as it is: epochs and numbers of rows only grow.
_MAKE_SHARDS = """
    INSERT INTO shard SELECT n, 0, 0 FROM generate_series(0, %s) n ON CONFLICT (id) DO NOTHING
"""


def _keep(connection: Connection, kept: KeptTokens) -> None:
    """The catalog of shard 0, the one that holds the tokens of a cluster and all of a broker."""
    for table in ("payload", "record", "snapshot"):
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    checksum = snapshot_checksum(CATALOG, 0, kept.catalog)
    connection.execute(
        "INSERT INTO snapshot VALUES (0, %s, 0, %s, %s)", (CATALOG, checksum, kept.catalog)
    )
    connection.execute("UPDATE tokens SET version = version + 1, data = %s", (kept.tokens,))


def shards_of(url: str, *, schema: str = "nexo") -> int | None:
    """How many shards the cluster in a database has; None: there is none. Nothing is changed."""
    connection = connect(url, schema, only_looks=True)
    try:
        if _one(connection, _FIND_CLUSTER)[0] is None:
            return None
        (shards,) = _one(connection, "SELECT shards FROM cluster")
        return int(shards)
    except psycopg.Error as error:
        raise translate(error, "reading") from error
    finally:
        abandon(connection)


def has_cluster(url: str, *, schema: str = "nexo") -> bool:
    """Whether the database is that of a cluster. Nothing is changed."""
    return shards_of(url, schema=schema) is not None


def holds_broker(url: str, *, schema: str = "nexo") -> bool:
    """Whether a broker that is alone has stored something there. Nothing is changed."""
    connection = connect(url, schema, only_looks=True)
    try:
        return (
            stored_version(connection, schema) > 0
            and _one(connection, _FIND_CLUSTER)[0] is None
            and bool(_one(connection, "SELECT EXISTS (SELECT FROM shard)")[0])
        )
    except psycopg.Error as error:
        raise translate(error, "reading") from error
    finally:
        abandon(connection)


class Look(NamedTuple):
    """A database as `nexo doctor` finds it. `format_version` 0: Nexo has nothing there; without
    `tables` there is no cluster. `ahead_s` is its clock against that of this machine."""

    server: str
    format_version: int
    ahead_s: float
    tables: Tables | None


def look(url: str, *, schema: str = "nexo") -> Look:
    """Nothing is changed."""
    connection = connect(url, schema, only_looks=True)
    try:
        version = stored_version(connection, schema)
        before_s = time.time()
        server, now_s = _one(
            connection,
            "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())",
        )
        ahead_s = float(now_s) - (before_s + time.time()) / 2
        has_one = version and _one(connection, _FIND_CLUSTER)[0] is not None
        return Look(server, version, ahead_s, _read(connection) if has_one else None)
    except psycopg.Error as error:
        raise translate(error, "reading") from error
    finally:
        abandon(connection)


class ClusterTables:
    """What one node reads and writes there. It is used by one thread, and may block; after a fault
    it connects again by itself."""

    def __init__(self, url: str, node: str, run: int, *, schema: str = "nexo") -> None:
        self._url, self._schema = url, schema
        self._node, self._run = node, run
        self._channel = f"{schema}_cluster"
        self._connection: Connection | None = None
        self._until_us = 0  # what the last renewal wrote

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection)

    def cluster(self) -> tuple[int, str]:
        """How many shards it has, and its secret. Raises if there is no cluster."""

        def read(connection: Connection) -> tuple[int, str]:
            if _one(connection, _FIND_CLUSTER)[0] is None:
                raise no_cluster(self._url)
            shards, secret = _one(connection, "SELECT shards, secret FROM cluster")
            return shards, secret

        return self._do(read)

    def join(self, rpc: str, http: str, version: str) -> bool:
        """Take the row of this node's name. False: another run of that name holds it."""

        def join(connection: Connection) -> bool:
            given = (self._node, self._run, rpc, http, version, _LEASE)
            row = connection.execute(_JOIN, given).fetchone()
            self._notify(connection)
            if row is not None:
                (self._until_us,) = row
            return row is not None

        return self._do(join)

    def renew(self, tokens_known: int = -1) -> Tables:
        """Renew the lease, and read the tables after that, with the tokens if there are others
        than those known. `Fenced`: the row is another's."""

        def renew(connection: Connection) -> Tables:
            with connection.transaction():
                given = (_LEASE, self._node, self._run, self._until_us)
                row = connection.execute(_RENEW, given).fetchone()
                if row is None:
                    raise self._overtaken(connection)
                tables = _read(connection, tokens_known)
            (self._until_us,) = row
            return tables._replace(until_us=self._until_us)

        return self._do(renew)

    def _overtaken(self, connection: Connection) -> Fenced:
        """Why the row is not as this node left it."""
        found = connection.execute(_UNTIL, (self._node,)).fetchone()
        if found is None or found[0] < self._until_us:
            return Fenced(
                f"the database is older than what node {self._node!r} has written to it: it was "
                "restored from a backup, or failed over to a server that was behind",
                "start the node again: it serves what the database holds now",
            )
        return Fenced(
            f"another node has taken the name {self._node!r}",
            "each node needs a name of its own: --node NAME",
        )

    def read(self) -> Tables:
        def read(connection: Connection) -> Tables:
            with connection.transaction():
                return _read(connection)

        return self._do(read)

    def epochs(self) -> dict[int, int]:
        """How often each shard was opened."""
        return self._do(lambda connection: dict(connection.execute(_EPOCHS).fetchall()))

    def raise_epochs(self, shards: list[int], least: int) -> None:
        """The next one to open a shard finds an epoch beyond this one. Only its owner may do so."""

        def raise_them(connection: Connection) -> None:
            connection.execute(_RAISE_EPOCHS, (least, shards, self._node))

        self._do(raise_them)

    def take(self, shard: int, owner: str | None) -> bool:
        """Become the owner of a shard whose owner was this one and lives no more."""

        def take(connection: Connection) -> bool:
            with connection.transaction():
                found = connection.execute(_LEASE_OF_OWNER, (shard,)).fetchone()
                if found is not None and found[0]:
                    return False
                done = connection.execute(_TAKE, (self._node, shard, owner)).rowcount == 1
                self._notify(connection)
            if done and owner is not None and owner != self._node and found is not None:
                end_transactions(connection, self._schema, owner, found[1])
            return done

        return self._do(take)

    def give(self, shard: int, to: str) -> bool:
        """Make another node the owner of a shard; False if it lives no more."""

        def give(connection: Connection) -> bool:
            done = connection.execute(_GIVE, (to, shard, self._node, to)).rowcount == 1
            self._notify(connection)
            return done

        return self._do(give)

    def forget(self) -> None:
        """There is no such node any more, and it owns nothing."""

        def forget(connection: Connection) -> None:
            with connection.transaction():
                given = (self._node, self._run)
                gone = connection.execute("DELETE FROM node WHERE name = %s AND run = %s", given)
                if gone.rowcount:
                    connection.execute("UPDATE owner SET node = NULL WHERE node = %s", given[:1])
                self._notify(connection)

        self._do(forget)

    def leave(self) -> None:
        """This node lives no more: what it still owns is free at once."""

        def leave(connection: Connection) -> None:
            connection.execute(
                "UPDATE node SET until = 'epoch' WHERE name = %s AND run = %s",
                (self._node, self._run),
            )
            self._notify(connection)

        self._do(leave)

    def tokens(self) -> tuple[int, bytes]:
        """Their version, and what was published with it."""

        def read(connection: Connection) -> tuple[int, bytes]:
            version, data = _one(connection, _TOKENS)
            return version, data

        return self._do(read)

    def publish_tokens(self, data: bytes, expected: int | None = None) -> tuple[int, bytes]:
        """These are the tokens now. Only who owns shard 0 may say so, and not after another
        version than expected: a statement that was given up may still be done, late. Returns what
        is there."""

        def publish(connection: Connection) -> tuple[int, bytes]:
            connection.execute(_PUBLISH_TOKENS, (data, data, expected, self._node))
            self._notify(connection)
            version, stored = _one(connection, _TOKENS)
            return version, stored

        return self._do(publish)

    def set_draining(self, node: str | None, draining: bool) -> int:
        """How many nodes were changed; None stands for all."""

        def change(connection: Connection) -> int:
            count = connection.execute(
                "UPDATE node SET draining = %s WHERE (name = %s OR %s::text IS NULL)",
                (draining, node, node),
            ).rowcount
            self._notify(connection)
            return count

        return self._do(change)

    def wait(self, seconds: float) -> None:
        """Until somebody changes the tables, but no longer than this."""

        def wait(connection: Connection) -> None:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass

        self._do(wait)

    def _notify(self, connection: Connection) -> None:
        connection.execute(sql.SQL("NOTIFY {}").format(sql.Identifier(self._channel)))

    def _do(self, work: Callable[[Connection], Result]) -> Result:
        try:
            if self._connection is None:
                self._connection = connect_node(self._url, self._schema, self._node, self._run)
                listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
                self._connection.execute(listen)
            return work(self._connection)
        except postgresql.UndefinedTable:
            raise no_cluster(self._url) from None
        except psycopg.Error as error:
            self.close()
            found: NexoError = translate(error, "reading")
            raise NotReady(found.message, found.hint) from error


def _read(connection: Connection, tokens_known: int = -1) -> Tables:
    nodes = [NodeRow(*row) for row in connection.execute(_NODES)]
    rows = connection.execute(_OWNERS).fetchall()
    owners: dict[int, str | None] = {shard: node for shard, node, _ in rows}
    epochs: dict[int, int] = {shard: epoch for shard, _, epoch in rows}
    statement = "SELECT version, CASE WHEN version <> %s THEN data END FROM tokens"
    found = connection.execute(statement, (tokens_known,)).fetchone()
    assert found is not None
    return Tables(nodes, owners, epochs, *found)


def _one(connection: Connection, statement: str) -> tuple[Any, ...]:
    found = connection.execute(statement.encode()).fetchone()
    assert found is not None
    return found


_LEASE = f"{CLUSTER_LEASE_S} seconds"
