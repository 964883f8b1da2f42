"""The named calls, by subject: what each of them does with the engine. `wire.calls` has what is
asked and what is answered; what does not fit is refused before anything happens."""

from __future__ import annotations

import asyncio
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nexo.access.tokens import access_key_id
from nexo.doors.rpc_tcp import chosen_calls
from nexo.doors.rpc_tcp.access import check_call, operation_of_call, visible
from nexo.doors.rpc_tcp.deliveries import wire_parts
from nexo.engine.connections import connections_behind
from nexo.engine.definitions import (
    MSGPACK,
    Packed,
    export_definitions,
    import_definitions,
    packed_definitions,
)
from nexo.engine.listing import steps
from nexo.engine.views import Wanted
from nexo.vocabulary import fields
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import CLAIM_WAIT_MS_MAX, RPC_CALL_BYTES_MAX
from nexo.vocabulary.settings import QueueSettings
from nexo.wire import calls, commands
from nexo.wire.columns import encode_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.engine import Engine
    from nexo.engine.listing import Named
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.types import Part
    from nexo.vocabulary.changes import TokenDefined

    Calling = Callable[[Engine, Any], Awaitable[Any]]
    Knows = Callable[[str], bool]
    Listed = list[bytes | memoryview]

# Bodies, and whole brokers.
LARGE_CALLS = frozenset({"redrive_chosen", "resend", "import_definitions"})
_ARRAY_HEAD = Struct(">BI")  # in msgpack, in the form that fits any number
_ARRAY = 0xDD


class WithParts(NamedTuple):
    """The result of a call whose answer is messages."""

    parts: list[Part]
    head: bytes = b""


async def call(connection: Connection, correlation: int, wanted: commands.Called) -> None:
    """Run a named call and reply."""
    method, engine, caller = wanted.method, connection.engine, connection.caller
    params = _decoded(wanted)
    operation = operation_of_call(engine, method, params)
    with connection.audited(operation, params):
        if caller.is_bound:
            check_call(caller, engine, operation, params)
        if method in LISTING_CALLS:
            knows = caller.knows if caller.is_bound else _everybody
            listed = await LISTING_CALLS[method](engine, params, knows)
            connection.reply_with(correlation, b"", listed)
            return
        if method in CALLERS_CALLS:
            result = await CALLERS_CALLS[method](connection, params)
        else:
            result = await CALLS[method](engine, params)
    if caller.is_bound:
        result = visible(caller, params, result)
    if isinstance(result, WithParts):
        connection.reply_with(correlation, result.head, encode_parts(wire_parts(result.parts)))
    elif isinstance(result, Packed):
        connection.reply_with(correlation, b"", result.pieces)
    else:
        connection.reply_with(correlation, b"", [commands.pack(result)])


def _decoded(wanted: commands.Called) -> Any:
    """The parameters, if there is such a call and they fit it."""
    method = wanted.method
    if not any(method in known for known in (CALLS, LISTING_CALLS, CALLERS_CALLS)):
        raise InvalidArgument(
            f"unknown call {method!r}",
            "the client may be newer than the broker: upgrade the broker",
        )
    if len(wanted.params) > RPC_CALL_BYTES_MAX and method not in LARGE_CALLS:
        raise InvalidArgument(
            f"{method}: {len(wanted.params)} bytes of parameters, allowed are {RPC_CALL_BYTES_MAX}"
        )
    try:
        return _decoder_of(method).decode(wanted.params)
    except msgspec.ValidationError as error:
        kind = calls.CALLS[method].request
        raise InvalidArgument(f"{method}: {fields.refused(error, kind).message}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{method}: the parameters cannot be read: {error}") from None


# -- Lists ------------------------------------------------------------------------------------


async def list_queues(engine: Engine, wanted: calls.ListQueues, knows: Knows) -> Listed:
    return await _listed(engine.queues, _queue_figures, wanted, knows)


async def list_topics(engine: Engine, wanted: calls.ListTopics, knows: Knows) -> Listed:
    return await _listed(engine.topics, _topic_figures, wanted, knows)


