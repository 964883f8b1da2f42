"""The life of one message, told from `nexo.events`: attempt by attempt, with who had it and why it
failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.events import Event, decode_event
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.start import Start

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.vocabulary.message import Message

EVENTS_READ_MAX = 200_000  # of all queues, from the birth of the message on
EVENTS_SHOWN_MAX = 200
_STEP = 2_000  # events that are looked at before others get their turn


class Timeline(msgspec.Struct, frozen=True):
    """`why` says what may be missing, if something may be."""

    events: list[Event]
    why: str = ""


async def timeline(engine: Engine, message: Message | None, queue: str, id_text: str) -> Timeline:
    """Of a message that is in the queue, or of one that was: then its id tells where it began."""
    lives = _lives(engine, message, queue, id_text)
    if not lives:
        return Timeline([], "The queue in which this message began is gone, and with it its tale.")
    if EVENTS_TOPIC not in engine.topics:
        return Timeline([], "This broker does not keep nexo.events.")
    if any(name in engine.queues and not _tells(engine, name) for name, _ in lives):
        return Timeline([], "This queue does not tell events: its setting `events` is off.")
    topic = engine.topic(EVENTS_TOPIC)
    born_ms = message.created_ms if message is not None else 0
    offset = await topic.offset_of(Start(time_ms=max(1, born_ms - 1_000)))
    first_kept = topic.info().start
    found: list[Event] = []
    marks = [f'"queue":"{name}"'.encode() for name, _ in lives]
    read = 0
    while read < EVENTS_READ_MAX and len(found) < EVENTS_SHOWN_MAX:
        reading = await topic.read(offset, _STEP)
        if not reading.parts:
            break
        for part in reading.parts:
            batch = part.batch()
            for index in range(part.count):
                body = batch.body(index)
                if any(mark in body for mark in marks):
                    event = decode_event(body)
                    if _is_of(event, lives):
                        found.append(event)
            read += part.count
        offset = reading.next
        await asyncio.sleep(0)
    why = ""
    if read >= EVENTS_READ_MAX:
        why = f"Only the first {EVENTS_READ_MAX:,} events since its birth were looked at."
    elif not found or (found[0].kind != "pushed" and first_kept > 0):
        why = "What happened before is no longer kept in nexo.events."
    return Timeline(found[:EVENTS_SHOWN_MAX], why)


def _lives(
    engine: Engine, message: Message | None, queue: str, id_text: str
) -> list[tuple[str, int]]:
    """The queues it has been in, with its number in each. A redriven message has a number of its
    own in the queue it came back to, which only that queue knows while it is there."""
    lives: list[tuple[str, int]] = []
    try:
        incarnation, seq = parse_message_id(id_text)
    except InvalidArgument:
        incarnation = seq = -1
    candidates = [queue]
    if message is not None and message.dead_letter is not None:
        candidates.insert(0, message.dead_letter.source)
    for name in candidates:
        actor = engine.queues.get(name)
        if actor is not None and actor.queue.incarnation == incarnation:
            lives.append((name, seq))
    if message is not None and (queue, message.seq) not in lives:
        lives.append((queue, message.seq))
    return lives


def _tells(engine: Engine, name: str) -> bool:
    return engine.queues[name].queue.settings.events


def _is_of(event: Event, lives: list[tuple[str, int]]) -> bool:
    return any(
        event.queue == name and event.first_seq <= seq < event.first_seq + event.count
        for name, seq in lives
    )
