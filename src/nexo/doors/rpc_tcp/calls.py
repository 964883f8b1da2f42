"""The named calls: everything that is not hot. Each has a type for its parameters, which is also
its documentation; what does not fit the type is refused before anything happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.rpc_tcp.backup_calls import BACKUP_CALLS
from nexo.doors.rpc_tcp.definition_calls import DEFINITION_CALLS
from nexo.doors.rpc_tcp.deliveries import WithParts, wire_parts
from nexo.doors.rpc_tcp.needs import check_call, visible
from nexo.doors.rpc_tcp.redrive_calls import REDRIVE_CALLS
from nexo.doors.rpc_tcp.snapshot_calls import SNAPSHOT_CALLS
from nexo.doors.rpc_tcp.token_calls import TOKEN_CALLS
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX, POP_BYTES_MAX
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.start import LATEST, Start
from nexo.wire import commands
from nexo.wire.columns import encode_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.engine import Engine

    Calling = Callable[[Engine, Any], Awaitable[Any]]


CLAIM_WAIT_MS_MAX = 20_000  # as long as a pop waits on SQS


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class CreateQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: QueueSettings | None = None
    exist_ok: bool = False  # a queue of this name will do, whatever its settings


class EditQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: dict[str, Any]  # only what is to change


class CreateTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: TopicSettings | None = None
    exist_ok: bool = False


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    limit: int = 10


class Redrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    to: str | None = None
    rate: float | None = None


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: int
    wait_ms: int = 0


class Bind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    queue: str
    where: dict[str, str] | None = None
    start: Start = LATEST
    create: bool = False  # the queue, if it is not there


class Unbind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    queue: str


class Starts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    start: Start = LATEST


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str
    dead_letter: bool = False


class ClaimOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str


class ClaimNext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str
    epoch: int
    after: int
    count: int
    timeout_ms: int
    bytes_max: int = POP_BYTES_MAX
    wait_ms: int = 0


class ClaimBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str
    epoch: int
    number: int


class ClaimRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str
    epoch: int
    number: int
    start: int = 0  # in messages from the beginning of the batch
    count: int = BATCH_MESSAGES_MAX
    bytes_max: int = POP_BYTES_MAX


class ClaimKeep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    consumer: str
    epoch: int
    timeout_ms: int


async def call(connection: Connection, correlation: int, wanted: commands.Call) -> None:
    """Run a named call and reply."""
    found = CALLS.get(wanted.method)
    if found is None:
        raise InvalidArgument(
            f"there is no call {wanted.method!r:.80}", "is the client newer than the broker?"
        )
    kind, calling = found
    try:
        params = msgspec.convert(wanted.params, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{wanted.method}: {error}") from None
    caller = connection.caller
    with connection.told(wanted.method, params):
        if caller.is_bound:
            check_call(caller, connection.engine, wanted.method, params)
        result = await calling(connection.engine, params)
    if caller.is_bound:
        result = visible(caller, wanted.method, result)
    if isinstance(result, WithParts):
        connection.reply_with(correlation, result.head, encode_parts(wire_parts(result.parts)))
    else:
        connection.reply_with(correlation, b"", [commands.pack(result)])


async def _create_queue(engine: Engine, wanted: CreateQueue) -> Any:
    if wanted.exist_ok and wanted.name in engine.queues:
        return _described(engine, wanted.name)
    await engine.create_queue(wanted.name, wanted.settings)
    return _described(engine, wanted.name)


async def _edit_queue(engine: Engine, wanted: EditQueue) -> Any:
    now = msgspec.to_builtins(engine.queue(wanted.name).queue.settings)
    try:
        settings = msgspec.convert({**now, **wanted.settings}, QueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"edit_queue: {error}") from None
    await engine.edit_queue(wanted.name, settings)
    return _described(engine, wanted.name)


async def _delete_queue(engine: Engine, wanted: Named) -> None:
    await engine.delete_queue(wanted.name)


async def _list_queues(engine: Engine, _: Nothing) -> Any:
    return [_described(engine, name) for name in sorted(engine.queues)]


async def _queue_info(engine: Engine, wanted: Named) -> Any:
    return _described(engine, wanted.name)


async def _purge(engine: Engine, wanted: Named) -> int:
    return await engine.queue(wanted.name).purge()


async def _pause(engine: Engine, wanted: Named) -> None:
    await engine.queue(wanted.name).set_paused(True)


async def _resume(engine: Engine, wanted: Named) -> None:
    await engine.queue(wanted.name).set_paused(False)


async def _peek(engine: Engine, wanted: Peek) -> Any:
    return await engine.queue(wanted.name).peek(wanted.limit)


async def _redrive(engine: Engine, wanted: Redrive) -> int:
    return await engine.tasks.begin(wanted.name, wanted.to, wanted.rate)


async def _redrive_progress(engine: Engine, wanted: Task) -> Any:
    return await engine.tasks.progress(wanted.task, wanted.wait_ms)


async def _redrive_cancel(engine: Engine, wanted: Task) -> Any:
    return engine.tasks.cancel(wanted.task)


async def _release(engine: Engine, wanted: Release) -> int:
    return await engine.queue(wanted.name).claims.release(wanted.consumer, wanted.dead_letter)


async def _create_topic(engine: Engine, wanted: CreateTopic) -> Any:
    if not (wanted.exist_ok and wanted.name in engine.topics):
        await engine.create_topic(wanted.name, wanted.settings)
    return engine.topic(wanted.name).info()


async def _delete_topic(engine: Engine, wanted: Named) -> None:
    await engine.delete_topic(wanted.name)


async def _list_topics(engine: Engine, _: Nothing) -> Any:
    return [engine.find_topic(name).info() for name in sorted(engine.topics)]


async def _topic_info(engine: Engine, wanted: Named) -> Any:
    return engine.topic(wanted.name).info()


async def _bind(engine: Engine, wanted: Bind) -> None:
    await engine.bind(wanted.topic, wanted.queue, wanted.where, wanted.start, wanted.create)


async def _unbind(engine: Engine, wanted: Unbind) -> None:
    await engine.unbind(wanted.topic, wanted.queue)


async def _starts(engine: Engine, wanted: Starts) -> dict[str, int]:
    return await engine.starts(wanted.pattern, wanted.start)


async def _claim_open(engine: Engine, wanted: ClaimOpen) -> int:
    return await engine.queue(wanted.name).claims.open(wanted.consumer)


async def _claim(engine: Engine, wanted: ClaimNext) -> Any:
    got = await engine.queue(wanted.name).claims.claim(
        wanted.consumer,
        wanted.epoch,
        wanted.after,
        wanted.count,
        wanted.timeout_ms,
        wanted.bytes_max,
        min(wanted.wait_ms, CLAIM_WAIT_MS_MAX),
    )
    return [got.number, got.count, got.payload_bytes]


async def _claim_seal(engine: Engine, wanted: ClaimBatch) -> Any:
    actor = engine.queue(wanted.name)
    got = await actor.claims.seal(wanted.consumer, wanted.epoch, wanted.number)
    return [got.number, got.count, got.payload_bytes, actor.queue.incarnation]


async def _claim_keep(engine: Engine, wanted: ClaimKeep) -> None:
    engine.queue(wanted.name).claims.keep(wanted.consumer, wanted.epoch, wanted.timeout_ms)


async def _claim_ack(engine: Engine, wanted: ClaimBatch) -> int:
    claims = engine.queue(wanted.name).claims
    return await claims.ack(wanted.consumer, wanted.epoch, wanted.number)


async def _claim_read(engine: Engine, wanted: ClaimRead) -> Any:
    claims = engine.queue(wanted.name).claims
    if wanted.bytes_max > POP_BYTES_MAX:
        raise InvalidArgument(f"one read takes at most {POP_BYTES_MAX} bytes", "read on after it")
    return WithParts(
        await claims.read(
            wanted.consumer,
            wanted.epoch,
            wanted.number,
            wanted.start,
            wanted.count,
            wanted.bytes_max,
        )
    )


def _described(engine: Engine, name: str) -> dict[str, Any]:
    actor = engine.find_queue(name)
    return {
        "name": name,
        "settings": actor.queue.settings,
        "consumers": actor.room.consumers,
        **msgspec.structs.asdict(actor.info()),
    }


CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "create_queue": (CreateQueue, _create_queue),
    "edit_queue": (EditQueue, _edit_queue),
    "delete_queue": (Named, _delete_queue),
    "list_queues": (Nothing, _list_queues),
    "queue_info": (Named, _queue_info),
    "purge": (Named, _purge),
    "pause": (Named, _pause),
    "resume": (Named, _resume),
    "peek": (Peek, _peek),
    "redrive": (Redrive, _redrive),
    "redrive_progress": (Task, _redrive_progress),
    "redrive_cancel": (Task, _redrive_cancel),
    "release": (Release, _release),
    "create_topic": (CreateTopic, _create_topic),
    "delete_topic": (Named, _delete_topic),
    "list_topics": (Nothing, _list_topics),
    "topic_info": (Named, _topic_info),
    "bind": (Bind, _bind),
    "unbind": (Unbind, _unbind),
    "starts": (Starts, _starts),
    "claim_open": (ClaimOpen, _claim_open),
    "claim": (ClaimNext, _claim),
    "claim_seal": (ClaimBatch, _claim_seal),
    "claim_keep": (ClaimKeep, _claim_keep),
    "claim_ack": (ClaimBatch, _claim_ack),
    "claim_read": (ClaimRead, _claim_read),
    **REDRIVE_CALLS,
    **SNAPSHOT_CALLS,
    **BACKUP_CALLS,
    **TOKEN_CALLS,
    **DEFINITION_CALLS,
}