async def _listed(
    named: Named[Any],
    describe: Callable[[Any], Any],
    wanted: calls.ListQueues | calls.ListTopics,
    knows: Knows,
) -> Listed:
    """An array of what is known, in the order of names, encoded piece by piece between which
    others have their turn."""
    pieces: Listed = []
    count, limit = 0, wanted.limit
    async for actors in steps(named, wanted.after):
        known = [actor for actor in actors if knows(actor.name)]
        if limit is not None:
            del known[limit - count :]
        pieces.append(b"".join([commands.pack(describe(actor)) for actor in known]))
        count += len(known)
        if count == limit:
            break
    return [_ARRAY_HEAD.pack(_ARRAY, count), *pieces]


def _everybody(name: str) -> bool:
    return True


# -- Queues -----------------------------------------------------------------------------------


def _queue_figures(actor: QueueActor) -> calls.QueueFigures:
    return calls.QueueFigures(
        name=actor.name,
        settings=actor.queue.settings,
        consumers=actor.room.consumers,
        **msgspec.structs.asdict(actor.info()),
    )


async def _create_queue(engine: Engine, wanted: calls.CreateQueue) -> calls.QueueFigures:
    if not (wanted.exist_ok and wanted.name in engine.queues):
        await engine.create_queue(wanted.name, wanted.settings)
    return _queue_figures(engine.find_queue(wanted.name))


async def _edit_queue(engine: Engine, wanted: calls.EditQueue) -> calls.QueueFigures:
    now = msgspec.to_builtins(engine.queue(wanted.name).queue.settings)
    try:
        settings = msgspec.convert({**now, **wanted.settings}, QueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f"edit_queue: {fields.refused(error, QueueSettings).message}"
        ) from None
    await engine.edit_queue(wanted.name, settings)
    return _queue_figures(engine.find_queue(wanted.name))


async def _delete_queue(engine: Engine, wanted: calls.DeleteQueue) -> None:
    await engine.delete_queue(wanted.name)


async def _queue_info(engine: Engine, wanted: calls.DescribeQueue) -> calls.QueueFigures:
    return _queue_figures(engine.find_queue(wanted.name))


async def _purge(engine: Engine, wanted: calls.Purge) -> int:
    return await engine.queue(wanted.name).purge()


async def _pause(engine: Engine, wanted: calls.Pause) -> None:
    await engine.queue(wanted.name).set_paused(True)


async def _resume(engine: Engine, wanted: calls.Resume) -> None:
    await engine.queue(wanted.name).set_paused(False)


async def _peek(engine: Engine, wanted: calls.Peek) -> Any:
    return await engine.queue(wanted.name).peek(wanted.limit)


# -- Redrives ---------------------------------------------------------------------------------


async def _redrive_progress(engine: Engine, wanted: calls.AwaitRedrive) -> Any:
    return await engine.tasks.progress(wanted.task, wanted.wait_ms)


async def _redrive_cancel(engine: Engine, wanted: calls.CancelRedrive) -> Any:
    return engine.tasks.cancel(wanted.task)


# -- Topics -----------------------------------------------------------------------------------


def _topic_figures(actor: TopicActor) -> Any:
    return actor.info()


async def _create_topic(engine: Engine, wanted: calls.CreateTopic) -> Any:
    if not (wanted.exist_ok and wanted.name in engine.topics):
        await engine.create_topic(wanted.name, wanted.settings)
    return _topic_figures(engine.topic(wanted.name))


async def _delete_topic(engine: Engine, wanted: calls.DeleteTopic) -> None:
    await engine.delete_topic(wanted.name)


async def _topic_info(engine: Engine, wanted: calls.DescribeTopic) -> Any:
    return _topic_figures(engine.topic(wanted.name))


async def _bind(engine: Engine, wanted: calls.Bind) -> None:
    await engine.bind(wanted.topic, wanted.queue, wanted.where, wanted.start, wanted.create)


async def _unbind(engine: Engine, wanted: calls.Unbind) -> None:
    await engine.unbind(wanted.topic, wanted.queue)


async def _starts(engine: Engine, wanted: calls.Starts) -> dict[str, int]:
    return await engine.starts(wanted.pattern, wanted.start)


# -- Spark: claims, and snapshots that take nothing -------------------------------------------


