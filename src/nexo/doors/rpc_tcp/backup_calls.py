"""The named calls of a backup: begin it, wait for it, fetch it in pieces, let it go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary import allowed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

    Calling = Callable[[Engine, Any], Awaitable[Any]]


class BackupBegin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class BackupWait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backup: allowed.Number
    wait_ms: allowed.WaitMs = 0


class BackupPiece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backup: allowed.Number
    offset: allowed.Number
    size: allowed.PieceBytes


class BackupEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    backup: allowed.Number


async def _begin(engine: Engine, _: BackupBegin) -> Any:
    return await engine.backups.begin()


async def _progress(engine: Engine, wanted: BackupWait) -> Any:
    return await engine.backups.progress(wanted.backup, wanted.wait_ms)


async def _read(engine: Engine, wanted: BackupPiece) -> bytes:
    return await engine.backups.read(wanted.backup, wanted.offset, wanted.size)


async def _end(engine: Engine, wanted: BackupEnd) -> None:
    engine.backups.end(wanted.backup)


BACKUP_CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "backup": (BackupBegin, _begin),
    "backup_progress": (BackupWait, _progress),
    "backup_read": (BackupPiece, _read),
    "backup_end": (BackupEnd, _end),
}
