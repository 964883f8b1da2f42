"""A connection to PostgreSQL for the journal: made, checked, in the right mode; and its errors.

| PostgreSQL                          | raised             | the journal then          |
|-------------------------------------|--------------------|---------------------------|
| the epoch of the shard was raised   | `Fenced`           | is closed, for good       |
| the connection broke                | `NotReady`         | is closed until reopened  |
| its disk is full (53100)            | `ReadOnly`         | goes on, rolled back      |
| it takes no writes (25006), others  | `ReadOnly`         | is closed until reopened  |
| wrong password, database, host      | `InvalidArgument`, | was not open              |
|                                     | or `NotReady`      |                           |

No message of ours shows the URL as it was given: it may hold a password.
"""

from __future__ import annotations

import contextlib
import os
import platform
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as postgresql
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from nexo.journal.rows import CORRUPT_HINT
from nexo.vocabulary.errors import (
    DataCorrupt,
    InvalidArgument,
    NexoError,
    NotReady,
    ReadOnly,
    VersionMismatch,
)
from nexo.vocabulary.limits import POSTGRESQL_CONNECT_S, POSTGRESQL_IDLE_MS, POSTGRESQL_SILENT_S

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA = Path(__file__).with_name("postgresql.sql").read_text(encoding="utf-8")
FORMAT_VERSION = 1
VERSION_MIN = 140_000  # the oldest PostgreSQL that its makers still maintain
# From the old version: the statements that lead to the next one.
MIGRATIONS: dict[int, str] = {}

AWAY_HINT = "the broker connects again by itself; look at PostgreSQL and at the network"
# For who connects: a command, a broker that starts, and one that tries again.
UNREACHED_HINT = "check the URL, and whether PostgreSQL runs and this machine can reach it"
FULL_HINT = "free some space: pushes are accepted again by themselves when there is room"


def connect(
    url: str, schema: str, *, only_looks: bool = False, is_node: bool = False
) -> Connection:
    """Connect to the server that takes writes, and make or check the tables, unless who asks
    `only_looks`. A node makes none: those of its cluster are there, or there is no cluster."""
    given = _parse(url)
    try:
        connection = psycopg.connect(make_conninfo(**(_DEFAULTS | given)), autocommit=True)
    except psycopg.OperationalError as error:
        raise _unreachable(error, given) from None
    except psycopg.Error as error:
        raise InvalidArgument(
            f"cannot connect to PostgreSQL at {place_of(given)}: {_plain(error)}",
            "check the URL of --journal",
        ) from None
    try:
        _settle_session(connection, schema)
        if not only_looks:
            _bring_up(connection, schema, no_cluster(url) if is_node else None)
        connection.prepare_threshold = 0  # a commit has the same few statements, always
    except BaseException as error:
        abandon(connection)
        if isinstance(error, psycopg.Error):
            raise translate(error, "opening") from error
        raise
    return connection


def connect_node(url: str, schema: str, node: str, run: int) -> Connection:
    """The same for a node of a cluster. One that is stopped in the middle of a transaction must not
    keep its locks: whoever takes over its shards would wait for them. The server ends a transaction
    that waits for its next statement. One that waits for the rest of a statement is ended by who
    takes over (`end_transactions`), who knows it by the name that is set here."""
    connection = connect(url, schema, is_node=True)
    try:
        for name, value in (
            ("idle_in_transaction_session_timeout", POSTGRESQL_IDLE_MS),
            ("application_name", _mark_of(schema, node, run)),
        ):
            connection.execute(
                sql.SQL("SET {} TO {}").format(sql.Identifier(name), sql.Literal(value))
            )
    except psycopg.Error as error:
        abandon(connection)
        raise translate(error, "opening") from error
    return connection


def end_transactions(connection: Connection, schema: str, node: str, run: int) -> None:
    """End those that a node has left open. It has lost its lease: its next one would be refused.
    Not those of another run: a node that was killed may just be starting again."""
    connection.execute(_END_TRANSACTIONS, (_mark_of(schema, node, run),))


_END_TRANSACTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND usename = current_user
    AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
