"""The table of queues: sorted and filtered here, a page of rows at a time, however many there
are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.live import Frame, made_of, streamed
from nexo.doors.console.visit import at, whole_number
from nexo.engine.listing import steps
from nexo.engine.queue_actor import QueueActor
from nexo.vocabulary.given import GivenQueueSettings, queue_settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from nexo.doors.console.visit import Visit

ROWS_SHOWN = 100
CHOSEN_MS = 2_000  # for this long an open page takes the order of its table for granted
FILTER_CHARS_MAX = 100
SORTED_MAX = 5_000  # rows that can be paged through by a figure; by name all can


class Row(msgspec.Struct, frozen=True):
    """A queue as the tables show it."""

    name: str
    depth: int
    oldest_age_ms: int
    ready: int
    in_flight: int
    scheduled: int
    consumers: int
    pushed: int
    acked: int
    dead_lettered: int
    paused: bool
    fifo: bool
    dead_letters: str  # the queue that gets its dead letters, if it is there
    is_dead_letters: bool

    def live(self) -> dict[str, str]:
        """What changes, by the keys that the page gives it."""
        prefix = f"q.{self.name}."
        told = {
            "oldest": wording.span(self.oldest_age_ms) if self.depth else wording.NOTHING,
            "state": "paused" if self.paused else "",
        }
        for field in _COUNTS:
            told[field] = wording.number(getattr(self, field))
        return {prefix + field: text for field, text in told.items()}


_COUNTS = (
    "depth",
    "ready",
    "in_flight",
    "scheduled",
    "consumers",
    "pushed",
    "acked",
    "dead_lettered",
)
# What the table can be sorted by: its heading, and what is compared.
SORTS: dict[str, tuple[str, Callable[[QueueActor], Any]]] = {
    "name": ("Queue", lambda actor: actor.name),
    "depth": ("Depth", lambda actor: actor.queue.depth),
    "oldest": ("Oldest", lambda actor: actor.info().oldest_age_ms if actor.queue.depth else 0),
    "ready": ("Ready", lambda actor: actor.queue.ready),
    "in_flight": ("In flight", lambda actor: actor.queue.in_flight),
    "scheduled": ("Scheduled", lambda actor: actor.queue.scheduled_count),
    "consumers": ("Consumers", lambda actor: actor.room.consumers),
    "pushed": ("Pushed", lambda actor: actor.queue.totals.pushed),
    "acked": ("Acked", lambda actor: actor.queue.totals.acked),
    "dead_lettered": ("Dead-lettered", lambda actor: actor.queue.totals.dead_lettered),
}


def rows_of(visit: Visit, actors: list[QueueActor]) -> list[Row]:
    letters = visit.house.sampler.dead_letter_queues
    targets = letters.names()
    rows = []
    for actor in actors:
        info, settings = actor.info(), actor.queue.settings
        target = letters.target_of(actor.name, settings)
        rows.append(
            Row(
                name=actor.name,
                depth=info.depth,
                oldest_age_ms=info.oldest_age_ms,
                ready=info.ready,
                in_flight=info.in_flight,
                scheduled=info.scheduled,
                consumers=actor.room.consumers,
                pushed=info.pushed,
                acked=info.acked,
                dead_lettered=info.dead_lettered,
                paused=info.paused,
                fifo=settings.fifo,
                dead_letters=target if visit.leads_to(target) else "",
                is_dead_letters=actor.name in targets,
            )
        )
    return rows


class Chosen(msgspec.Struct, frozen=True):
    """The part of the table that an address asks for."""

    actors: list[QueueActor]
    matching: int
    known: int
    sort: str
    descending: bool
    text: str
    page: int
    pages: int

    @property
    def made_of(self) -> str:
        names = [each.name for each in self.actors]
        return made_of(names, self.matching, self.known, self.page, self.pages)


async def choose(visit: Visit) -> Chosen:
    text = visit.query("filter")[:FILTER_CHARS_MAX]
    wanted = visit.query("sort", "name")
    sort = wanted.removeprefix("-")
    sort = sort if sort in SORTS else "name"
    descending = wanted.startswith("-")
    is_by_name = sort == "name" and not descending
    known, found, matching = 0, list[QueueActor](), 0
    async for actors in steps(visit.engine.queues):
        of_these = [each for each in actors if visit.caller.knows(each.name)]
        known += len(of_these)
        if text:
            of_these = [each for each in of_these if text.lower() in each.name.lower()]
        found += of_these
        matching += len(of_these)
        if not is_by_name and len(found) >= 2 * SORTED_MAX:
            found = _first(found, sort, descending)
    if not is_by_name:
        found = _first(found, sort, descending)
    pages = max(1, -(-len(found) // ROWS_SHOWN))
    page = whole_number(visit.query("page"), 1, 1, pages)
    shown = found[(page - 1) * ROWS_SHOWN : page * ROWS_SHOWN]
    return Chosen(shown, matching, known, sort, descending, text, page, pages)


def _first(found: list[QueueActor], sort: str, descending: bool) -> list[QueueActor]:
    """The first by a figure; equal ones stay in the order of their names."""
    return sorted(found, key=SORTS[sort][1], reverse=descending)[:SORTED_MAX]


async def queues(visit: Visit) -> Response:
    chosen = await choose(visit)
    return await visit.page(
        "queues.html",
        {"rows": "queues_rows.html"},
        chosen=chosen,
        rows=rows_of(visit, chosen.actors),
        sorts={key: heading for key, (heading, _) in SORTS.items()},
        live=f"{at('live', 'queues')}?{visit.query_string}",
        host=visit.request.headers.get("host", "localhost:9324"),
    )


async def live_queues(visit: Visit) -> Response:
    engine = visit.engine
    chosen, chosen_ms, count = await choose(visit), engine.now_ms(), len(engine.queues)
    had_some = bool(chosen.known)

    async def frame() -> Frame | None:
        nonlocal chosen, chosen_ms, count
        if len(engine.queues) != count or engine.now_ms() > chosen_ms + CHOSEN_MS:
            chosen, chosen_ms, count = await choose(visit), engine.now_ms(), len(engine.queues)
        if bool(chosen.known) != had_some:
            return None  # from the lesson to the table, or back
        values = badges(visit)
        there = [each for each in chosen.actors if engine.queues.get(each.name) is each]
        for row in rows_of(visit, there):
            values |= row.live()
        return Frame(values, {"rows": chosen.made_of})

    return streamed(visit.house.pulse.stream(visit.caller, frame))


async def create_queue(visit: Visit) -> Response:
    name = visit.field("name")
    with visit.told("create_queue", name):
        visit.caller.check(Action.MANAGE, name)
        given = GivenQueueSettings(fifo=True) if visit.field("fifo") else GivenQueueSettings()
        await visit.engine.create_queue(name, queue_settings_of(given))
    return visit.back(at("queues", name), f"Queue {name} is there.")
