"""Chosen messages: those that are meant by ids, a reason, a text or a condition in SQL.

What the broker can find it is asked for. A condition is evaluated here, on a view of the queue that
takes nothing, and the numbers of those it holds for are sent. What takes several questions is a
generator of them: it is sent the answers, and returns what came of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client import requests
from nexo.client.bodies import encoded
from nexo.client.message import PeekedMessage, time_of
from nexo.client.operation import Request
from nexo.vocabulary.errors import InvalidArgument, MessageNotFound
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.identity import message_id, priority_of
from nexo.vocabulary.limits import (
    CLIENT_TASK_WAIT_MS,
    POP_MESSAGES_MAX,
    SEARCH_MESSAGES_MAX,
    SEARCH_TEXT_CHARS_MAX,
)
from nexo.vocabulary.message import Message
from nexo.vocabulary.reasons import folded
from nexo.vocabulary.states import State
from nexo.wire import calls
from nexo.wire.columns import decode_parts
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import TypeVar

    from nexo.client.info import Progress
    from nexo.query.conditions import Condition
    from nexo.vocabulary import events
    from nexo.wire.columns import WirePart
    from nexo.wire.frame import Frame

    Result = TypeVar("Result")
    Steps = Generator[Request, Any, Result]

_PAGE_MESSAGES = 10_000  # of a view, evaluated at once
_PAGE_BYTES = 8 * 1024 * 1024


class Choice(msgspec.Struct, frozen=True):
    """What a caller said of the messages that are meant."""

    ids: tuple[str, ...] | None = None
    reason: str | None = None
    where: str | None = None
    text: str = ""
    source: str | None = None

    @property
    def travelling(self) -> calls.Choice:
        ids = None if self.ids is None else list(self.ids)
        return calls.Choice(ids, self.reason, self.text, self.source)


def choice_of(
    ids: str | Iterable[str] | None,
    reason: str | None,
    where: str | None,
    text: str = "",
    source: str | None = None,
) -> Choice | None:
    """None if nothing is said: then all are meant."""
    named = None
    if ids is not None:
        named = (ids,) if isinstance(ids, str) else tuple(dict.fromkeys(ids))
        if not all(isinstance(each, str) for each in named):
            raise InvalidArgument("message IDs must be strings", "take them from message.id")
    if len(text) > SEARCH_TEXT_CHARS_MAX:
        raise InvalidArgument(f"a text to search for has 1 to {SEARCH_TEXT_CHARS_MAX} characters")
    choice = Choice(named, reason, where, text, source)
    return None if choice == Choice() else choice


# -- What is found ----------------------------------------------------------------------------


class ReasonGroup(msgspec.Struct, frozen=True):
    """Dead letters with the same reason, in which `#` stands for each number and ID. `example` is
    one of them, with the start of its `body`."""

    reason: str
    count: int
    first_at: datetime  # when the first of them failed for the last time, and the last
    last_at: datetime
    consumer: str  # who had that one
    sources: tuple[str, ...]
    example: PeekedMessage
    queue: str  # where they are


class LifeEvent(msgspec.Struct, frozen=True):
    """One event of a message, from `nexo.events`."""

    at: datetime
    kind: str
    queue: str
    attempts: int
    consumer: str
    reason: str


class MessageDetails(PeekedMessage):
    """A message with its history. If the message is gone, only the history is known: `state` is
    `State.GONE` and the body is empty."""

    __slots__ = ("_life", "_note")

    def __init__(self, queue: str, seen: Message, life: list[LifeEvent], note: str) -> None:
        super().__init__(queue, seen)
        self._life = life
        self._note = note

    @property
    def life(self) -> list[LifeEvent]:
        """The events of this message so far."""
        return self._life

    @property
    def life_note(self) -> str:
        """What may be missing from `life`; empty if nothing is."""
        return self._note


def details(queue: str, wanted: str) -> Steps[MessageDetails]:
    """One message with its life."""
    told: calls.MessageLife = yield requests.call(calls.ShowMessage(queue, wanted))
    if told.message is None and not told.events:
        raise MessageNotFound(
            f"there is no message {wanted!r:.80} in queue {queue!r}",
            "it was acked, moved, discarded or has expired",
        )
    seen = told.message or Message(wanted, 0, b"", 0, 0, 0, 0, State.GONE)
    return MessageDetails(queue, seen, [_event(each) for each in told.events], told.note)


def _event(told: events.Event) -> LifeEvent:
    return LifeEvent(
        time_of(told.at_ms), str(told.kind), told.queue, told.attempts, told.consumer, told.reason
    )


def resending(
    queue: str,
    wanted: str,
    body: Any,
    attributes: dict[str, str | None] | None,
    to: str | None,
) -> Request:
    payload = None if body is None else encoded(body)
    asked = calls.Resend(queue, wanted, payload, attributes or {}, to)
    return requests.call(asked, lambda told: told.id)


# -- Looking ----------------------------------------------------------------------------------


def searching(queue: str, choice: Choice, limit: int) -> Steps[list[PeekedMessage]]:
    """The first messages that are meant."""
    check_allowed("limit", limit, 1, 1_000_000)
    found: list[PeekedMessage] = []
    if choice.where is not None:
        yield from _matching(queue, choice, limit, found)
        return found
    after: int | None = None
    while True:
        wanted = min(limit - len(found), SEARCH_MESSAGES_MAX)
        asked = calls.Search(queue, choice.travelling, wanted, after)
        told: calls.Found = yield requests.call(asked)
        found += [PeekedMessage(queue, each) for each in told.messages]
        after = told.next
        if after is None or len(found) >= limit:
            return found


def counting(queue: str, choice: Choice) -> Steps[int]:
    """How many messages are meant."""
    if choice.where is not None:
        return len((yield from _matching(queue, choice))[1])
    count, after = 0, None
    while True:
        asked = calls.Search(queue, choice.travelling, 0, after, whole=True)
        told: calls.Found = yield requests.call(asked)
        count += told.matched
        after = told.next
        if after is None:
            return count


def explaining(queue: str, choice: Choice | None) -> Steps[list[ReasonGroup]]:
    """The dead letters of a queue by reason."""
    groups: dict[str, ReasonGroup] = {}
    after: int | None = None
    travelling = calls.Choice() if choice is None else choice.travelling
    while True:
        asked = calls.CountReasons(queue, travelling, after)
        told: calls.CountedReasons = yield requests.call(asked)
        for each in told.groups:
            group = _group(queue, each)
            known = groups.get(each.reason)
            groups[each.reason] = group if known is None else _joined(known, group)
        after = told.next
        if after is None:
            return sorted(groups.values(), key=lambda group: (-group.count, group.reason))


def _group(queue: str, told: calls.ReasonGroup) -> ReasonGroup:
    return ReasonGroup(
        told.reason,
        told.count,
        time_of(told.first_ms),
        time_of(told.last_ms),
        told.consumer,
        told.sources,
        PeekedMessage(queue, told.example),
        queue,
    )


def _joined(one: ReasonGroup, other: ReasonGroup) -> ReasonGroup:
    last = max(one, other, key=lambda group: group.last_at)
    return msgspec.structs.replace(
        one,
        count=one.count + other.count,
        first_at=min(one.first_at, other.first_at),
        last_at=last.last_at,
        consumer=last.consumer,
        sources=tuple(sorted({*one.sources, *other.sources})),
    )


# -- Acting -----------------------------------------------------------------------------------


def discarding(queue: str, choice: Choice | None) -> Steps[int]:
    """Remove those that are meant; how many there were."""
    if choice is None:
        raise InvalidArgument(
            "discard() needs to know which messages",
            "pass ids, reason or where; purge() deletes all",
        )
    if choice.where is None:
        task = yield requests.call(calls.Discard(queue, choice.travelling))
        return (yield from waiting(task)).moved
    incarnation, seqs = yield from _matching(queue, choice)
    gone = 0
    for step in _cut(seqs):
        task = yield requests.call(calls.Discard(queue, None, incarnation, step))
        gone += (yield from waiting(task)).moved
    return gone


def redriving(queue: str, choice: Choice, to: str | None) -> Steps[int]:
    """Move those that a condition holds for; how many there were."""
    incarnation, seqs = yield from _matching(queue, choice)
    moved = 0
    for step in _cut(seqs):
        asked = calls.RedriveChosen(queue, incarnation, step, to)
        told: calls.Redriven = yield requests.call(asked)
        moved += told.moved
    return moved


def waiting(task: int) -> Steps[Progress]:
    """The end of a task."""
    while True:
        progress: Progress = yield requests.redrive_progress(task, CLIENT_TASK_WAIT_MS)
        if progress.finished:
            return progress


def beginning(queue: str, choice: Choice | None, to: str | None, rate: float | None) -> Request:
    """A redrive; the answer is the number of its task."""
    if choice is not None and choice.where is not None:
        raise InvalidArgument(
            "redrive() with `where` takes neither rate nor wait=False",
            "leave them out, or select by ids or reason",
        )
    travelling = None if choice is None else choice.travelling
    return requests.call(calls.Redrive(queue, to, rate, travelling))


def _cut(seqs: list[int]) -> Iterable[list[int]]:
    for at in range(0, len(seqs), POP_MESSAGES_MAX):
        yield seqs[at : at + POP_MESSAGES_MAX]


# -- Conditions in SQL ------------------------------------------------------------------------


def _matching(
    queue: str, choice: Choice, limit: int | None = None, shown: list[PeekedMessage] | None = None
) -> Steps[tuple[int, list[int]]]:
    """The incarnation of the queue, and the numbers of the messages that are meant; with a list for
    them, the messages too."""
    from nexo.query.extra import duckdb_or_refusal  # only who uses SQL has to have it installed

    duckdb_or_refusal()
    from nexo.query.conditions import Condition

    assert choice.where is not None
    condition = Condition(choice.where)
    opened: calls.SnapshotInfo = yield requests.call(calls.OpenSnapshot(queue))
    seqs: list[int] = []
    try:
        at = 0
        while at < opened.count and (limit is None or len(seqs) < limit):
            answer: Frame = yield _reading(queue, opened.snapshot, at)
            page = calls.read(calls.ReadSnapshot, answer)
            found = _on_page(condition, choice, queue, opened.incarnation, answer, page)
            if limit is not None:
                del found[limit - len(seqs) :]
            seqs += found
            if shown is not None and found:
                shown += _shown(queue, opened.incarnation, answer, page, set(found))
            at = page.next
    finally:
        condition.close()
    yield requests.call(calls.CloseSnapshot(queue, opened.snapshot))
    return opened.incarnation, sorted(seqs) if limit is None else seqs


def _on_page(
    condition: Condition,
    choice: Choice,
    queue: str,
    incarnation: int,
    answer: Frame,
    page: calls.SnapshotPage,
) -> list[int]:
    found = condition.matching(answer.body, page.states, queue, incarnation)
    if choice.ids is not None:
        named = frozenset(choice.ids)
        found = [row for row in found if row.id in named]
    if choice.reason is not None:
        reason = folded(choice.reason)
        found = [row for row in found if folded(row.reason) == reason]
    return [row.seq for row in found]


def _reading(queue: str, snapshot: str, start: int) -> Request:
    asked = calls.ReadSnapshot(queue, snapshot, start, _PAGE_MESSAGES, _PAGE_BYTES)
    return Request(Kind.CALL, b"", lambda answer: answer, [calls.encode(asked)])


def _shown(
    queue: str, incarnation: int, answer: Frame, page: calls.SnapshotPage, wanted: set[int]
) -> list[PeekedMessage]:
    return [
        PeekedMessage(queue, _message(part, at, incarnation, State(state)))
        for part, state in zip(decode_parts(answer.body), page.states, strict=True)
        for at in range(part.batch.count)
        if part.first + at in wanted
    ]


def _message(part: WirePart, at: int, incarnation: int, state: State) -> Message:
    batch, seq = part.batch, part.first + at
    origin = batch.origins[at] if batch.origins else None
    created = part.created_ms if batch.created is None else batch.created[at]
    groups, attributes = batch.groups, batch.attributes
    return Message(
        id=origin.id if origin else message_id(incarnation, seq),
        seq=seq,
        body=batch.body(at),
        priority=priority_of(seq),
        attempts=part.attempts,
        created_ms=origin.created_ms if origin else created,
        visible_ms=0,
        state=state,
        group_id=groups[at] if isinstance(groups, list) else groups,
        deduplication_id=batch.deduplication_ids[at] if batch.deduplication_ids else None,
        attributes=attributes[at] if isinstance(attributes, list) else attributes,
        dead_letter=origin.dead_letter if origin else None,
    )
