"""The page of one queue: its line, its messages, its settings, and what can be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.permissions import ANY, Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.bodies import preview
from nexo.doors.console.live import Frame, made_of, streamed
from nexo.doors.console.queues import rows_of
from nexo.doors.console.settings_form import given_queue_settings, queue_fields
from nexo.doors.console.visit import as_number, as_pairs, at, whole_number
from nexo.engine import looking
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound
from nexo.vocabulary.given import queue_settings_of
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX, PRIORITY_MAX
from nexo.vocabulary.message import Message
from nexo.vocabulary.names import dead_letter_name

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.visit import Visit
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.errors import NexoError

PEEKED = 20
FOLLOWED_MAX = 100  # a longer list of messages stays as it was when the page was opened
LOOKED_AT_BYTES_MAX = 16 * 1024 * 1024  # of bodies that a list of messages looks at
LIST_MS = 2_000  # between two looks whether a list of messages has changed


class Glimpse(msgspec.Struct, frozen=True):
    """A message as a row of a table. `own_id` is how this queue alone would call it."""

    message: Message
    preview: str
    size: int
    own_id: str
    address: str


async def glimpses(actor: QueueActor, limit: int, after: int | None = None) -> list[Glimpse]:
    """The first ones, or those behind a number; fewer if they are large."""
    found = await looking.glimpses(actor, limit, LOOKED_AT_BYTES_MAX, after)
    return [_glimpse(actor.name, each) for each in found]


def _glimpse(queue: str, seen: looking.Glimpse) -> Glimpse:
    message = seen.message
    address = at("queues", queue, "messages", message.id)
    if message.id != seen.own_id:  # it began elsewhere, so its id does not say where it is
        address += f"?seq={message.seq}"
    shown = preview(message.body, seen.size)
    return Glimpse(message, shown, seen.size, seen.own_id, address)


def moved(actor: QueueActor) -> str:
    """Differs when the messages of a queue may be others, or in other states."""
    info = actor.info()
    return made_of(
        (info.pushed, info.delivered, info.acked, info.nacked, info.expired, info.dead_lettered),
        (info.depth, info.ready, info.scheduled, info.in_flight),
    )


def _claimed(actor: QueueActor) -> str:
    return made_of(sorted(actor.info().claimed.items()))


async def queue(visit: Visit) -> Response:
    return await _page(visit)


async def _page(visit: Visit, refused: NexoError | None = None) -> Response:
    """With what was refused, the settings are as they were written into the form."""
    name = visit.path["name"]
    visit.caller.check_any(ANY, name)
    actor, defined = visit.engine.queue(name), visit.engine.definition(name)
    limit = whole_number(visit.query("peek"), PEEKED, 1, PEEK_MESSAGES_MAX)
    may_peek = visit.caller.may(Action.PEEK, name)
    (row,) = rows_of(visit, [actor])
    sources = visit.house.sampler.dead_letter_queues.sources().get(name, [])
    return await visit.page(
        "queue.html",
        {"glimpses": "queue_messages.html", "claims": "queue_claims.html"},
        200 if refused is None else refused.http_status,
        refused=refused,
        row=row,
        values=_values(visit.engine, actor),
        history=visit.house.sampler.line_of(actor).points.columns(),
        glimpses=await glimpses(actor, limit) if may_peek else [],
        messages_made_of=moved(actor) if limit <= FOLLOWED_MAX else "",
        peek_limit=limit,
        may_peek=may_peek,
        may_push=visit.caller.may(Action.PUSH, name),
        may_manage=visit.caller.may(Action.MANAGE, name),
        fields=queue_fields(defined.settings, visit.form),
        defined=defined,
        sources=visit.known(sources),
        topics=visit.known(visit.engine.topics_of(name)),
        claimed=actor.info().claimed,
        claims_made_of=_claimed(actor),
        now_ms=visit.engine.now_ms(),
    )


async def live_queue(visit: Visit) -> Response:
    name = visit.path["name"]
    visit.caller.check_any(ANY, name)
    actor = visit.engine.queue(name)
    last_s, looked_ms = 0.0, 0
    parts: dict[str, str] = {}

    def frame() -> Frame | None:
        nonlocal last_s, looked_ms, parts
        if visit.engine.queues.get(name) is not actor:
            return None
        last = visit.house.sampler.line_of(actor).points.last
        point = None
        if last and last[0] > last_s:
            last_s, point = last[0], [round(each, 3) for each in last]
        if actor.now_ms() > looked_ms + LIST_MS:
            looked_ms = actor.now_ms()
            parts = {"glimpses": moved(actor), "claims": _claimed(actor)}
        (row,) = rows_of(visit, [actor])
        values = _values(visit.engine, actor) | row.live() | badges(visit)
        return Frame(values, parts, point)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def _values(engine: Engine, actor: QueueActor) -> dict[str, str]:
    """Waits and work are of all that happened since the broker started."""
    meters = engine.meters.queues.get(actor.name)
    told = {"retries": wording.number(meters.retries if meters else 0)}
    for name in ("wait", "work"):
        values = getattr(meters, f"{name}_s") if meters else None
        for key, share in (("p50", 0.5), ("p99", 0.99)):
            has_some = values is not None and values.count
            took_ms = values.quantile(share) * 1000 if values is not None else 0
            told[f"{name}_{key}"] = wording.span(took_ms) if has_some else wording.NOTHING
    return told


async def send(visit: Visit) -> Response:
    name = visit.path["name"]
    visit.caller.check(Action.PUSH, name)
    actor = visit.engine.queue(name)
    batch = batch_of([_body(visit)])
    columns: dict[str, Any] = {}
    priority = whole_number(visit.field("priority"), 0, 0, PRIORITY_MAX)
    if priority:
        columns["priority"] = bytes([priority])
    if (delay_s := as_number(visit.field("delay"), "the delay")) is not None:
        columns["delay_ms"] = [round(delay_s * 1000)]
    if visit.field("group"):
        columns["groups"] = [visit.field("group")]
    if visit.field("deduplication"):
        columns["deduplication_ids"] = [visit.field("deduplication")]
    if attributes := as_pairs(visit.field("attributes")):
        columns["attributes"] = [encode_attributes(attributes)]
    accepted = await actor.push(msgspec.structs.replace(batch, **columns))
    (seq,) = accepted.seqs()
    told = "was there already" if accepted.duplicates else "is in the queue, on disk"
    return visit.back(
        at("queues", name), f"Message {message_id(actor.queue.incarnation, seq)} {told}."
    )


def _body(visit: Visit) -> bytes:
    text = visit.form.get("body", [""])[0]
    if visit.field("encoding") != "hex":
        # A form sends line breaks as two characters; who typed one meant one.
        return text.replace("\r\n", "\n").encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidArgument("the body is not hex", "write pairs of 0-9 and a-f") from None


async def edit(visit: Visit) -> Response:
    name = visit.path["name"]
    try:
        with visit.told("edit_queue", name):
            visit.caller.check(Action.MANAGE, name)
            now = visit.engine.definition(name).settings
            wanted = queue_settings_of(given_queue_settings(visit.form, now), now)
            if wanted.dead_letter != now.dead_letter:
                # Who sends dead letters to a queue of another name pushes there.
                visit.caller.check(Action.PUSH, dead_letter_name(name, wanted.dead_letter))
            await visit.engine.edit_queue(name, wanted)
    except InvalidArgument as error:
        return await _page(visit, error)
    return visit.back(at("queues", name), "The settings hold from now on.")


async def act(visit: Visit) -> Response:
    """Pause, resume, purge or delete."""
    name, action = visit.path["name"], visit.path["action"]
    with visit.told("delete_queue" if action == "delete" else action, name):
        visit.caller.check(Action.MANAGE, name)
        actor = visit.engine.queue(name)
        if action == "purge":
            notice = f"{await actor.purge():,} messages were removed."
        elif action == "delete":
            await visit.engine.delete_queue(name)
            return visit.back(at("queues"), f"Queue {name} was deleted.")
        elif action in ("pause", "resume"):
            await actor.set_paused(action == "pause")
            notice = "Deliveries have stopped." if action == "pause" else "Deliveries go on."
        else:
            raise QueueNotFound(f"there is no {action!r:.40} for a queue")
    return visit.back(at("queues", name), notice)


async def release(visit: Visit) -> Response:
    """Take back what a Spark query holds."""
    name, consumer = visit.path["name"], visit.field("consumer")
    with visit.told("release", name):
        visit.caller.check(Action.MANAGE, name)
        claims = visit.engine.queue(name).claims
        count = await claims.release(consumer, bool(visit.field("dead_letter")))
    return visit.back(at("queues", name), f"{count:,} messages were taken back from {consumer}.")
