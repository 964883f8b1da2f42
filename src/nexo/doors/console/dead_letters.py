"""Dead letters: where they are, why they are there, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.queues import (
    Glimpse,
    Row,
    glimpse_of,
    glimpses,
    moved,
    rows_of,
)
from nexo.doors.console.request import as_number, at, query_of, whole_number
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.engine import chosen
from nexo.engine.peek import traffic
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import (
    CONSOLE_LETTERS_SHOWN,
    CONSOLE_LIST_MS,
    CONSOLE_REASONS_LOOKED,
    CONSOLE_REASONS_SHOWN,
    CONSOLE_ROWS_SHOWN,
    CONSOLE_TASKS_SHOWN,
    PEEK_MESSAGES_MAX,
    SEARCH_TEXT_CHARS_MAX,
)
from nexo.vocabulary.reasons import folded
from nexo.vocabulary.units import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    verb: str
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
            prefix + "total": formatting.number(self.total),
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


class Filter(msgspec.Struct, frozen=True):
    """What an address asks for: dead letters of a reason, or that contain a text."""

    reason: str | None
    text: str

    @property
    def is_set(self) -> bool:
        return self.reason is not None or bool(self.text)

    @property
    def choice(self) -> chosen.Choice:
        return chosen.Choice(reason=self.reason, text=self.text)

    @property
    def same(self) -> str:
        """For an address that keeps it."""
        said = {"text": self.text} if self.text else {}
        if self.reason is not None:
            said["reason"] = self.reason
        return f"&{urlencode(said)}" if said else ""


async def letters(call: Call) -> Response:
    """One dead-letter queue, message by message."""
    name = call.path["name"]
    actor = call.engine.queue(name)
    (row,) = rows_of(call, [actor])
    limit = whole_number(call.query("peek"), CONSOLE_LETTERS_SHOWN, 1, PEEK_MESSAGES_MAX)
    after = whole_number(call.query("after"), -1, 0, 2**60)
    behind = None if after < 0 else after
    wanted = filter_of(query_of(call.request))
    told = await chosen.reasons(actor, chosen.Choice(), looked_max=CONSOLE_REASONS_LOOKED)
    shown, following, matched = await _shown(actor, wanted, limit, behind)
    sources = call.shared.sampler.dead_letter_queues.sources().get(name, [])
    tasks = tasks_of(call, actor)
    return await call.page(
        "letters.html",
        {"letters": "letters_rows.html", "tasks": "letters_tasks.html"},
        row=row,
        shown=shown,
        matched=matched,
        wanted=wanted,
        is_first=after < 0,
        limit=limit,
        shown_most=PEEK_MESSAGES_MAX,
        next=following,
        reason=wanted.reason,
        reasons=told.groups[:CONSOLE_REASONS_SHOWN],
        reasons_left=max(0, len(told.groups) - CONSOLE_REASONS_SHOWN),
        reasons_looked=told.looked_at if told.next is not None else None,
        letters_made_of=moved(actor) if after < 0 and limit <= CONSOLE_LETTERS_SHOWN else "",
        sources=call.known(sources),
        is_orphan=not sources,
        tasks=tasks,
        tasks_made_of=_made_of(tasks),
        may_manage=call.caller.may(Action.MANAGE, name),
    )


def filter_of(given: Mapping[str, str]) -> Filter:
    """An empty reason is one: that of those for which none was given."""
    reason = given.get("reason")
    text = given.get("text", "").strip()[:SEARCH_TEXT_CHARS_MAX]
    return Filter(None if reason is None else folded(reason), text)


async def _shown(
    actor: QueueActor, wanted: Filter, limit: int, after: int | None
) -> tuple[list[Glimpse], int | None, str]:
    """What a page shows, the number behind which the next one begins, and how many match."""
    if not wanted.is_set:
        found = await glimpses(actor, limit, after)
        last = found[-1].message.seq if found else None
        more = last is not None and bool(await glimpses(actor, 1, last))
        return found, last if more else None, formatting.number(actor.info().depth)
    told = await chosen.search(actor, wanted.choice, limit, after)
    counted = await chosen.search(actor, wanted.choice, 0, whole=True)
    matched = formatting.number(counted.matched)
    shown = [glimpse_of(actor, each) for each in told.messages]
    return shown, told.next, matched if counted.next is None else f"at least {matched}"


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
    for number, task in call.engine.tasks.all_of(actor)[:CONSOLE_TASKS_SHOWN]:
        progress, failure = task.progress(), task.failure
        found.append(
            Redrive(
                number=number,
                verb=task.verb,
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
    """All of them, or those that a filter shows, as a task; or those that were selected at once."""
    name, which = call.path["name"], call.field("which")
    to = call.field("to") or None
    with call.told():
        rate = as_number(call.field("rate"), "the rate")
        notice = "Started the redrive. Its progress is shown below."
        if which == "all":
            await call.engine.tasks.begin(name, to, rate)
        elif which == "filtered":
            wanted = _filter_of_form(call)
            task = await call.engine.hands.redrive(name, to, rate, wanted.choice)
            call.engine.tasks.keep(task)
        else:
            seqs, count = _selected(call, name)
            task = await call.engine.hands.redrive(name, to, None, seqs)
            notice = _told_of(await task.finished, count, "Redrove", _NOWHERE)
    return call.back(at("dead-letters", name), notice)


async def discard(call: Call) -> Response:
    """Those that a filter shows as a task, or those that were selected at once."""
    name = call.path["name"]
    with call.told():
        if call.field("which") == "filtered":
            wanted = _filter_of_form(call)
            task = await call.engine.hands.discard(name, wanted.choice)
            call.engine.tasks.keep(task)
            notice = "Started the discard. Its progress is shown below."
        else:
            seqs, count = _selected(call, name)
            task = await call.engine.hands.discard(name, seqs)
            notice = _told_of(await task.finished, count, "Discarded", _HELD)
    return call.back(at("dead-letters", name), notice)


_NOWHERE = "The others have no source queue, or no longer exist."
_HELD = "The others no longer exist, or are claimed by a Spark query."


def _filter_of_form(call: Call) -> Filter:
    wanted = filter_of({key: values[0] for key, values in call.form.items() if values})
    if not wanted.is_set:  # else all would be meant, and nobody was asked about that
        raise InvalidArgument("no filter is set", "filter by reason or text first")
    return wanted


def _selected(call: Call, name: str) -> tuple[list[int], int]:
    """The numbers of the messages that were marked, and how many that were."""
    wanted = set(call.form.get("id", []))
    if not wanted:
        raise InvalidArgument("no message is selected", "select at least one")
    incarnation = call.engine.queue(name).incarnation
    named = [parse_message_id(each) for each in wanted]
    # What is not of this queue is passed over: it was created anew since the page was opened.
    return sorted(seq for begun_in, seq in named if begun_in == incarnation), len(wanted)


def _told_of(done: int, count: int, what: str, others: str) -> str:
    told = f"{what} {done:,} of {count_of(count)}."
    return f"{told} {others}" if done < count else told


async def cancel_redrive(call: Call) -> Response:
    name = call.path["name"]
    with call.told():
        call.engine.tasks.cancel(call.task)
    notice = "Cancelled. Messages that were already processed are not restored."
    return call.back(at("dead-letters", name), notice)
