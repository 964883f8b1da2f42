"""The page of one message: its body, its facts, and its life so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from nexo.access.permissions import Action
from nexo.doors.console.bodies import shown_body
from nexo.doors.console.rendering import HEADERS
from nexo.doors.console.timeline import timeline
from nexo.doors.console.visit import whole_number
from nexo.engine import looking
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX

if TYPE_CHECKING:
    from nexo.doors.console.visit import Visit
    from nexo.vocabulary.message import Message


LOOKED_AT_BYTES_MAX = 16 * 1024 * 1024  # of bodies, in search of an id that began elsewhere
_SEQ_MAX = 2**60


class MessageNotFound(InvalidArgument):
    """It is gone, or too far back to look at."""

    code = "message_not_found"
    http_status = 404


async def message(visit: Visit) -> Response:
    name, id_text = visit.path["name"], visit.path["id"]
    visit.caller.check(Action.PEEK, name)
    parse_message_id(id_text)
    found = await _find(visit)
    seq = visit.query("seq")
    incarnation = visit.engine.queue(name).queue.incarnation
    return await visit.page(
        "message.html",
        name=name,
        id=id_text,
        message=found,
        body=None if found is None else shown_body(found.body, visit.query("view")),
        attributes={} if found is None else decode_attributes(found.attributes),
        timeline=await timeline(visit, found, whole_number(seq, -1, 0, _SEQ_MAX)),
        is_dead_letters=name in visit.house.sampler.dead_letter_queues.names(),
        looked_at=PEEK_MESSAGES_MAX,
        own_id="" if found is None else message_id(incarnation, found.seq),
        seq=f"seq={found.seq}" if found is not None and seq else "",
        may_manage=visit.caller.may(Action.MANAGE, name),
    )


async def download(visit: Visit) -> Response:
    """The body as it is. It is never shown by the browser, whatever it claims to be."""
    visit.caller.check(Action.PEEK, visit.path["name"])
    found = await _find(visit)
    if found is None:
        raise MessageNotFound(f"message {visit.path['id']!r:.80} is not among the first ones")
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{found.id}.bin"'}
    return Response(found.body, headers=headers, media_type="application/octet-stream")


async def _find(visit: Visit) -> Message | None:
    """By the number that a link gives, or that is in the id; an id that began in another queue is
    looked for among the first messages."""
    actor, wanted = visit.engine.queue(visit.path["name"]), visit.path["id"]
    begun_in, seq = parse_message_id(wanted)
    numbers = [whole_number(visit.query("seq"), -1, 0, _SEQ_MAX)]
    if begun_in == actor.queue.incarnation:
        numbers.append(seq)
    for number in numbers:
        found = await looking.find(actor, number) if number >= 0 else None
        if found is not None and found.id == wanted:
            return found
    for seen in await looking.glimpses(actor, PEEK_MESSAGES_MAX, LOOKED_AT_BYTES_MAX):
        if seen.message.id == wanted:
            return await looking.find(actor, seen.message.seq)
    return None
