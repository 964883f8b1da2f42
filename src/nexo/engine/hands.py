"""What operators do to chosen messages: redrive them, discard them, send one again with changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.engine import peek
from nexo.engine.chosen import DISCARD, REDRIVE, ChosenTask, find
from nexo.engine.moves import Chosen
from nexo.engine.transfers import TransferActor
from nexo.machine import discard as rules
from nexo.machine.push import push, push_moved
from nexo.vocabulary.attributes import TEXT, Typed, decode_typed, encode_typed
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.errors import (
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    QueueNotFound,
    WrongState,
)
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.names import dead_letter_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.chosen import Choice
    from nexo.engine.context import Context
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings

ORIGINAL_ID = "nexo.original_id"  # the attribute of a message that was sent again


class Changes(msgspec.Struct, frozen=True):
    """What is to be different when a message is sent again; the rest stays as it was. An attribute
    of which the value is None is left out."""

    body: bytes | None = None
    attributes: dict[str, str | None] = {}


class Hands:
    def __init__(self, engine: Engine, context: Context) -> None:
        self._engine = engine
        self._context = context

    async def redrive(
        self, name: str, to: str | None, rate: float | None, chosen: Choice | list[int]
    ) -> ChosenTask:
        """Send those that are meant back to their sources, or to another queue, in steps."""
        engine, source = self._engine, self._engine.queue(name)
        self._context.check_writable()
        await engine.check_target(name, to)

        async def act(seqs: list[int]) -> tuple[int, int]:
            step = await engine.redrive(name, to, chosen=Chosen(seqs))
            return await step.finished, step.progress().skipped

        task = ChosenTask(source, chosen, act, verb=REDRIVE, to=to, rate=rate)
        return engine.tasks.started(task)

    async def discard(self, name: str, chosen: Choice | list[int]) -> ChosenTask:
        """Remove those that are meant, in steps. What a claim or a move holds is skipped."""
        source = self._engine.queue(name)
        self._context.check_writable()

        async def act(seqs: list[int]) -> tuple[int, int]:
            self._context.check_writable()
            gone = await source.discard_these(seqs)
            return gone, len(seqs) - gone

        return self._engine.tasks.started(ChosenTask(source, chosen, act, verb=DISCARD))

    async def resend(
        self,
        name: str,
        message: str,
        changes: Changes,
        to: str | None = None,
        check_push: Callable[[str], None] = lambda name: None,
    ) -> tuple[str, str]:
        """Push a message again with changes, and remove the one it was, in one commit. A dead
        letter goes to where it came from, any other into the same queue, if `to` names none: then
        `check_push` raises unless it may. Returns the queue and the new id."""
        self._context.check_writable()
        source = self._engine.queue(name)
        seq = await find(source, message)
        found = await peek.find(source, seq)
        if found is None:
            raise MessageNotFound(f"message {message} is no longer in queue {name!r}")
        wanted = to or (found.dead_letter.source if found.dead_letter is not None else name)
        if to is None:
            check_push(wanted)
        target, settings = await self._target(source, found, wanted, to is not None)
        batch = _changed(found, changes, target, settings)
        committer = self._context.committer
        await committer.room()
        # From here on nothing else comes in between.
        self._context.check_writable()
        for actor in (source, target):
            actor.check_in_service()
        if not rules.is_discardable(source.queue, seq):
            raise WrongState(
                f"message {message} is held by a Spark query or a move, or is gone",
                "check its state and try again",
            )
        committer.tie(source, target)
        now_ms = self._context.clock.now_ms()
        is_elsewhere = isinstance(target, TransferActor)
        accepted = (push_moved if is_elsewhere else push)(target.queue, batch, now_ms)
        rules.discard(source.queue, [seq], now_ms)
        committer.accept(batch.size)
        committer.enlist(target)
        await source.changed(None)
        (fresh,) = accepted.seqs()
        return target.name, message_id(target.incarnation, fresh)

    def sources_of(self, name: str) -> tuple[str, ...]:
        """The queues that send their dead letters to this one."""
        return tuple(
            each
            for each, actor in self._engine.queues.items()
            if dead_letter_name(each, actor.settings.dead_letter) == name
        )

    def targets_of(self, name: str) -> tuple[str, ...]:
        """Where a message of this queue may go when it is sent again and nobody says where, of this
        shard: none if its dead letters come from others. Whatever it is, `resend` checks it."""
        found = self.sources_of(name)
        return found or (() if self._context.transfers.has_fed(name) else (name,))

    async def _target(
        self, source: QueueActor, found: Message, wanted: str, is_named: bool
    ) -> tuple[QueueActor, QueueSettings]:
        """The queue of a name, or what stands here for one in another shard; and how it is set. If
        nobody has named it, it must be one that sends its dead letters here, or this one."""
        transfers = self._context.transfers
        if not transfers.is_elsewhere(wanted):
            if not is_named and wanted not in (self.sources_of(source.name) or (source.name,)):
                raise _no_source(found)
            target = self._engine.queue(wanted)
            return target, target.settings
        try:
            settings = (await transfers.find(wanted)).settings
        except QueueNotFound:
            if is_named:
                raise
            raise _no_source(found) from None
        if not is_named and dead_letter_name(wanted, settings.dead_letter) != source.name:
            raise _no_source(found)
        self._context.check_writable()
        return transfers.to(wanted), settings


def _no_source(found: Message) -> InvalidArgument:
    return InvalidArgument(
        f"message {found.id} has no source queue to go back to", "name one: --to QUEUE"
    )


def _changed(
    found: Message, changes: Changes, target: QueueActor, settings: QueueSettings
) -> Batch:
    body = found.body if changes.body is None else changes.body
    if len(body) > settings.max_message_bytes:
        raise MessageTooLarge(
            f"a body of {len(body)} bytes is larger than queue {target.name!r} takes",
            "make it shorter, or raise max_message_bytes",
        )
    attributes: dict[str, Typed] = decode_typed(found.attributes)
    for name, value in changes.attributes.items():
        if value is None:
            attributes.pop(name, None)
        else:
            attributes[name] = (TEXT, value)
    attributes[ORIGINAL_ID] = (TEXT, found.id)
    return msgspec.structs.replace(
        batch_of([body]),
        priority=found.priority if not settings.fifo else 0,
        delay_ms=0,
        groups=found.group_id,
        # Else it may be taken for the one that it replaces.
        deduplication_ids=[f"resent {found.id} {target.now_ms()}"],
        attributes=[encode_typed(attributes)],
    )
