"""The tables of a lake, by delta-rs: made, opened and checked; what a store refuses in one line.

A table is opened only if it is ours: another kind of table, other columns or a lake from before
Delta are named, and nothing is written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from nexo.pipeline.lake import EVENTS, MESSAGES
from nexo.vocabulary.errors import InvalidArgument, NexoError, ReadOnly, Unauthorized, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from nexo.pipeline.lake import Lake

UTC_TIME = pa.timestamp("us", tz="UTC")
LOG = "_delta_log"
# So long readers may go back, and files that no version has any more stay.
KEPT = "interval 7 days"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m|↳")
_REFUSED = (
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden"),
    *(
        "401 Unauthorized",
        "latest/api/token",
        "latest/meta-data",
        "metadata.google.internal",
        "credential",
    ),
)
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT to the file of a service account",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_KEY",
}
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


class Kind(NamedTuple):
    """A table that a job writes. `skipped_by` are the columns that tell a reader which files hold
    what it looks for."""

    path: tuple[str, ...]
    schema: pa.Schema
    partitions: tuple[str, ...] = ()
    skipped_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "/".join(self.path)


MESSAGES_TABLE = Kind(
    (MESSAGES,),
    pa.schema(
        [
            ("id", pa.string()),
            ("body", pa.binary()),
            ("priority", pa.int32()),
            ("attempts", pa.int32()),
            ("created_at", UTC_TIME),
            ("attributes", pa.map_(pa.string(), pa.string())),
            ("group_id", pa.string()),
            ("offset", pa.int64()),
            ("source", pa.string()),
            ("date", pa.date32()),
        ]
    ),
    ("source", "date"),
    ("offset", "created_at"),
)
EVENTS_TABLE = Kind(
    (EVENTS,),
    pa.schema(
        [
            ("kind", pa.string()),
            ("queue", pa.string()),
            ("first_seq", pa.int64()),
            ("count", pa.int64()),
            ("at", UTC_TIME),
            ("created_at", UTC_TIME),
            ("attempts", pa.int32()),
            ("consumer", pa.string()),
            ("reason", pa.string()),
            ("delivered_at", UTC_TIME),
            ("offset", pa.int64()),
            ("date", pa.date32()),
        ]
    ),
    ("date",),
    ("offset", "at"),
)


def find_table(lake: Lake, kind: Kind) -> DeltaTable | None:
    """The table, if it is there and ours."""
    uri = lake.table(*kind.path)
    if lake.folder is not None and lake.folder.joinpath(*kind.path).is_file():
        raise InvalidArgument(f"{uri} is a file", "name another --lake")
    with store_errors(uri):
        try:
            table = DeltaTable(uri, storage_options=lake.options)
        except TableNotFoundError:
            _check_no_other(lake, kind)
            return None
        _check_columns(table, kind)
    return table


def open_table(lake: Lake, kind: Kind, version: int | datetime | None = None) -> DeltaTable:
    """The table, which must be there; as it is now, or as it was."""
    table = find_table(lake, kind)
    if table is None:
        raise InvalidArgument(
            f"there is no archive in {lake.table(*kind.path)}",
            "run nexo pipeline run archive first, or name another --lake",
        )
    if version is not None:
        _go_back(table, version)
    return table


def create_table(lake: Lake, kind: Kind) -> DeltaTable:
    """The table, made if it is not there."""
    table = find_table(lake, kind)
    return make_table(lake, kind) if table is None else table


def properties(kind: Kind) -> dict[str, str | None]:
    """Those of Delta that a table is made with."""
    return {
        "delta.logRetentionDuration": KEPT,
        "delta.deletedFileRetentionDuration": KEPT,
        "delta.dataSkippingStatsColumns": ",".join(kind.skipped_by),
    }


def make_table(lake: Lake, kind: Kind) -> DeltaTable:
    """The table, made if nobody has, whatever else lies there."""
    uri = lake.table(*kind.path)
    with store_errors(uri):
        DeltaTable.create(
            uri,
            kind.schema,
            mode="ignore",  # another job may have been quicker
            partition_by=list(kind.partitions),
            configuration=properties(kind),
            storage_options=lake.options,
        )
        return DeltaTable(uri, storage_options=lake.options)


def make_folder(path: str) -> str:
    """A folder for Spark, if it is one of this machine: Java tells in a hundred lines that it
    cannot make it."""
    if "://" not in path:
        with store_errors(path):
            Path(path).mkdir(parents=True, exist_ok=True)
    return path


def check_lake(lake: Lake, more: Iterable[Kind] = ()) -> None:
    """Refuse a lake whose tables are not ours, before anything is done with it; also those that a
    job uses besides."""
    check_not_old(lake)
    for kind in (MESSAGES_TABLE, EVENTS_TABLE, *more):
        find_table(lake, kind)


def check_not_old(lake: Lake) -> None:
    if is_old(lake):
        raise InvalidArgument(
            f"{lake} was written by an older Nexo, as Parquet folders without Delta tables",
            f"convert it in place: nexo pipeline migrate --lake {lake}",
        )


def is_old(lake: Lake) -> bool:
    """Whether this lake was written before lakes were Delta tables, and not converted, or not
    wholly. Such lakes were folders."""
    if lake.folder is None:
        return False
    if any(lake.folder.glob("_nexo/commits/*.json")):
        return True
    tables = (MESSAGES, "source=*/date=*/*.parquet"), (EVENTS, "date=*/*.parquet")
    for name, files in tables:
        table = lake.folder / name
        if not (table / LOG).is_dir() and any(table.glob(files)):
            return True
    days = lake.folder.glob("insights/*/????-??-??.parquet")
    return any(not (file.parent / LOG).is_dir() for file in days)


def is_readable_by_files(table: DeltaTable) -> None:
    """Refuse a table whose files alone do not say what is in it: somebody has switched on a
    feature such as deletion vectors or renamed columns."""
    features = table.protocol().reader_features or []
    if unknown := sorted(set(features) - {"timestampNtz"}):
        raise InvalidArgument(
            f"{table.table_uri} has Delta features that Nexo cannot read: {', '.join(unknown)}",
            "read it with Spark and Delta's jar, or switch them off",
        )


@contextlib.contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """What a disk or an object store refuses, as one of our errors."""
    try:
        yield
    except CommitFailedError:
        raise
    except (OSError, DeltaError) as error:
        raise _explained(uri, error) from None


def _explained(uri: str, error: Exception) -> NexoError:
    lines = [" ".join(_COLOURS.sub("", line).split()) for line in str(error).splitlines()]
    text = ": ".join(line for line in lines if line)
    number = getattr(error, "errno", None)
    if number == errno.ENOSPC or "No space left" in text or "os error 28" in text:
        return ReadOnly(f"the disk of {uri} is full", "free some space, then run the job again")
    if number in (errno.EACCES, errno.EROFS, errno.EPERM) or re.search(
        r"os error (1|13|30)\b|code: (1|13|30),|Read-only file|[Pp]ermission ?[Dd]enied", text
    ):
        return ReadOnly(
            f"{uri} cannot be written", "the job needs permission to read and write there"
        )
    if any(each in text for each in _NO_BUCKET):
        return InvalidArgument(
            f"the bucket of {uri} does not exist", "create it first, or check its name"
        )
    if any(each in text for each in _REFUSED):
        scheme = uri.partition("://")[0]
        return Unauthorized(
            f"the object store refuses access to {uri}",
            f"set {_CREDENTIALS.get(scheme, _CREDENTIALS['s3'])}, or --storage-option NAME=VALUE",
        )
    if "error sending request" in text or "Connect" in text:
        return Unreachable(f"the object store of {uri} does not answer: {text[-160:]}")
    return NexoError(f"{uri} cannot be used: {text:.300}")


def _check_columns(table: DeltaTable, kind: Kind) -> None:
    wanted, found = _types(Schema.from_arrow(kind.schema)), _types(table.schema())
    wrong = sorted(name for name, held in wanted.items() if found.get(name) != held)
    if wrong or tuple(table.metadata().partition_columns) != kind.partitions:
        what = f"has no {', '.join(wrong)} as Nexo writes them" if wrong else "is partitioned"
        by = ", ".join(kind.partitions) or "nothing"
        raise InvalidArgument(
            f"the table {table.table_uri} {what}" + ("" if wrong else " in another way"),
            f"name another --lake: this table is not Nexo's {kind.name}, partitioned by {by}",
        )


def _types(schema: Schema) -> dict[str, str]:
    """The columns and their types, whatever may be empty in them."""
    fields = json.loads(schema.to_json())["fields"]
    return {each["name"]: _shape(each["type"]) for each in fields}


def _shape(kind: object) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    inner = sorted(f"{key}={_shape(value)}" for key, value in kind.items() if "Type" in key)
    return f"{kind.get('type')}({', '.join(inner)})"


def _check_no_other(lake: Lake, kind: Kind) -> None:
    """Nothing may lie where a table is to be made."""
    check_not_old(lake)
    if lake.folder is not None:
        place = lake.folder.joinpath(*kind.path)
        found = place.is_dir() and any(each.name != LOG for each in place.iterdir())
    else:
        from pyarrow.fs import FileSelector

        selector = FileSelector(kind.name, allow_not_found=True)
        found = bool(lake.files().get_file_info(selector))
    if found:
        raise InvalidArgument(
            f"{lake.table(*kind.path)} has files, but is not a Delta table",
            "use another --lake: Nexo does not write into other files' folders",
        )


def _go_back(table: DeltaTable, version: int | datetime) -> None:
    try:
        table.load_as_version(version)
    except (DeltaError, OSError, ValueError) as error:
        raise InvalidArgument(
            f"{table.table_uri} cannot be read as of {version}",
            f"the newest version is {table.version()}; old versions are kept for 7 days",
        ) from error
