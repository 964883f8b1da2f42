"""Dead letters: where they are, why they are there, and the way back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.queues import Glimpse, Row, glimpses, moved, rows_of
from nexo.doors.console.request import as_number, at, query_of, whole_number
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.engine.moves import Chosen
from nexo.engine.peek import traffic
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import (
    CONSOLE_LETTERS_SHOWN,
    CONSOLE_LIST_MS,
    CONSOLE_REASONS_SHOWN,
    CONSOLE_ROWS_SHOWN,
    CONSOLE_TASKS_SHOWN,
    PEEK_MESSAGES_MAX,
)

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call
    from nexo.engine.queue_actor import QueueActor


class LetterQueues(msgspec.Struct, frozen=True):
    """A page of the queues that hold dead letters, the fullest first."""

    rows: list[Row]
    count: int
    page: int
    pages: int

    @property
    def made_of(self) -> str:
        return made_of([row.name for row in self.rows], self.count)


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
            prefix + "moved": formatting.number(self.moved),
            prefix + "skipped": formatting.number(self.skipped),
            prefix + "percent": str(self.percent),
        }

    @property
    def percent(self) -> int:
        return 100 if not self.total else round(100 * (self.moved + self.skipped) / self.total)


async def dead_letters(call: Call) -> Response:
    sources = call.shared.sampler.dead_letter_queues.sources()
    return await call.page(
        "dead_letters.html",
        {"rows": "dead_letters_rows.html"},
        chosen=_letter_queues(call),
        sources=sources,
        known=call.known,
        live=f"{at('live', 'dead-letters')}?{call.query_string}",
    )


async def live_dead_letters(call: Call) -> Response:
    def frame() -> Frame:
        values, chosen = badges(call), _letter_queues(call)
        for row in chosen.rows:
            values |= row.live()
        return Frame(values, {"rows": chosen.made_of})

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _letter_queues(call: Call) -> LetterQueues:
    """Of those that hold something. Asked for every tick: so without who sends to them."""
    queues = call.engine.queues
    names = call.shared.sampler.dead_letter_queues.names()
    known = [queues[name] for name in names if name in queues and call.caller.knows(name)]
    depths = {actor: traffic(actor).depth for actor in known}
    known = [actor for actor in known if depths[actor]]
    known.sort(key=lambda actor: (-depths[actor], actor.name))
    pages = max(1, -(-len(known) // CONSOLE_ROWS_SHOWN))
    page = whole_number(call.query("page"), 1, 1, pages)
    shown = known[(page - 1) * CONSOLE_ROWS_SHOWN : page * CONSOLE_ROWS_SHOWN]
    return LetterQueues(rows_of(call, shown), len(known), page, pages)


async def letters(call: Call) -> Response:
    """One dead-letter queue, message by message."""
    name = call.path["name"]
    actor = call.engine.queue(name)
    (row,) = rows_of(call, [actor])
    limit = whole_number(call.query("peek"), CONSOLE_LETTERS_SHOWN, 1, PEEK_MESSAGES_MAX)
    after = whole_number(call.query("after"), -1, 0, 2**60)
    peeked = await glimpses(actor, PEEK_MESSAGES_MAX, None if after < 0 else after)
    reason = query_of(call.request).get("reason")  # an empty one is none that was given
    reasons = Counter(_reason(each) for each in peeked)
    chosen = [each for each in peeked if reason is None or _reason(each) == reason]
    shown = chosen[:limit]
    # Of what was looked at the next page begins behind what is shown, or behind all of it.
    last = shown[-1] if len(chosen) > len(shown) else peeked[-1] if peeked else None
    more = last is not None and bool(await glimpses(actor, 1, last.message.seq))
    sources = call.shared.sampler.dead_letter_queues.sources().get(name, [])
    tasks = tasks_of(call, actor)
    return await call.page(
        "letters.html",
        {"letters": "letters_rows.html", "tasks": "letters_tasks.html"},
        row=row,
        shown=shown,
        looked_at=len(peeked),
        is_first=after < 0,
        limit=limit,
        shown_most=PEEK_MESSAGES_MAX,
        next=last.message.seq if more and last is not None else None,
        reason=reason,
        reasons=reasons.most_common(CONSOLE_REASONS_SHOWN),
        letters_made_of=moved(actor) if after < 0 and limit <= CONSOLE_LETTERS_SHOWN else "",
        sources=call.known(sources),
        is_orphan=not sources,
        tasks=tasks,
        tasks_made_of=_made_of(tasks),
        may_manage=call.caller.may(Action.MANAGE, name),
    )


def _reason(glimpse: Glimpse) -> str:
    letter = glimpse.message.dead_letter
    return letter.reason if letter is not None else ""


async def live_letters(call: Call) -> Response:
    name = call.path["name"]
    actor = call.engine.queue(name)
    looked_ms, letters = 0, ""

    def frame() -> Frame | None:
        nonlocal looked_ms, letters
        if call.engine.queues.get(name) is not actor:
            return None
        if actor.now_ms() > looked_ms + CONSOLE_LIST_MS:
            looked_ms, letters = actor.now_ms(), moved(actor)
        values, tasks = badges(call), tasks_of(call, actor)
        (row,) = rows_of(call, [actor])
        values |= row.live()
        for each in tasks:
            values |= each.live()
        return Frame(values, {"letters": letters, "tasks": _made_of(tasks)})

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _made_of(tasks: list[Redrive]) -> str:
    return made_of([(each.number, each.state, each.error) for each in tasks])


def tasks_of(call: Call, actor: QueueActor) -> list[Redrive]:
    found = []
    for number, task in call.engine.tasks.of(actor)[:CONSOLE_TASKS_SHOWN]:
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


async def redrive(call: Call) -> Response:
    """All of them as a task, or those that were selected at once."""
    name = call.path["name"]
    to = call.field("to") or None
    with call.told():
        if call.field("which") == "all":
            rate = as_number(call.field("rate"), "the rate")
            await call.engine.tasks.begin(name, to, rate)
            notice = "The redrive has begun; its progress is below."
        else:
            notice = await _redrive_selected(call, name, to)
    return call.back(at("dead-letters", name), notice)


async def _redrive_selected(call: Call, name: str, to: str | None) -> str:
    wanted = set(call.form.get("id", []))
    if not wanted:
        raise InvalidArgument("no message is selected", "mark some, or redrive all")
    incarnation = call.engine.queue(name).incarnation
    named = [parse_message_id(each) for each in wanted]
    # What is not of this queue is passed over: it was created anew since the page was opened.
    seqs = sorted(seq for begun_in, seq in named if begun_in == incarnation)
    task = await call.engine.redrive(name, to, chosen=Chosen(seqs))
    moved = await task.finished
    left = len(wanted) - moved
    told = f"{moved:,} of {len(wanted):,} messages went back."
    return f"{told} The others have no queue to go back to, or are gone." if left else told


async def cancel_redrive(call: Call) -> Response:
    name = call.path["name"]
    with call.told():
        call.engine.tasks.cancel(call.task)
    return call.back(at("dead-letters", name), "The redrive stops; what was moved stays moved.")
