"""Dead letters: where they are, why they are there, and the way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.live import Frame, streamed
from nexo.doors.console.queue import Glimpse, glimpses
from nexo.doors.console.queues import Row, rows_of
from nexo.doors.console.visit import as_number, at, whole_number
from nexo.engine.types import Chosen
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.visit import Visit
    from nexo.engine.queue_actor import QueueActor

LETTERS_SHOWN = 50
REASONS_SHOWN = 12
TASKS_SHOWN = 5


class LetterQueue(msgspec.Struct, frozen=True):
    row: Row
    sources: list[str]


class Redrive(msgspec.Struct, frozen=True):
    """How far a redrive is."""

    number: int
    state: str
    moved: int
    total: int
    skipped: int
    started_ms: int
    rate: float | None
    error: str

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "cancelling")

    def live(self) -> dict[str, str]:
        prefix = f"redrive.{self.number}."
        return {
            prefix + "state": self.state,
            prefix + "moved": wording.number(self.moved),
            prefix + "skipped": wording.number(self.skipped),
            prefix + "percent": str(self.percent),
        }

    @property
    def percent(self) -> int:
        return 100 if not self.total else round(100 * (self.moved + self.skipped) / self.total)


async def dead_letters(visit: Visit) -> Response:
    return await visit.page("dead_letters.html", queues=_letter_queues(visit))


async def live_dead_letters(visit: Visit) -> Response:
    shown = [each.row.name for each in _letter_queues(visit)]

    def frame() -> Frame | None:
        queues = _letter_queues(visit)
        if [each.row.name for each in queues] != shown:
            return None
        values = badges(visit)
        for each in queues:
            values |= each.row.live()
        return Frame(values)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def _letter_queues(visit: Visit) -> list[LetterQueue]:
    """Those that hold something; with their sources, the fullest first."""
    engine = visit.engine
    sources = visit.house.sampler.dead_letter_queues.sources()
    known = [
        engine.queues[name]
        for name in sources
        if visit.caller.knows(name) and engine.queues[name].queue.depth
    ]
    known.sort(key=lambda actor: (-actor.queue.depth, actor.name))
    return [LetterQueue(row, sorted(sources[row.name])) for row in rows_of(visit, known)]


async def letters(visit: Visit) -> Response:
    """One dead-letter queue, message by message."""
    name = visit.path["name"]
    visit.caller.check(Action.PEEK, name)
    actor = visit.engine.queue(name)
    (row,) = rows_of(visit, [actor])
    limit = whole_number(visit.query("peek"), LETTERS_SHOWN, 1, PEEK_MESSAGES_MAX)
    peeked = await glimpses(actor, PEEK_MESSAGES_MAX)
    reason = visit.query("reason")
    reasons = Counter(_reason(each) for each in peeked)
    chosen = [each for each in peeked if not reason or _reason(each) == reason]
    return await visit.page(
        "letters.html",
        row=row,
        shown=chosen[:limit],
        matching=len(chosen),
        looked_at=len(peeked),
        reason=reason,
        reasons=reasons.most_common(REASONS_SHOWN),
        sources=sorted(visit.house.sampler.dead_letter_queues.sources().get(name, [])),
        queues=visit.engine.queues,
        tasks=tasks_of(visit, actor),
        may_manage=visit.caller.may(Action.MANAGE, name),
        now_ms=visit.engine.now_ms(),
    )


def _reason(glimpse: Glimpse) -> str:
    letter = glimpse.message.dead_letter
    return letter.reason if letter is not None else ""


async def live_letters(visit: Visit) -> Response:
    name = visit.path["name"]
    visit.caller.check(Action.PEEK, name)
    actor = visit.engine.queue(name)
    begun = [each.number for each in tasks_of(visit, actor)]

    def frame() -> Frame | None:
        tasks = tasks_of(visit, actor)
        if visit.engine.queues.get(name) is not actor or [each.number for each in tasks] != begun:
            return None
        values = badges(visit)
        (row,) = rows_of(visit, [actor])
        values |= row.live()
        for each in tasks:
            values |= each.live()
        return Frame(values)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def tasks_of(visit: Visit, actor: QueueActor) -> list[Redrive]:
    found = []
    for number, task in visit.engine.tasks.of(actor)[:TASKS_SHOWN]:
        progress, failure = task.progress(), task.failure
        found.append(
            Redrive(
                number=number,
                state=task.status.lower(),
                moved=progress.moved,
                total=progress.total,
                skipped=progress.skipped,
                started_ms=task.started_ms,
                rate=task.rate,
                error="" if failure is None else str(failure),
            )
        )
    return found


async def redrive(visit: Visit) -> Response:
    """All of them as a task, or those that were selected at once."""
    name = visit.path["name"]
    with visit.told("redrive", name):
        visit.caller.check(Action.MANAGE, name)
        to = visit.field("to") or None
        if to is not None:
            visit.caller.check(Action.PUSH, to)
        if visit.field("which") == "all":
            rate = as_number(visit.field("rate"), "the rate")
            await visit.engine.tasks.begin(name, to, rate)
            notice = "The redrive has begun; its progress is below."
        else:
            notice = await _redrive_selected(visit, name, to)
    return visit.back(at("dead-letters", name), notice)


async def _redrive_selected(visit: Visit, name: str, to: str | None) -> str:
    wanted = set(visit.form.get("id", []))
    if not wanted:
        raise InvalidArgument("no message is selected", "mark some, or redrive all")
    peeked = await visit.engine.queue(name).peek(PEEK_MESSAGES_MAX)
    seqs = sorted(each.seq for each in peeked if each.id in wanted)
    task = await visit.engine.redrive(name, to, chosen=Chosen(seqs))
    moved = await task.finished
    left = len(wanted) - moved
    told = f"{moved:,} of {len(wanted):,} messages went back."
    return f"{told} The others have no queue to go back to, or are gone." if left else told


async def cancel_redrive(visit: Visit) -> Response:
    name = visit.path["name"]
    number = whole_number(visit.field("task"), 0, 0, 2**53)
    with visit.told("redrive_cancel", f"task {number}"):
        visit.caller.check(Action.MANAGE, visit.engine.tasks.source_of(number))
        visit.engine.tasks.cancel(number)
    return visit.back(at("dead-letters", name), "The redrive stops; what was moved stays moved.")
