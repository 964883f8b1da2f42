"""One message: the form that sends it, its body for people, its page, and its life so far.

The life is told from `nexo.events`: attempt by attempt, with who had it and why it failed. The
events of all queues are one topic, so its own are looked for where they can be: around the times
that the message itself tells of, and among the newest. On a busy broker that is a small part of
all, and the page says so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

from nexo.access.permissions import Action
from nexo.doors.console.formatting import visible
from nexo.doors.console.pages import HEADERS
from nexo.doors.console.request import as_pairs, whole_number
from nexo.engine import peek
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.events import Event, decode_event
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.limits import PEEK_HEAD_BYTES, PEEK_MESSAGES_MAX
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.start import Start

if TYPE_CHECKING:
    from nexo.doors.console.request import Call
    from nexo.engine.engine import Engine
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.message import Message

LOOKED_AT_BYTES_MAX = 16 * 1024 * 1024  # of bodies, in search of an id that began elsewhere
_SEQ_MAX = 2**60
BODY_SHOWN_BYTES = 64 * 1024  # the rest is for the download
HEX_SHOWN_BYTES = 4 * 1024
PREVIEW_CHARS = 120
_UTF8_TAIL_BYTES = 3  # of a character that was cut in two
_HEX_ROW = 16

View = Literal["json", "text", "hex"]
VIEWS: tuple[View, ...] = ("json", "text", "hex")

WINDOW = 20_000  # events that are looked at around a time
GONE_WINDOW = 100_000  # of a message that is gone and cannot say when: the newest
EVENTS_SHOWN_MAX = 200
_STEP = 2_000  # events that are looked at before others get their turn
_AROUND = "around its birth, its deliveries and failures, and the newest"


class MessageNotFound(InvalidArgument):
    """It is gone, or too far back to look at."""

    code = "message_not_found"
    http_status = 404


async def message(call: Call) -> Response:
    name, id_text = call.path["name"], call.path["id"]
    parse_message_id(id_text)
    found = await _find(call)
    seq = call.query("seq")
    incarnation = call.engine.queue(name).incarnation
    return await call.page(
        "message.html",
        name=name,
        id=id_text,
        message=found,
        body=None if found is None else shown_body(found.body, call.query("view")),
        attributes={} if found is None else decode_attributes(found.attributes),
        timeline=await timeline(call, found, whole_number(seq, -1, 0, _SEQ_MAX)),
        is_dead_letters=name in call.shared.sampler.dead_letter_queues.names(),
        looked_at=PEEK_MESSAGES_MAX,
        own_id="" if found is None else message_id(incarnation, found.seq),
        seq=f"seq={found.seq}" if found is not None and seq else "",
        may_manage=call.caller.may(Action.MANAGE, name),
    )


async def download(call: Call) -> Response:
    """The body as it is. It is never shown by the browser, whatever it claims to be."""
    found = await _find(call)
    if found is None:
        raise MessageNotFound(f"message {call.path['id']!r:.80} is not among the first ones")
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{found.id}.bin"'}
    return Response(found.body, headers=headers, media_type="application/octet-stream")


async def _find(call: Call) -> Message | None:
    """By the number that a link gives, or that is in the id; an id that began in another queue is
    looked for among the first messages."""
    actor, wanted = call.engine.queue(call.path["name"]), call.path["id"]
    begun_in, seq = parse_message_id(wanted)
    numbers = [whole_number(call.query("seq"), -1, 0, _SEQ_MAX)]
    if begun_in == actor.incarnation:
        numbers.append(seq)
    for number in numbers:
        found = await peek.find(actor, number) if number >= 0 else None
        if found is not None and found.id == wanted:
            return found
    for seen in await peek.glimpses(actor, PEEK_MESSAGES_MAX, LOOKED_AT_BYTES_MAX):
        if seen.message.id == wanted:
            return await peek.find(actor, seen.message.seq)
    return None


def batch_of_form(call: Call, **columns: Any) -> Batch:
    """The one message that a form sends, with the attributes that it names."""
    if attributes := as_pairs(call.field("attributes")):
        columns["attributes"] = [encode_attributes(attributes)]
    return msgspec.structs.replace(batch_of([_body_of_form(call)]), **columns)


def _body_of_form(call: Call) -> bytes:
    text = call.form.get("body", [""])[0]
    if call.field("encoding") != "hex":
        # A form sends line breaks as two characters; who typed one meant one.
        return text.replace("\r\n", "\n").encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidArgument("the body is not hex", "write pairs of 0-9 and a-f") from None


# -- The body: as JSON if it is, as text if it can be, else as hex -------------------------------


class ShownBody(msgspec.Struct, frozen=True):
    """`views` are the ways in which it can be shown; `cut` is how many bytes are left out."""

    view: View
    views: tuple[View, ...]
    text: str
    size: int
    cut: int


def shown_body(body: bytes, wanted: str = "") -> ShownBody:
    head = body[:BODY_SHOWN_BYTES]
    pretty = _pretty(body) if len(body) <= BODY_SHOWN_BYTES else None
    text = _text(head, is_cut=len(head) < len(body))
    found = {"json": pretty, "text": text}
    views = tuple(each for each in VIEWS if each == "hex" or found[each] is not None)
    view = next((each for each in views if each == wanted), views[0])
    shown = found.get(view)
    if shown is None:
        head = body[:HEX_SHOWN_BYTES]
        return ShownBody("hex", views, hex_rows(head), len(body), len(body) - len(head))
    return ShownBody(view, views, visible(shown), len(body), len(body) - len(head))


def preview(body: bytes, size: int | None = None) -> str:
    """The beginning of a body in one line; with its size, if this is not all of it."""
    head = body[:PEEK_HEAD_BYTES]
    is_head = len(head) < (len(body) if size is None else size)
    text = _text(head, is_cut=is_head)
    line = head[:32].hex(" ") if text is None else visible(" ".join(text.split()))
    is_cut = len(line) > PREVIEW_CHARS or is_head
    return line[:PREVIEW_CHARS] + ("…" if is_cut else "")


def hex_rows(body: bytes) -> str:
    rows = []
    for start in range(0, len(body), _HEX_ROW):
        row = body[start : start + _HEX_ROW]
        letters = "".join(chr(each) if 32 <= each < 127 else "·" for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {letters}")
    return "\n".join(rows)


def _pretty(body: bytes) -> str | None:
    """Laid out anew without being read as values: numbers stay as they were written."""
    if not body.lstrip().startswith((b"{", b"[")):
        return None
    try:
        body.decode()  # the layout does not look as closely
        msgspec.json.decode(body, type=msgspec.Raw)
        return msgspec.json.format(body, indent=2).decode()
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def _text(head: bytes, is_cut: bool) -> str | None:
    for tail in range(_UTF8_TAIL_BYTES + 1 if is_cut else 1):
        try:
            text = head[: len(head) - tail].decode()
        except UnicodeDecodeError:
            continue
        return None if "\x00" in text else text
    return None


# -- The life so far -----------------------------------------------------------------------------


class Timeline(msgspec.Struct, frozen=True):
    """`why` says what may be missing, if something may be."""

    events: list[Event]
    why: str = ""


class Lives(msgspec.Struct, frozen=True):
    """The queues that a message has been in, with its number in each. `hidden` is whether it was in
    one that is not for the caller to see."""

    known: list[tuple[str, int]]
    hidden: bool


async def timeline(call: Call, message: Message | None, seq: int = -1) -> Timeline:
    """Of a message that is in the queue, or of one that was: then its id tells where it began, and
    `seq`, unless it is negative, what number it had here."""
    engine, lives = call.engine, _lives(call, message, seq)
    if not lives.known:
        if lives.hidden:
            return Timeline([], "Your token may not peek into the queue in which it began.")
        return Timeline([], "The queue in which this message began is gone, and with it its tale.")
    if EVENTS_TOPIC not in engine.topics:
        return Timeline([], "This broker does not keep nexo.events.")
    if not any(_tells(engine, name) for name, _ in lives.known):
        return Timeline([], "This queue does not tell events: its setting `events` is off.")
    topic = engine.topic(EVENTS_TOPIC)
    ranges = await _ranges(topic, message)
    found = []
    for start, end in ranges:
        found += await _read(topic, start, end, lives.known)
    why = _why(topic, message, ranges, found)
    if lives.hidden:
        why += " Your token may not peek into the queue in which it began."
    return Timeline(found[:EVENTS_SHOWN_MAX], why.strip())


def _lives(call: Call, message: Message | None, seq: int) -> Lives:
    """A redriven message has a number of its own in the queue it came back to, which only that
    queue knows while it is there."""
    queue, queues = call.path["name"], call.engine.queues
    begun_in, first_seq = parse_message_id(call.path["id"])
    began = next((n for n, actor in queues.items() if actor.incarnation == begun_in), None)
    known: list[tuple[str, int]] = []
    hidden = False
    if began is not None:
        hidden = not call.caller.may(Action.PEEK, began)
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
        return [(max(info.start, info.end - GONE_WINDOW), info.end)]
    letter = message.dead_letter
    times = [message.first_delivered_ms]
    if letter is not None:
        times += [letter.first_failed_ms, letter.last_failed_ms]
    born = await topic.offset_of(Start(time_ms=max(1, message.created_ms - 1)))
    wanted = [(born, born + WINDOW), (info.end - WINDOW, info.end)]
    for time_ms in filter(None, times):
        # An event is published when it has happened, and what led to it shortly before.
        offset = await topic.offset_of(Start(time_ms=time_ms))
        wanted.append((offset - WINDOW // 2, offset + WINDOW // 2))
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
        reading = await topic.read(offset, min(_STEP, end - offset))
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
        return f"Only the newest {read:,} events of all queues were looked at."
    if message is not None and len(ranges) > 1:
        kept = ranges[-1][1] - first
        return f"{read:,} of the {kept:,} events since its birth were looked at: {_AROUND}."
    begins = found and found[0].kind == "pushed"
    if not begins and info.start > 0:
        return "What happened before is no longer kept in nexo.events."
    return ""


def _is_of(event: Event, lives: list[tuple[str, int]]) -> bool:
    return any(
        event.queue == name and event.first_seq <= seq < event.first_seq + event.count
        for name, seq in lives
    )
