"""The format of the journal's file: what marks it as ours, its version, how to bring up old ones.

The recipe for changing the format stands at the top of `schema.sql`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.errors import InvalidArgument, VersionMismatch

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 0x4E65786F  # "Nexo", in the file's header: `file journal.db` shows it
FORMAT_VERSION = 2
SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

# From the old version: the statements that lead to the next one.
MIGRATIONS: dict[int, str] = {
    1: "",  # snapshots may be in pieces; those in one piece are read as before
}


class Layout(msgspec.Struct, frozen=True):
    """A format; tests plant others."""

    version: int = FORMAT_VERSION
    schema: str = SCHEMA
    migrations: dict[int, str] = msgspec.field(default_factory=lambda: MIGRATIONS)


def stored_version(connection: apsw.Connection, file: str) -> int:
    """The version of the file, 0 if it is empty. Reads only: a foreign file stays as it is."""
    application_id = connection.pragma("application_id")
    version = connection.pragma("user_version")
    if application_id == APPLICATION_ID and isinstance(version, int) and version > 0:
        return version
    if connection.execute("SELECT count(*) FROM sqlite_schema").get or application_id:
        raise InvalidArgument(
            f"{file} is a SQLite file, but not a Nexo journal",
            "give Nexo a data directory of its own",
        )
    return 0


def require_readable(version: int, layout: Layout, file: str) -> None:
    """Refuse what is newer than this Nexo, or too old for any migration to start from."""
    if version > layout.version:
        raise VersionMismatch(
            f"{file} has format version {version}; this Nexo reads up to {layout.version}",
            "start the newer Nexo that wrote it, or restore a backup from before the upgrade",
        )
    if any(
        old not in layout.migrations for old in range(version or layout.version, layout.version)
    ):
        raise VersionMismatch(
            f"{file} has format version {version}, which this Nexo can no longer migrate",
            "start a Nexo version in between first",
        )


def bring_up(connection: apsw.Connection, version: int, layout: Layout) -> None:
    """Create the tables, or migrate them; in one transaction, so a crash leaves the old file."""
    if version == layout.version:
        return
    connection.execute("BEGIN IMMEDIATE")  # a failure ends the connection, and so this too
    if version == 0:
        connection.execute(layout.schema)
        connection.pragma("application_id", APPLICATION_ID)
    else:
        for old in range(version, layout.version):
            connection.execute(layout.migrations[old])
    connection.pragma("user_version", layout.version)
    connection.execute("COMMIT")
