"""The broker as a whole. Totals only grow: who wants rates takes them from two answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import Count, Moment, Refusal, moment, refusal_of
from nexo.engine.backups import usage_if_known
from nexo.engine.peek import Counts, counts
from nexo.vocabulary.limits import ADMIN_STEP_QUEUES

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call


class Memory(msgspec.Struct, frozen=True):
    """Payloads in memory with their limit; `resident_bytes` is the whole process."""

    payload_bytes: Count
    payload_limit_bytes: Count
    resident_bytes: Count


class Disk(msgspec.Struct, frozen=True):
    """What the journal takes, or null while it cannot be asked; and what is left, or null if there
    is no disk."""

    stored_bytes: Count | None
    free_bytes: int | None


class Overview(msgspec.Struct, frozen=True):
    """`refusal` is the reason why the broker refuses new messages, or null. Message counts are sums
    over all queues that exist now."""

    version: str
    at: Moment
    refusal: Refusal | None
    queues: Count
    topics: Count
    consumers: Count
    depth: Count
    ready: Count
    scheduled: Count
    in_flight: Count
    pushed: Count
    delivered: Count
    acked: Count
    nacked: Count
    timed_out: Count
    expired: Count
    dead_lettered: Count
    unsettled_bytes: Count
    connections: dict[str, int]
    memory: Memory
    disk: Disk


async def _overview(call: Call) -> Overview:
    engine, surroundings = call.engine, call.surroundings
    usage = await usage_if_known(engine.backups)
    stored_bytes = None if usage is None else usage.stored_bytes
    sums = await _sums(call)
    refusal = engine.refusal
    return Overview(
        version=surroundings.version,
        at=moment(engine.now_ms()),
        refusal=None if refusal is None else refusal_of(refusal),
        queues=len(engine.queues),
        topics=len(engine.topics),
        unsettled_bytes=max(0, engine.committer.unsettled_bytes),
        connections=surroundings.connections(),
        memory=Memory(
            engine.memory.resident_bytes,
            engine.memory.limit_bytes,
            surroundings.resident_bytes(),
        ),
        disk=Disk(stored_bytes, surroundings.disk_free_bytes()),
        **sums,
    )


async def _sums(call: Call) -> dict[str, int]:
    sums = dict.fromkeys(Counts.__struct_fields__, 0)
    for number, actor in enumerate(list(call.engine.queues.values())):
        for name, count in msgspec.structs.asdict(counts(actor)).items():
            sums[name] += count
        if number % ADMIN_STEP_QUEUES == ADMIN_STEP_QUEUES - 1:
            await asyncio.sleep(0)
    return sums


OVERVIEW = (
    Operation(
        "overview",
        "GET",
        "/api/v1/overview",
        "The broker as a whole: totals, memory, disk, connections",
        _overview,
        Overview,
    ),
)