async def _claim_open(engine: Engine, wanted: calls.OpenClaims) -> int:
    return await engine.queue(wanted.name).claims.open(wanted.consumer)


async def _claim(engine: Engine, wanted: calls.Claim) -> calls.Claimed:
    got = await engine.queue(wanted.name).claims.claim(
        wanted.consumer,
        wanted.epoch,
        wanted.after,
        wanted.count,
        wanted.timeout_ms,
        wanted.bytes_max,
        min(wanted.wait_ms, CLAIM_WAIT_MS_MAX),
    )
    return calls.Claimed(got.number, got.count, got.payload_bytes)


async def _claim_seal(engine: Engine, wanted: calls.SealClaim) -> calls.Sealed:
    actor = engine.queue(wanted.name)
    got = await actor.claims.seal(wanted.consumer, wanted.epoch, wanted.number)
    return calls.Sealed(got.number, got.count, got.payload_bytes, actor.queue.incarnation)


async def _claim_keep(engine: Engine, wanted: calls.KeepClaims) -> None:
    engine.queue(wanted.name).claims.keep(wanted.consumer, wanted.epoch, wanted.timeout_ms)


async def _claim_ack(engine: Engine, wanted: calls.AckClaims) -> int:
    claims = engine.queue(wanted.name).claims
    return await claims.ack(wanted.consumer, wanted.epoch, wanted.number)


async def _claim_read(engine: Engine, wanted: calls.ReadClaim) -> WithParts:
    claims = engine.queue(wanted.name).claims
    got = await claims.read(
        wanted.consumer,
        wanted.epoch,
        wanted.number,
        wanted.start,
        wanted.count,
        wanted.bytes_max,
    )
    return WithParts(got.parts, commands.pack(got.next))


async def _release(engine: Engine, wanted: calls.Release) -> int:
    claims = engine.queue(wanted.name).claims
    return await claims.release(wanted.consumer, wanted.dead_letter, wanted.forget)


async def _snapshot_open(engine: Engine, wanted: calls.OpenSnapshot) -> Any:
    ranges = wanted.wanted or calls.Ranges()
    of_interest = Wanted(
        priority=ranges.priority, attempts=ranges.attempts, created_ms=ranges.created_ms
    )
    return engine.queue(wanted.name).views.open(of_interest, wanted.scan)


async def _snapshot_read(engine: Engine, wanted: calls.ReadSnapshot) -> WithParts:
    views = engine.queue(wanted.name).views
    got = await views.read(
        wanted.snapshot, wanted.start, wanted.count, wanted.bytes_max, wanted.scan
    )
    page = calls.SnapshotPage(got.next, got.missing, [int(state) for state in got.states])
    return WithParts(got.parts, commands.pack(page))


async def _snapshot_close(engine: Engine, wanted: calls.CloseSnapshot) -> None:
    engine.queue(wanted.name).views.close(wanted.snapshot)


# -- The broker: backups, tokens, definitions -------------------------------------------------


async def _backup(engine: Engine, _: calls.BeginBackup) -> Any:
    return await engine.backups.begin()


async def _backup_progress(engine: Engine, wanted: calls.AwaitBackup) -> Any:
    return await engine.backups.progress(wanted.backup, wanted.wait_ms)


async def _backup_read(engine: Engine, wanted: calls.ReadBackup) -> bytes:
    return await engine.backups.read(wanted.backup, wanted.offset, wanted.size)


async def _backup_end(engine: Engine, wanted: calls.EndBackup) -> None:
    engine.backups.end(wanted.backup)


async def _audit(connection: Connection, wanted: calls.ReadAudit) -> list[calls.AuditLine]:
    # In a thread: files of many megabytes may have to be read.
    found = await asyncio.to_thread(connection.guard.audit.read, wanted.limit)
    return [
        calls.AuditLine(
            each.at_ms,
            each.who,
            each.peer,
            each.door,
            each.action,
            each.resource,
            each.outcome,
            each.count,
        )
        for each in found
    ]


async def _list_connections(engine: Engine, wanted: calls.ListConnections) -> list[Any]:
    """A page of them; others have their turn in between."""
    return await connections_behind(engine.connections, wanted.after)


async def _close_connection(engine: Engine, wanted: calls.CloseConnection) -> None:
    engine.connections.close(wanted.number)


