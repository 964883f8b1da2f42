"""The lake: a place for Delta tables, a folder or an object store, and for small files of our own.

    LAKE/messages    what was published and pushed, partitioned by `source` and `date`
    LAKE/events      the life of messages, as ranges, partitioned by `date`
    LAKE/insights/   figures by queue and minute, a table for each kind
    LAKE/_nexo/      status of jobs, plans of replays, and Spark's checkpoints if it is a folder

A broker reads the status files, so nothing here loads Spark, Arrow or Delta before it is needed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGES, EVENTS, INSIGHTS = "messages", "events", "insights"
SCHEMES = ("s3", "gs", "abfss", "az")
_ALIASES = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}
_INTERNAL = "_nexo"
_BUFFER_BYTES = 1 << 16


class Lake:
    """`options` are those of the object store, by the names that delta-rs has for them. What they
    do not say is looked for in the environment, on the driver and on each executor."""

    def __init__(self, root: str | Path, options: Mapping[str, str] | None = None) -> None:
        text = str(root).removeprefix("file://")
        self.options = dict(options or {})
        self.folder: Path | None = None
        if "://" in text:
            self.uri = _checked(text)
        else:
            self.folder = Path(text).absolute()
            self.uri = str(self.folder)

    def __str__(self) -> str:
        return self.uri

    def table(self, *names: str) -> str:
        """Where a table is: `messages`, `events` or one of `insights`."""
        return "/".join((self.uri, *names))

    def checkpoint(self, job: str, chosen: str | None) -> str:
        """Where Spark keeps what it needs to go on."""
        if chosen is not None:
            return chosen
        if self.folder is None:
            raise InvalidArgument(
                f"{job} needs a checkpoint folder, and {self.uri} is an object store",
                "name one with --checkpoint; on a cluster, a folder that every machine can reach",
            )
        return str(self.folder / _INTERNAL / "checkpoints" / job)

    # -- Files, of tables and our own ----------------------------------------------------------

    def files(self) -> Any:
        """The object store as Arrow's file system, its root that of the lake."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, self.options))

    def read(self, *names: str) -> bytes | None:
        """One of our own small files; None if it is not there."""
        try:
            if self.folder is not None:
                return self.folder.joinpath(_INTERNAL, *names).read_bytes()
            with self.files().open_input_file("/".join((_INTERNAL, *names))) as file:
                found: bytes = file.read()
                return found
        except FileNotFoundError:
            return None

    def write(self, content: bytes, *names: str) -> None:
        """It is there whole or not at all, also after a power failure."""
        if self.folder is not None:
            write_atomically(self.folder.joinpath(_INTERNAL, *names), content)
            return
        path = "/".join((_INTERNAL, *names))
        with self.files().open_output_stream(path, buffer_size=_BUFFER_BYTES) as file:
            file.write(content)

    def names(self, *folder: str) -> list[str]:
        """The small files in one of our folders, in order."""
        if self.folder is not None:
            place = self.folder.joinpath(_INTERNAL, *folder)
            return sorted(each.name for each in place.glob("*.json"))
        from pyarrow.fs import FileSelector

        selector = FileSelector("/".join((_INTERNAL, *folder)), allow_not_found=True)
        return sorted(each.base_name for each in self.files().get_file_info(selector))


def _checked(text: str) -> str:
    parts = urlsplit(text)
    scheme = _ALIASES.get(parts.scheme, parts.scheme)
    if scheme not in SCHEMES:
        raise InvalidArgument(
            f"the lake {text!r:.80} is neither a folder nor a supported object store",
            f"write a path, or one of {', '.join(f'{each}://' for each in SCHEMES)}",
        )
    if not parts.netloc:
        raise InvalidArgument(f"the lake {text!r:.80} names no bucket", f"{scheme}://BUCKET/PATH")
    return f"{scheme}://{parts.netloc}{parts.path}".rstrip("/")


def write_atomically(path: Path, content: bytes) -> None:
    """A small file that is there whole or not at all, also after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        sync(fresh)
        fresh.replace(path)
    except OSError:  # on a full disk not even an empty file is left
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """What a file holds is on disk, or which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
