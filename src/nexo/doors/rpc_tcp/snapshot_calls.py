"""The named calls that read a queue without taking anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.rpc_tcp.deliveries import WithParts
from nexo.engine.types import Wanted
from nexo.vocabulary import allowed
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX, POP_BYTES_MAX
from nexo.wire import commands

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine

    Calling = Callable[[Engine, Any], Awaitable[Any]]


class SnapshotOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    wanted: Wanted | None = None


class SnapshotRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    snapshot: allowed.SnapshotName
    start: allowed.Number
    count: allowed.ReadCount = BATCH_MESSAGES_MAX
    bytes_max: allowed.ReadBytes = POP_BYTES_MAX


class SnapshotClose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    snapshot: allowed.SnapshotName


async def _open(engine: Engine, wanted: SnapshotOpen) -> Any:
    return engine.queue(wanted.name).claims.snapshots.open(wanted.wanted or Wanted())


async def _read(engine: Engine, wanted: SnapshotRead) -> WithParts:
    snapshots = engine.queue(wanted.name).claims.snapshots
    got = await snapshots.read(wanted.snapshot, wanted.start, wanted.count, wanted.bytes_max)
    states = [int(state) for state in got.states]
    return WithParts(got.parts, commands.pack((got.next, got.missing, states)))


async def _close(engine: Engine, wanted: SnapshotClose) -> None:
    engine.queue(wanted.name).claims.snapshots.close(wanted.snapshot)


SNAPSHOT_CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "snapshot_open": (SnapshotOpen, _open),
    "snapshot_read": (SnapshotRead, _read),
    "snapshot_close": (SnapshotClose, _close),
}
