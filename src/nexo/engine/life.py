"""The life of one message so far, told from `nexo.events`: attempt by attempt, with who had it and
why it failed.

The events of all queues are one topic, so those of a message are looked for where they can be:
around the times that the message itself tells of, and among the newest. On a busy broker that is a
small part of all, and the answer says so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.events import Event, decode_event
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import (
    LIFE_EVENTS,
    LIFE_EVENTS_SHOWN_MAX,
    LIFE_GONE_EVENTS,
    LIFE_STEP_EVENTS,
)
from nexo.vocabulary.start import Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.message import Message

_AROUND = "around its push, its deliveries and failures, and the newest"


class Timeline(msgspec.Struct, frozen=True):
    """`why` says what may be missing, if something may be."""

    events: list[Event]
    why: str = ""


class Lives(msgspec.Struct, frozen=True):
    """The queues that a message has been in, with its number in each. `hidden` is whether it was in
    one that is not for the caller to see."""

    known: list[tuple[str, int]]
    hidden: bool


async def timeline(
    engine: Engine,
    queue: str,
    id_text: str,
    message: Message | None,
    may_peek: Callable[[str], bool],
    seq: int = -1,
) -> Timeline:
    """Of a message that is in the queue, or of one that was: then its id tells where it began, and
    `seq`, unless it is negative, what number it had here. Of queues into which the caller may not
    peek nothing is told."""
    lives = _lives(engine, queue, id_text, message, may_peek, seq)
    if not lives.known:
        if lives.hidden:
            return Timeline(
                [], "Your token lacks the permission peek on the queue that it was first pushed to."
            )
        return Timeline(
            [],
            "The queue that this message was first pushed to is deleted, and its history with it.",
        )
    if engine.events_name not in engine.topics:
        return Timeline([], "This broker does not record events.")
    if not any(_tells(engine, name) for name, _ in lives.known):
        return Timeline([], "This queue does not record events: its setting `events` is off.")
    topic = engine.topic(engine.events_name)
    ranges = await _ranges(topic, message)
    found = []
    for start, end in ranges:
        found += await _read(topic, start, end, lives.known)
    why = _why(topic, message, ranges, found)
    if lives.hidden:
        why += " Your token lacks the permission peek on the queue that it was first pushed to."
    return Timeline(found[:LIFE_EVENTS_SHOWN_MAX], why.strip())


def _lives(
    engine: Engine,
    queue: str,
    id_text: str,
    message: Message | None,
    may_peek: Callable[[str], bool],
    seq: int,
) -> Lives:
    """A redriven message has a number of its own in the queue it came back to, which only that
    queue knows while it is there."""
    begun_in, first_seq = parse_message_id(id_text)
    queues = engine.queues.items()
    began = next((n for n, actor in queues if actor.incarnation == begun_in), None)
    known: list[tuple[str, int]] = []
    hidden = False
    if began is not None:
        hidden = not may_peek(began)
        if not hidden:
            known.append((began, first_seq))
    here = (queue, message.seq if message is not None else seq)
    if here[1] >= 0 and here not in known:
        known.append(here)
    return Lives(known, hidden)


def _tells(engine: Engine, name: str) -> bool:
    return engine.queues[name].settings.events


async def _ranges(topic: TopicActor, message: Message | None) -> list[tuple[int, int]]:
    """The offsets to look at, in order and without a part twice."""
    info = topic.info()
    if message is None:
        return [(max(info.start, info.end - LIFE_GONE_EVENTS), info.end)]
    letter = message.dead_letter
    times = [message.first_delivered_ms]
    if letter is not None:
        times += [letter.first_failed_ms, letter.last_failed_ms]
    born = await topic.offset_of(Start(time_ms=max(1, message.created_ms - 1)))
    wanted = [(born, born + LIFE_EVENTS), (info.end - LIFE_EVENTS, info.end)]
    for time_ms in filter(None, times):
        # An event is published when it has happened, and what led to it shortly before.
        offset = await topic.offset_of(Start(time_ms=time_ms))
        wanted.append((offset - LIFE_EVENTS // 2, offset + LIFE_EVENTS // 2))
    ranges: list[tuple[int, int]] = []
    for start, end in sorted((max(born, start), min(info.end, end)) for start, end in wanted):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], end))
        elif start < end:
            ranges.append((start, end))
    return ranges


async def _read(
    topic: TopicActor, offset: int, end: int, lives: list[tuple[str, int]]
) -> list[Event]:
    found: list[Event] = []
    marks = [f'"queue":"{name}"'.encode() for name, _ in lives]
    while offset < end:
        reading = await topic.read(offset, min(LIFE_STEP_EVENTS, end - offset))
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
        offset = reading.next
        await asyncio.sleep(0)
    return found


def _why(
    topic: TopicActor, message: Message | None, ranges: list[tuple[int, int]], found: list[Event]
) -> str:
    info = topic.info()
    read = sum(end - start for start, end in ranges)
    first = ranges[0][0] if ranges else info.end
    if message is None and first > info.start:
        return f"Only the newest {read:,} events of all queues were searched."
    if message is not None and len(ranges) > 1:
        kept = ranges[-1][1] - first
        return f"{read:,} of the {kept:,} events since it was pushed were searched: {_AROUND}."
    begins = found and found[0].kind == "pushed"
    if not begins and info.start > 0:
        return "Earlier events have expired from nexo.events."
    return ""


def _is_of(event: Event, lives: list[tuple[str, int]]) -> bool:
    return any(
        event.queue == name and event.first_seq <= seq < event.first_seq + event.count
        for name, seq in lives
    )
