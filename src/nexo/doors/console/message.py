"""The page of one message: its body, its facts, and its life so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from nexo.access.permissions import Action
from nexo.doors.console.bodies import shown_body
from nexo.doors.console.rendering import HEADERS
from nexo.doors.console.timeline import timeline
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX

if TYPE_CHECKING:
    from nexo.doors.console.visit import Visit
    from nexo.vocabulary.message import Message


class MessageNotFound(InvalidArgument):
    """It is gone, or too far back to look at."""

    code = "message_not_found"
    http_status = 404


async def message(visit: Visit) -> Response:
    name, id_text = visit.path["name"], visit.path["id"]
    visit.caller.check(Action.PEEK, name)
    parse_message_id(id_text)
    found = await _find(visit)
    return await visit.page(
        "message.html",
        name=name,
        id=id_text,
        message=found,
        body=None if found is None else shown_body(found.body, visit.query("view")),
        attributes={} if found is None else decode_attributes(found.attributes),
        timeline=await timeline(visit.engine, found, name, id_text),
        is_dead_letters=name in visit.house.sampler.dead_letter_queues.names(),
        looked_at=PEEK_MESSAGES_MAX,
        queues=visit.engine.queues,
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
    peeked = await visit.engine.queue(visit.path["name"]).peek(PEEK_MESSAGES_MAX)
    return next((each for each in peeked if each.id == visit.path["id"]), None)
