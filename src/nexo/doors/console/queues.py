"""Queues: the table of all, sorted and filtered here, a page of rows at a time, however many there
are; and the page of one: its line, its messages, its settings, and what can be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import formatting
from nexo.doors.console.message import batch_of_form, preview
from nexo.doors.console.pages import badges
from nexo.doors.console.request import as_number, at, whole_number
from nexo.doors.console.settings_form import given_queue_settings, queue_fields
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.engine import chosen, peek
from nexo.engine.listing import steps
from nexo.engine.peek import counts
from nexo.engine.queue_actor import QueueActor
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import (
    CONSOLE_CHOSEN_MS,
    CONSOLE_FILTER_CHARS_MAX,
    CONSOLE_FOLLOWED_MAX,
    CONSOLE_LIST_BYTES_MAX,
    CONSOLE_LIST_MS,
    CONSOLE_PEEKED,
    CONSOLE_ROWS_SHOWN,
    CONSOLE_SORTED_MAX,
    PEEK_HEAD_BYTES,
    PEEK_MESSAGES_MAX,
    PRIORITY_MAX,
    SEARCH_TEXT_CHARS_MAX,
)
from nexo.vocabulary.message import Message
from nexo.vocabulary.settings import queue_settings_of
from nexo.vocabulary.units import count_of
from nexo.vocabulary.user_settings import GivenQueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from nexo.doors.console.history import Rates
    from nexo.doors.console.request import Call
    from nexo.engine.engine import Engine
    from nexo.vocabulary.errors import NexoError


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
    in_rate: float
    out_rate: float
    paused: bool
    fifo: bool
    dead_letters: str  # the queue that gets its dead letters, if it is there
    is_dead_letters: bool

    def live(self) -> dict[str, str]:
        """What changes, by the keys that the page gives it."""
        prefix = f"q.{self.name}."
        told = {
            "oldest": formatting.span(self.oldest_age_ms) if self.depth else formatting.NOTHING,
            "in": formatting.rate(self.in_rate),
            "out": formatting.rate(self.out_rate),
            "state": "paused" if self.paused else "",
        }
        for field in _COUNTS:
            told[field] = formatting.number(getattr(self, field))
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
SORTS: dict[str, tuple[str, Callable[[QueueActor, Rates], Any]]] = {
    "name": ("Queue", lambda actor, _: actor.name),
    "depth": ("Depth", lambda actor, _: counts(actor).depth),
    "oldest": ("Oldest", lambda actor, _: actor.info().oldest_age_ms if counts(actor).depth else 0),
    "in": ("In/s", lambda actor, rates: rates.of(actor.name)[0]),
    "out": ("Out/s", lambda actor, rates: rates.of(actor.name)[1]),
    "ready": ("Ready", lambda actor, _: counts(actor).ready),
    "in_flight": ("In flight", lambda actor, _: counts(actor).in_flight),
    "scheduled": ("Scheduled", lambda actor, _: counts(actor).scheduled),
    "consumers": ("Consumers", lambda actor, _: counts(actor).consumers),
    "dead_lettered": ("Dead-lettered", lambda actor, _: counts(actor).dead_lettered),
}


def rows_of(call: Call, actors: list[QueueActor]) -> list[Row]:
    letters = call.shared.sampler.dead_letter_queues
    targets = letters.names()
    rows = []
    for actor in actors:
        info, settings = actor.info(), actor.settings
        target = letters.target_of(actor.name, settings)
        in_rate, out_rate = call.shared.sampler.rates.of(actor.name)
        rows.append(
            Row(
                name=actor.name,
                depth=info.depth,
                oldest_age_ms=info.oldest_age_ms,
                ready=info.ready,
                in_flight=info.in_flight,
                scheduled=info.scheduled,
                consumers=counts(actor).consumers,
                pushed=info.pushed,
                acked=info.acked,
                dead_lettered=info.dead_lettered,
                in_rate=in_rate,
                out_rate=out_rate,
                paused=info.paused,
                fifo=settings.fifo,
                dead_letters=target if call.leads_to(target) else "",
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


async def choose(call: Call) -> Chosen:
    text = call.query("filter")[:CONSOLE_FILTER_CHARS_MAX]
    wanted = call.query("sort", "name")
    sort = wanted.removeprefix("-")
    sort = sort if sort in SORTS else "name"
    descending = wanted.startswith("-")
    is_by_name = sort == "name" and not descending
    rates = call.shared.sampler.rates
    known, found, matching = 0, list[QueueActor](), 0
    async for actors in steps(call.engine.queues):
        of_these = [each for each in actors if call.caller.knows(each.name)]
        known += len(of_these)
        if text:
            of_these = [each for each in of_these if text.lower() in each.name.lower()]
        found += of_these
        matching += len(of_these)
        if not is_by_name and len(found) >= 2 * CONSOLE_SORTED_MAX:
            found = _first(found, sort, descending, rates)
    if not is_by_name:
        found = _first(found, sort, descending, rates)
    pages = max(1, -(-len(found) // CONSOLE_ROWS_SHOWN))
    page = whole_number(call.query("page"), 1, 1, pages)
    shown = found[(page - 1) * CONSOLE_ROWS_SHOWN : page * CONSOLE_ROWS_SHOWN]
    return Chosen(shown, matching, known, sort, descending, text, page, pages)


def _first(found: list[QueueActor], sort: str, descending: bool, rates: Rates) -> list[QueueActor]:
    """The first by a figure; equal ones stay in the order of their names."""
    figure = SORTS[sort][1]
    ranked = sorted(found, key=lambda actor: figure(actor, rates), reverse=descending)
    return ranked[:CONSOLE_SORTED_MAX]


async def queues(call: Call) -> Response:
    chosen = await choose(call)
    return await call.page(
        "queues.html",
        {"rows": "queues_rows.html"},
        chosen=chosen,
        rows=rows_of(call, chosen.actors),
        sorts={key: heading for key, (heading, _) in SORTS.items()},
        live=f"{at('live', 'queues')}?{call.query_string}",
        place=call.place,
    )


async def live_queues(call: Call) -> Response:
    engine = call.engine
    chosen, chosen_ms, count = await choose(call), engine.now_ms(), len(engine.queues)
    had_some = bool(chosen.known)

    async def frame() -> Frame | None:
        nonlocal chosen, chosen_ms, count
        if len(engine.queues) != count or engine.now_ms() > chosen_ms + CONSOLE_CHOSEN_MS:
            chosen, chosen_ms, count = await choose(call), engine.now_ms(), len(engine.queues)
        if bool(chosen.known) != had_some:
            return None  # from the lesson to the table, or back
        values = badges(call)
        there = [each for each in chosen.actors if engine.queues.get(each.name) is each]
        for row in rows_of(call, there):
            values |= row.live()
        return Frame(values, {"rows": chosen.made_of})

    return streamed(call.shared.pulse.stream(call.caller, frame))


async def create_queue(call: Call) -> Response:
    name = call.field("name")
    with call.told():
        given = GivenQueueSettings(fifo=True) if call.field("fifo") else GivenQueueSettings()
        await call.engine.create_queue(name, queue_settings_of(given))
    return call.back(at("queues", name), f"Created queue {name}.")


# -- One queue -----------------------------------------------------------------------------------


class Glimpse(msgspec.Struct, frozen=True):
    """A message as a row of a table. `own_id` is how this queue alone would call it."""

    message: Message
    preview: str
    size: int
    own_id: str
    address: str


async def glimpses(actor: QueueActor, limit: int, after: int | None = None) -> list[Glimpse]:
    """The first ones, or those behind a number; fewer if they are large."""
    found = await peek.glimpses(actor, limit, CONSOLE_LIST_BYTES_MAX, after)
    return [_glimpse(actor.name, each) for each in found]


def _glimpse(queue: str, seen: peek.Glimpse) -> Glimpse:
    message = seen.message
    address = at("queues", queue, "messages", message.id)
    if message.id != seen.own_id:  # it began elsewhere, so its id does not say where it is
        address += f"?seq={message.seq}"
    shown = preview(message.body, seen.size)
    return Glimpse(message, shown, seen.size, seen.own_id, address)


def glimpse_of(actor: QueueActor, message: Message) -> Glimpse:
    """A message that a search has found, as a row."""
    head = msgspec.structs.replace(message, body=message.body[:PEEK_HEAD_BYTES])
    own_id = message_id(actor.incarnation, message.seq)
    return _glimpse(actor.name, peek.Glimpse(head, len(message.body), own_id))


def moved(actor: QueueActor) -> str:
    """Differs when the messages of a queue may be others, or in other states."""
    info = actor.info()
    return made_of(
        (info.pushed, info.delivered, info.acked, info.nacked, info.dead_lettered),
        (info.timed_out, info.expired),
        (info.depth, info.ready, info.scheduled, info.in_flight),
    )


def _claimed(actor: QueueActor) -> str:
    return made_of(sorted(actor.info().claimed.items()))


async def queue(call: Call) -> Response:
    return await _page(call)


async def _page(call: Call, refused: NexoError | None = None) -> Response:
    """With what was refused, the settings are as they were written into the form."""
    name = call.path["name"]
    actor, defined = call.engine.queue(name), call.engine.definition(name)
    limit = whole_number(call.query("peek"), CONSOLE_PEEKED, 1, PEEK_MESSAGES_MAX)
    may_peek = call.caller.may(Action.PEEK, name)
    text = call.query("text").strip()[:SEARCH_TEXT_CHARS_MAX]
    (row,) = rows_of(call, [actor])
    sources = call.shared.sampler.dead_letter_queues.sources().get(name, [])
    return await call.page(
        "queue.html",
        {"glimpses": "queue_messages.html", "claims": "queue_claims.html"},
        200 if refused is None else refused.http_status,
        refused=refused,
        row=row,
        values=_values(call.engine, actor),
        history=call.shared.sampler.line_of(actor).points.columns(),
        glimpses=await _shown(actor, limit, text) if may_peek else [],
        messages_made_of=moved(actor) if limit <= CONSOLE_FOLLOWED_MAX and not text else "",
        text=text,
        peek_limit=limit,
        may_peek=may_peek,
        may_push=call.caller.may(Action.PUSH, name),
        may_manage=call.caller.may(Action.MANAGE, name),
        fields=queue_fields(defined.settings, call.form),
        defined=defined,
        sources=call.known(sources),
        topics=call.known(call.engine.topics_of(name)),
        claimed=actor.info().claimed,
        claims_made_of=_claimed(actor),
        now_ms=call.engine.now_ms(),
        place=call.place,
    )


async def _shown(actor: QueueActor, limit: int, text: str) -> list[Glimpse]:
    """The first messages, or those that contain a text."""
    if not text:
        return await glimpses(actor, limit)
    found = await chosen.search(actor, chosen.Choice(text=text), limit)
    return [glimpse_of(actor, each) for each in found.messages]


async def live_queue(call: Call) -> Response:
    name = call.path["name"]
    actor = call.engine.queue(name)
    last_s, looked_ms = 0.0, 0
    parts: dict[str, str] = {}

    def frame() -> Frame | None:
        nonlocal last_s, looked_ms, parts
        if call.engine.queues.get(name) is not actor:
            return None
        last = call.shared.sampler.line_of(actor).points.last
        point = None
        if last and last[0] > last_s:
            last_s, point = last[0], [round(each, 3) for each in last]
        if actor.now_ms() > looked_ms + CONSOLE_LIST_MS:
            looked_ms = actor.now_ms()
            parts = {"glimpses": moved(actor), "claims": _claimed(actor)}
        (row,) = rows_of(call, [actor])
        values = _values(call.engine, actor) | row.live() | badges(call)
        return Frame(values, parts, point)

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _values(engine: Engine, actor: QueueActor) -> dict[str, str]:
    """Waits and work are of all that happened since the broker started."""
    meters = engine.meters.queues.get(actor.name)
    told = {"retries": formatting.number(meters.retries if meters else 0)}
    for name in ("wait", "work"):
        values = getattr(meters, f"{name}_s") if meters else None
        for key, share in (("p50", 0.5), ("p99", 0.99)):
            has_some = values is not None and values.count
            took_ms = values.quantile(share) * 1000 if values is not None else 0
            told[f"{name}_{key}"] = formatting.span(took_ms) if has_some else formatting.NOTHING
    return told


async def send(call: Call) -> Response:
    name = call.path["name"]
    actor = call.engine.queue(name)
    columns: dict[str, Any] = {}
    priority = whole_number(call.field("priority"), 0, 0, PRIORITY_MAX)
    if priority:
        columns["priority"] = bytes([priority])
    if (delay_s := as_number(call.field("delay"), "the delay")) is not None:
        columns["delay_ms"] = [round(delay_s * 1000)]
    if call.field("group"):
        columns["groups"] = [call.field("group")]
    if call.field("deduplication"):
        columns["deduplication_ids"] = [call.field("deduplication")]
    accepted = await actor.push(batch_of_form(call, **columns))
    (seq,) = accepted.seqs()
    id = message_id(actor.incarnation, seq)
    told = f"Message {id} is a duplicate" if accepted.duplicates else f"Sent message {id}"
    return call.back(at("queues", name), f"{told}.")


async def edit(call: Call) -> Response:
    name = call.path["name"]
    try:
        with call.told():
            now = call.engine.definition(name).settings
            wanted = queue_settings_of(given_queue_settings(call.form, now), now)
            await call.engine.edit_queue(name, wanted)
    except InvalidArgument as error:
        return await _page(call, error)
    return call.back(at("queues", name), "Saved the settings.")


async def pause(call: Call) -> Response:
    return await _set_paused(call, True, "Paused the queue. Deliveries have stopped.")


async def resume(call: Call) -> Response:
    return await _set_paused(call, False, "Resumed the queue.")


async def _set_paused(call: Call, paused: bool, notice: str) -> Response:
    name = call.path["name"]
    with call.told():
        await call.engine.queue(name).set_paused(paused)
    return call.back(at("queues", name), notice)


async def purge(call: Call) -> Response:
    name = call.path["name"]
    with call.told():
        count = await call.engine.queue(name).purge()
    return call.back(at("queues", name), f"Purged {count_of(count)}.")


async def delete(call: Call) -> Response:
    name = call.path["name"]
    with call.told():
        await call.engine.delete_queue(name)
    return call.back(at("queues"), f"Deleted queue {name}.")


async def release(call: Call) -> Response:
    """Take back what a Spark query holds."""
    name, consumer = call.path["name"], call.field("consumer")
    with call.told():
        claims = call.engine.queue(name).claims
        count = await claims.release(consumer, bool(call.field("dead_letter")))
    return call.back(at("queues", name), f"Released {count_of(count)} claimed by {consumer}.")