"""


def _mark_of(schema: str, node: str, run: int) -> str:
    """PostgreSQL cuts names after 63 bytes."""
    digest = sha256(f"{schema} {node} {run}".encode()).hexdigest()[:12]
    return f"nexo node {digest} {node}".encode()[:63].decode(errors="ignore")


# A server that vanishes must be noticed: libpq would wait for hours. Of several hosts, the one that
# takes writes. What the URL says goes before these.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": POSTGRESQL_CONNECT_S,
    "keepalives_idle": POSTGRESQL_SILENT_S // 2,
    "keepalives_interval": 1,
    "keepalives_count": POSTGRESQL_SILENT_S // 2,
    "tcp_user_timeout": POSTGRESQL_SILENT_S * 1000,
    "target_session_attrs": "read-write",
    "client_encoding": "utf8",  # or text comes as bytes from a database whose encoding is SQL_ASCII
    "application_name": f"nexo, process {os.getpid()} on {platform.node()}"[:63],
}


def place_of(given: dict[str, Any]) -> str:
    """Which database it is, without who and with what password."""
    hosts = str(given.get("host") or given.get("hostaddr") or "the local socket")
    port = f":{given['port']}" if given.get("port") else ""
    return f"{hosts}{port}/{given.get('dbname') or given.get('user') or ''}"


def shown_url(url: str) -> str:
    """The URL for people and logs."""
    return f"postgresql://{place_of(_parse(url))}"


def _parse(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.Error:
        raise InvalidArgument(
            "the URL of the journal is not one that PostgreSQL's clients read",
            "write postgresql://USER@HOST:PORT/DATABASE",
        ) from None  # libpq repeats the text that it could not read, password and all


def _settle_session(connection: Connection, schema: str) -> None:
    if connection.info.server_version < VERSION_MIN:
        raise VersionMismatch(
            f"this PostgreSQL is version {connection.info.server_version // 10_000}",
            f"Nexo needs {VERSION_MIN // 10_000} or newer",
        )
    connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
    # Nothing may be confirmed that a crash of the server could take back, whatever its default.
    found = connection.execute("SHOW synchronous_commit").fetchone()
    if found is None or found[0] not in ("on", "remote_apply"):
        connection.execute("SET synchronous_commit TO on")
    for name, value in _WANTED:
        with contextlib.suppress(psycopg.DatabaseError):  # not every server knows them
            connection.execute(
                sql.SQL("SET {} TO {}").format(sql.Identifier(name), sql.Literal(value))
            )


_WANTED: tuple[tuple[str, Any], ...] = (
    # The server, too, has to notice that a broker vanished: it holds the lock of its shard.
    ("tcp_keepalives_idle", POSTGRESQL_SILENT_S // 2),
    ("tcp_keepalives_interval", 1),
    ("tcp_keepalives_count", POSTGRESQL_SILENT_S // 2),
    # Rows are found by their keys, however large a table is and however many are asked for. Left to
    # itself, the planner looks at each array of keys anew, which takes longer than most statements
    # do; and a plan for a table that was empty reads the whole of it for each range to delete.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    # Before version 18 a scan that is off and yet needed, for want of an index, counts as so costly
    # that the server compiles the statement each time: a push took 38 ms instead of 0.3.
    ("jit", "off"),
)


def no_cluster(url: str) -> InvalidArgument:
    return InvalidArgument(
        f"there is no cluster at {shown_url(url)}", "create it: nexo cluster create --journal URL"
    )


def _bring_up(connection: Connection, schema: str, without: NexoError | None) -> None:
    """Create the tables, or raise `without`; or check and migrate them; in one transaction."""
    with connection.transaction():
        # Two that start at once: the second waits, and finds the tables.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"nexo {schema}",))
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        version = stored_version(connection, schema)
        if version > FORMAT_VERSION:
            raise VersionMismatch(
                f"the journal in PostgreSQL has format version {version}; "
                f"this Nexo reads up to {FORMAT_VERSION}",
                "start the newer Nexo that wrote it, or restore a backup from before the upgrade",
            )
        if version == 0 and without is not None:
            raise without
        if version == 0:
            connection.execute(SCHEMA.encode())
            connection.execute("INSERT INTO format VALUES (%s)", (FORMAT_VERSION,))
            return
        for old in range(version, FORMAT_VERSION):
            connection.execute(MIGRATIONS[old].encode())
        if version < FORMAT_VERSION:
            connection.execute("UPDATE format SET version = %s", (FORMAT_VERSION,))


def stored_version(connection: Connection, schema: str) -> int:
    """Of the format of the tables; 0: there are none."""
    tables = {
        name
        for (name,) in connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,)
        )
    }
    if not tables:
        return 0
    if "format" in tables and "shard" in tables:
        found = connection.execute("SELECT version FROM format").fetchall()
        if len(found) == 1 and isinstance(found[0][0], int) and found[0][0] > 0:
            return found[0][0]
    raise InvalidArgument(
        f"the schema {schema} in PostgreSQL holds tables that are not a journal of Nexo",
        "give Nexo a database of its own",
    )


def translate(error: psycopg.Error, doing: str) -> NexoError:
    """The error to raise for one that PostgreSQL raised while `doing` something to the journal."""
    if isinstance(error, postgresql.UniqueViolation):
        return InvalidArgument("a row of this number is stored already")
    if isinstance(error, postgresql.DiskFull):
        return ReadOnly("the disk of PostgreSQL is full, nothing was stored", FULL_HINT)
    if isinstance(error, (postgresql.DataCorrupted, postgresql.IndexCorrupted)):
        return DataCorrupt(f"{doing} the journal in PostgreSQL: {_plain(error)}", CORRUPT_HINT)
    if error.sqlstate is None or isinstance(error, (postgresql.AdminShutdown, _Lost)):
        return NotReady(f"the connection to PostgreSQL is lost: {_plain(error)}", AWAY_HINT)
    return ReadOnly(
        f"{doing} the journal in PostgreSQL failed: {_plain(error)} [{error.sqlstate}]",
        "see PostgreSQL's log, and the permissions of the user in the URL",
    )


_Lost = (
    postgresql.ConnectionException,
    postgresql.CannotConnectNow,
    postgresql.CrashShutdown,
    postgresql.IdleInTransactionSessionTimeout,
    postgresql.IdleSessionTimeout,
)


def _unreachable(error: psycopg.OperationalError, given: dict[str, Any]) -> NexoError:
    place = place_of(given)
    if isinstance(error, postgresql.InvalidAuthorizationSpecification) or (
        "authentication failed" in str(error)
    ):
        return InvalidArgument(
            f"PostgreSQL at {place} refuses the user: {_plain(error)}",
            "check the user and the password: in the URL, $PGPASSWORD or ~/.pgpass",
        )
    if "does not exist" in str(error):
        return InvalidArgument(
            f"PostgreSQL at {place}: {_plain(error)}", "create the database, or check the URL"
        )
    return NotReady(f"cannot reach PostgreSQL at {place}: {_plain(error)}", UNREACHED_HINT)


def _plain(error: psycopg.Error) -> str:
    """The first line that says something."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def abandon(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.close()
