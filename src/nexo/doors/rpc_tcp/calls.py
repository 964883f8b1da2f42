"""The named calls: everything that is not hot. Each has a type for its parameters, which is also
its documentation; what does not fit the type is refused before anything happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.rpc_tcp.backup_calls import BACKUP_CALLS
from nexo.doors.rpc_tcp.definition_calls import DEFINITION_CALLS
from nexo.doors.rpc_tcp.deliveries import WithParts, wire_parts
from nexo.doors.rpc_tcp.listing_calls import LISTING_CALLS, Listing, described
from nexo.doors.rpc_tcp.needs import check_call, visible
from nexo.doors.rpc_tcp.redrive_calls import REDRIVE_CALLS
from nexo.doors.rpc_tcp.snapshot_calls import SNAPSHOT_CALLS
from nexo.doors.rpc_tcp.token_calls import TOKEN_CALLS
from nexo.engine.definitions import Packed
from nexo.vocabulary import allowed
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import BATCH_MESSAGES_MAX, POP_BYTES_MAX, RPC_CALL_BYTES_MAX
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
LARGE_CALLS = frozenset({"redrive_chosen", "import_definitions"})  # bodies, and whole brokers


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name


class CreateQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    settings: QueueSettings | None = None
    exist_ok: bool = False  # a queue of this name will do, whatever its settings


class EditQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    settings: dict[str, Any]  # only what is to change


class CreateTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    settings: TopicSettings | None = None
    exist_ok: bool = False


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    limit: allowed.PeekCount = 10


class Redrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    to: allowed.Name | None = None
    rate: allowed.Rate | None = None


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: allowed.Number
    wait_ms: allowed.WaitMs = 0


class Bind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: allowed.Name
    queue: allowed.Name
    where: allowed.Filter | None = None
    start: Start = LATEST
    create: bool = False  # the queue, if it is not there


class Unbind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: allowed.Name
    queue: allowed.Name


class Starts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: allowed.PatternText
    start: Start = LATEST


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName
    dead_letter: bool = False


class ClaimOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName


class ClaimNext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName
    epoch: allowed.Number
    after: allowed.NumberBefore
    count: allowed.Count
    timeout_ms: allowed.TimeoutMs
    bytes_max: allowed.Count = POP_BYTES_MAX
    wait_ms: allowed.WaitMs = 0


class ClaimBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName
    epoch: allowed.Number
    number: allowed.Number


class ClaimRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName
    epoch: allowed.Number
    number: allowed.Number
    start: allowed.Number = 0  # in messages from the beginning of the batch
    count: allowed.ReadCount = BATCH_MESSAGES_MAX
    bytes_max: allowed.ReadBytes = POP_BYTES_MAX


class ClaimKeep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    consumer: allowed.ConsumerName
    epoch: allowed.Number
    timeout_ms: allowed.TimeoutMs


async def call(connection: Connection, correlation: int, wanted: commands.Called) -> None:
    """Run a named call and reply."""
    method = wanted.method
    found = CALLS.get(method)
    if found is None:
        raise InvalidArgument(
            f"there is no call {method!r}", "is the client newer than the broker?"
        )
    if len(wanted.params) > RPC_CALL_BYTES_MAX and method not in LARGE_CALLS:
        raise InvalidArgument(
            f"{method}: {len(wanted.params)} bytes of parameters, allowed are {RPC_CALL_BYTES_MAX}"
        )
    kind, calling = found
    try:
        params = _DECODERS[method].decode(wanted.params)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{method}: {allowed.refused(error, kind).message}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{method}: the parameters cannot be read: {error}") from None
    caller = connection.caller
    with connection.told(method, params):
        if caller.is_bound:
            check_call(caller, connection.engine, method, params)
        if isinstance(params, Listing):
            knows = caller.knows if caller.is_bound else _everybody
            listed = await LISTING_CALLS[method](connection.engine, params, knows)
            connection.reply_with(correlation, b"", listed)
            return
        result = await calling(connection.engine, params)
    if caller.is_bound:
        result = visible(caller, method, result)
    if isinstance(result, WithParts):
        connection.reply_with(correlation, result.head, encode_parts(wire_parts(result.parts)))
    elif isinstance(result, Packed):
        connection.reply_with(correlation, b"", result.pieces)
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
        raise InvalidArgument(
            f"edit_queue: {allowed.refused(error, QueueSettings).message}"
        ) from None
    await engine.edit_queue(wanted.name, settings)
    return _described(engine, wanted.name)


async def _delete_queue(engine: Engine, wanted: Named) -> None:
    await engine.delete_queue(wanted.name)


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
    return described(engine.find_queue(name))


def _everybody(name: str) -> bool:
    return True


async def _unlisted(engine: Engine, wanted: Listing) -> None:
    raise AssertionError("lists are told by LISTING_CALLS")


CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "create_queue": (CreateQueue, _create_queue),
    "edit_queue": (EditQueue, _edit_queue),
    "delete_queue": (Named, _delete_queue),
    "list_queues": (Listing, _unlisted),
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
    "list_topics": (Listing, _unlisted),
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
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    method: msgspec.msgpack.Decoder(kind) for method, (kind, _) in CALLS.items()
}
