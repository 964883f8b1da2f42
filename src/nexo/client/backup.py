"""Taking a backup of a running broker into a local file, without I/O to the broker: a generator
that yields what to ask and is sent the answers. Both clients drive it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nexo.client import requests
from nexo.vocabulary.errors import (
    DataCorrupt,
    InvalidArgument,
    NexoError,
    ReadOnly,
    Unreachable,
)
from nexo.vocabulary.limits import BACKUP_PIECE_BYTES_MAX, CLIENT_BACKUP_WAIT_MS
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from nexo.client.operation import Operation
    from nexo.wire.calls import BackupProgress

    Report = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all


def take_backup(
    file: str | os.PathLike[str], report: Report | None, replace: bool
) -> Generator[Operation, Any, int]:
    """Returns the size of the backup. The file appears only when it is whole."""
    target = Path(file)
    if target.exists() and not replace:
        raise InvalidArgument(
            f"{target} already exists", "choose another name, or pass replace=True"
        )
    progress = yield requests.call(calls.BeginBackup())
    try:
        size = yield from _take(target, progress, report)
    except (GeneratorExit, Unreachable):
        raise  # there is nobody left to tell; the broker notices by the silence
    except BaseException:
        # Whatever it was, Ctrl-C included: the next backup must not wait for this one.
        yield from _end(progress)
        raise
    yield from _end(progress)
    return size


def _end(progress: BackupProgress) -> Generator[Operation, Any, None]:
    with contextlib.suppress(NexoError):  # it is forgotten by itself, if somewhat later
        yield requests.call(calls.EndBackup(progress.backup))


def _take(
    target: Path, progress: BackupProgress, report: Report | None
) -> Generator[Operation, Any, int]:
    part = target.with_name(f"{target.name}.part")
    try:
        while not progress.done:
            if report is not None:
                report("copying", progress.copied_bytes, progress.total_bytes)
            progress = yield requests.call(
                calls.AwaitBackup(progress.backup, CLIENT_BACKUP_WAIT_MS)
            )
        yield from _fetch(progress, part, report)
        part.replace(target)
        _synchronize(target.parent)
    except OSError as error:
        raise ReadOnly(
            f"{target} cannot be written: {error.strerror}",
            "check the path and the free disk space",
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return int(progress.total_bytes)


def _fetch(
    progress: BackupProgress, part: Path, report: Report | None
) -> Generator[Operation, Any, None]:
    digest, offset = hashlib.sha256(), 0
    part.unlink(missing_ok=True)
    # It holds messages and secrets: nobody else may read it, not for a moment.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        while True:
            wanted = calls.ReadBackup(progress.backup, offset, BACKUP_PIECE_BYTES_MAX)
            piece = yield requests.call(wanted)
            if not piece:
                break
            writing.write(piece)
            digest.update(piece)
            offset += len(piece)
            if report is not None:
                report("fetching", offset, progress.total_bytes)
        writing.flush()
        os.fsync(writing.fileno())
    if digest.hexdigest() != progress.sha256:
        raise DataCorrupt("the backup was damaged during the transfer", "run the backup again")


def _synchronize(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
