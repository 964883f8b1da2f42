"""One message: the form that sends it, its body for people, and its page with its life so far."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

from nexo.access.permissions import Action
from nexo.doors.console.formatting import visible
from nexo.doors.console.pages import HEADERS
from nexo.doors.console.request import as_pairs, at, whole_number
from nexo.engine import chosen, peek
from nexo.engine.hands import Changes
from nexo.engine.life import timeline
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.errors import InvalidArgument, MessageNotFound
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.limits import (
    CONSOLE_BODY_SHOWN_BYTES,
    CONSOLE_HEX_SHOWN_BYTES,
    CONSOLE_PREVIEW_CHARS,
    PEEK_HEAD_BYTES,
)

if TYPE_CHECKING:
    from nexo.doors.console.request import Call
    from nexo.vocabulary.message import Message

_SEQ_MAX = 2**60
_UTF8_TAIL_BYTES = 3  # of a character that was cut in two
_HEX_ROW = 16

View = Literal["json", "text", "hex"]
VIEWS: tuple[View, ...] = ("json", "text", "hex")


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
        timeline=await timeline(
            call.engine,
            name,
            id_text,
            found,
            partial(call.caller.may, Action.PEEK),
            whole_number(seq, -1, 0, _SEQ_MAX),
        ),
        is_dead_letters=name in call.shared.sampler.dead_letter_queues.names(),
        editable=None if found is None else editable(found.body),
        own_id="" if found is None else message_id(incarnation, found.seq),
        seq=f"seq={found.seq}" if found is not None and seq else "",
        may_manage=call.caller.may(Action.MANAGE, name),
    )


async def download(call: Call) -> Response:
    """The body as it is. It is never shown by the browser, whatever it claims to be."""
    found = await _find(call)
    if found is None:
        raise MessageNotFound(f"message {call.path['id']!r:.80} is not in the queue")
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{found.id}.bin"'}
    return Response(found.body, headers=headers, media_type="application/octet-stream")


async def resend(call: Call) -> Response:
    """Send it again with what the form says, in place of the original."""
    name = call.path["name"]
    with call.told():
        found = await _find(call)
        if found is None:
            raise MessageNotFound(f"message {call.path['id']!r:.80} is not in the queue")
        wanted = as_pairs(call.field("attributes"))
        dropped = decode_attributes(found.attributes).keys() - wanted.keys()
        changes = Changes(_body_of_form(call), {**dict.fromkeys(dropped), **wanted})
        to = call.field("to") or None
        hands, check_push = call.engine.hands, call.caller.check_push
        queue, fresh = await hands.resend(name, found.id, changes, to, check_push)
    return call.back(
        at("queues", queue), f"Sent message {fresh} to {queue} and deleted the original."
    )


async def _find(call: Call) -> Message | None:
    """By the number that a link gives, or that is in the id; an id that began in another queue is
    looked for in all of it."""
    actor, wanted = call.engine.queue(call.path["name"]), call.path["id"]
    begun_in, seq = parse_message_id(wanted)
    numbers = [whole_number(call.query("seq"), -1, 0, _SEQ_MAX)]
    if begun_in == actor.incarnation:
        numbers.append(seq)
    for number in numbers:
        found = await peek.find(actor, number) if number >= 0 else None
        if found is not None and found.id == wanted:
            return found
    try:
        return await peek.find(actor, await chosen.find(actor, wanted))
    except MessageNotFound:
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
    head = body[:CONSOLE_BODY_SHOWN_BYTES]
    pretty = _pretty(body) if len(body) <= CONSOLE_BODY_SHOWN_BYTES else None
    text = _text(head, is_cut=len(head) < len(body))
    found = {"json": pretty, "text": text}
    views = tuple(each for each in VIEWS if each == "hex" or found[each] is not None)
    view = next((each for each in views if each == wanted), views[0])
    shown = found.get(view)
    if shown is None:
        head = body[:CONSOLE_HEX_SHOWN_BYTES]
        return ShownBody("hex", views, hex_rows(head), len(body), len(body) - len(head))
    return ShownBody(view, views, visible(shown), len(body), len(body) - len(head))


class Editable(msgspec.Struct, frozen=True):
    """A body as a form takes it: text, or hex. Line breaks of two characters would come back as
    one, so such a text is hex too."""

    text: str
    encoding: Literal["text", "hex"]


def editable(body: bytes) -> Editable | None:
    """None if it is too long for a form."""
    if len(body) > CONSOLE_BODY_SHOWN_BYTES:
        return None
    text = _text(body, is_cut=False)
    if text is None or "\r" in text:
        return Editable(body.hex(" "), "hex")
    return Editable(text, "text")


def preview(body: bytes, size: int | None = None) -> str:
    """The beginning of a body in one line; with its size, if this is not all of it."""
    head = body[:PEEK_HEAD_BYTES]
    is_head = len(head) < (len(body) if size is None else size)
    text = _text(head, is_cut=is_head)
    line = head[:32].hex(" ") if text is None else visible(" ".join(text.split()))
    is_cut = len(line) > CONSOLE_PREVIEW_CHARS or is_head
    return line[:CONSOLE_PREVIEW_CHARS] + ("…" if is_cut else "")


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