async def _no_cluster(engine: Engine, _: calls.Request[Any]) -> Any:
    """A node of a cluster answers these before they get here."""
    raise InvalidArgument(
        "this broker is not a node of a cluster", "see nexo cluster create --help"
    )


async def _create_token(engine: Engine, wanted: calls.CreateToken) -> calls.TokenFigures:
    minted = await engine.tokens.create(
        wanted.name, wanted.allow, expires_after_ms=wanted.expires_after_ms, aws=wanted.aws
    )
    made = _token_figures(minted.defined)
    if wanted.aws:
        return msgspec.structs.replace(made, secret_access_key=minted.secret_access_key)
    return msgspec.structs.replace(made, token=minted.token)


async def _list_tokens(engine: Engine, _: calls.ListTokens) -> list[calls.TokenFigures]:
    return [_token_figures(each) for each in engine.tokens.all()]


async def _revoke_token(engine: Engine, wanted: calls.RevokeToken) -> None:
    await engine.tokens.revoke(wanted.name)


def _token_figures(defined: TokenDefined) -> calls.TokenFigures:
    """All that is no secret."""
    return calls.TokenFigures(
        name=defined.name,
        id=defined.id,
        allow=defined.allow,
        created_ms=defined.created_ms,
        expires_ms=defined.expires_ms,
        access_key_id=access_key_id(defined.id) if defined.aws_secret else None,
    )


async def _export_definitions(engine: Engine, _: calls.ExportDefinitions) -> Any:
    return await packed_definitions(await export_definitions(engine), MSGPACK)


async def _import_definitions(engine: Engine, wanted: calls.ImportDefinitions) -> Any:
    return await import_definitions(engine, wanted.definitions, wanted.dry_run)


# -- By name ----------------------------------------------------------------------------------

CALLS: dict[str, Calling] = {
    "create_queue": _create_queue,
    "edit_queue": _edit_queue,
    "delete_queue": _delete_queue,
    "queue_info": _queue_info,
    "purge": _purge,
    "pause": _pause,
    "resume": _resume,
    "peek": _peek,
    "redrive": chosen_calls.redrive,
    "redrive_progress": _redrive_progress,
    "redrive_cancel": _redrive_cancel,
    "create_topic": _create_topic,
    "delete_topic": _delete_topic,
    "topic_info": _topic_info,
    "bind": _bind,
    "unbind": _unbind,
    "starts": _starts,
    "claim_open": _claim_open,
    "claim": _claim,
    "claim_seal": _claim_seal,
    "claim_keep": _claim_keep,
    "claim_ack": _claim_ack,
    "claim_read": _claim_read,
    "discard": chosen_calls.discard,
    "search": chosen_calls.search,
    "reasons": chosen_calls.reasons,
    "release": _release,
    "snapshot_open": _snapshot_open,
    "snapshot_read": _snapshot_read,
    "snapshot_close": _snapshot_close,
    "backup": _backup,
    "backup_progress": _backup_progress,
    "backup_read": _backup_read,
    "backup_end": _backup_end,
    "list_connections": _list_connections,
    "close_connection": _close_connection,
    "cluster_info": _no_cluster,
    "drain_node": _no_cluster,
    "rebalance_cluster": _no_cluster,
    "create_token": _create_token,
    "list_tokens": _list_tokens,
    "revoke_token": _revoke_token,
    "export_definitions": _export_definitions,
    "import_definitions": _import_definitions,
}
LISTING_CALLS: dict[str, Callable[[Engine, Any, Knows], Awaitable[Listed]]] = {
    "list_queues": list_queues,
    "list_topics": list_topics,
}
# The answer depends on who asks, or is not the engine's.
CALLERS_CALLS: dict[str, Callable[[Connection, Any], Awaitable[Any]]] = {
    "message": chosen_calls.message,
    "redrive_chosen": chosen_calls.redrive_chosen,
    "resend": chosen_calls.resend,
    "audit": _audit,
}


@cache
def _decoder_of(method: str) -> msgspec.msgpack.Decoder[Any]:
    """Made when it is first wanted: all of them together are a tenth of a start."""
    return msgspec.msgpack.Decoder(calls.CALLS[method].request)
