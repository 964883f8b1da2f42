"""The named calls about chosen messages: search, count by reason, show one with its life, redrive,
discard, send one again."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nexo.access.permissions import Action
from nexo.engine import chosen, peek
from nexo.engine.hands import Changes
from nexo.engine.life import timeline
from nexo.engine.moves import Chosen
from nexo.vocabulary.errors import InvalidArgument, MessageNotFound, WrongState
from nexo.vocabulary.identity import parse_message_id
from nexo.wire import calls

if TYPE_CHECKING:
    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.engine import Engine


async def search(engine: Engine, wanted: calls.Search) -> Any:
    actor = engine.queue(wanted.name)
    whole = wanted.whole or not wanted.limit
    return await chosen.search(actor, _choice(wanted.choice), wanted.limit, wanted.after, whole)


async def reasons(engine: Engine, wanted: calls.CountReasons) -> Any:
    actor = engine.queue(wanted.name)
    return await chosen.reasons(actor, _choice(wanted.choice), wanted.after)


async def message(connection: Connection, wanted: calls.ShowMessage) -> calls.MessageLife:
    """Also of a message that is gone: then there is only its life."""
    engine, caller = connection.engine, connection.caller
    actor = engine.queue(wanted.name)
    parse_message_id(wanted.id)
    try:
        found = await peek.find(actor, await chosen.find(actor, wanted.id))
    except MessageNotFound:
        found = None
    may_peek = partial(caller.may, Action.PEEK)
    life = await timeline(engine, wanted.name, wanted.id, found, may_peek)
    return calls.MessageLife(found, life.events, life.why)


async def redrive(engine: Engine, wanted: calls.Redrive) -> int:
    if wanted.choice is None:
        return await engine.tasks.begin(wanted.name, wanted.to, wanted.rate)
    choice = _choice(wanted.choice)
    task = await engine.hands.redrive(wanted.name, wanted.to, wanted.rate, choice)
    return engine.tasks.keep(task)


async def redrive_chosen(connection: Connection, wanted: calls.RedriveChosen) -> calls.Redriven:
    """Those that are named, with other bodies if they are given."""
    engine, seqs, bodies = connection.engine, wanted.seqs, wanted.bodies
    _check_seqs(engine, wanted.name, wanted.incarnation, seqs)
    if bodies is None:
        task = await engine.hands.redrive(wanted.name, wanted.to, None, seqs)
        moved = await task.finished
        progress = task.progress()
        return calls.Redriven(moved, progress.skipped, len(seqs) - moved - progress.skipped)
    if len(bodies) != len(seqs):
        raise InvalidArgument(f"there are {len(bodies)} bodies for {len(seqs)} messages")
    chosen_ones, may = Chosen(seqs, bodies), connection.caller.may
    move = await engine.redrive(
        wanted.name,
        wanted.to,
        chosen=chosen_ones,
        may_push=lambda name: may(Action.PUSH, name),
    )
    moved = await move.finished
    skipped = move.progress().skipped
    return calls.Redriven(moved, skipped, missing=len(seqs) - moved - skipped)


async def discard(engine: Engine, wanted: calls.Discard) -> int:
    if (wanted.choice is None) == (wanted.seqs is None):
        raise InvalidArgument(
            "a discard takes a choice or sequence numbers, not both", "give one of them"
        )
    if wanted.seqs is not None:
        _check_seqs(engine, wanted.name, wanted.incarnation, wanted.seqs)
        return engine.tasks.keep(await engine.hands.discard(wanted.name, wanted.seqs))
    choice = _choice(wanted.choice or calls.Choice())
    if choice.is_all:
        raise InvalidArgument(
            "no messages selected", "give ids, a reason or a text; purge deletes all messages"
        )
    return engine.tasks.keep(await engine.hands.discard(wanted.name, choice))


async def resend(connection: Connection, wanted: calls.Resend) -> calls.Resent:
    changes, hands = Changes(wanted.body, wanted.attributes), connection.engine.hands
    queue, fresh = await hands.resend(
        wanted.name, wanted.id, changes, wanted.to, connection.caller.check_push
    )
    return calls.Resent(queue, fresh)


def _choice(travelled: calls.Choice) -> chosen.Choice:
    ids = None if travelled.ids is None else tuple(travelled.ids)
    return chosen.Choice(ids, travelled.reason, travelled.text, travelled.source)


def _check_seqs(engine: Engine, name: str, incarnation: int, seqs: list[int]) -> None:
    if any(low >= high for low, high in pairwise(seqs)):
        raise InvalidArgument("the sequence numbers are not in order")
    if engine.queue(name).queue.incarnation != incarnation:
        raise WrongState(
            f"queue {name!r} was deleted and created again in the meantime",
            "look at its messages again",
        )
