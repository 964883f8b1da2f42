"""The search at the top of each page: queues and topics by a part of their name, and a message by
its id. What is in messages is searched for on the page of their queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from nexo.access.permissions import Action
from nexo.doors.console.request import at
from nexo.engine.listing import steps
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import CONSOLE_FILTER_CHARS_MAX, CONSOLE_ROWS_SHOWN

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call


async def search(call: Call) -> Response:
    text = call.query("q").strip()[:CONSOLE_FILTER_CHARS_MAX]
    found = await _message(call, text)
    if found:
        return RedirectResponse(found, 303)
    queues, topics = await _queues(call, text), _topics(call, text)
    return await call.page(
        "search.html",
        text=text,
        queues=queues[:CONSOLE_ROWS_SHOWN],
        topics=topics[:CONSOLE_ROWS_SHOWN],
        counts=(len(queues), len(topics)),
    )


async def _queues(call: Call, text: str) -> list[str]:
    wanted, found = text.lower(), list[str]()
    async for actors in steps(call.engine.queues):
        found += [each.name for each in actors if wanted in each.name.lower()]
    return call.known(found) if text else []


def _topics(call: Call, text: str) -> list[str]:
    wanted = text.lower()
    return call.known(name for name in call.engine.topics if text and wanted in name.lower())


async def _message(call: Call, text: str) -> str:
    """Where the message with this id began; its page tells where it is now. Empty if there is no
    such queue, or nothing of it may be seen."""
    try:
        incarnation, _ = parse_message_id(text)
    except InvalidArgument:
        return ""
    async for actors in steps(call.engine.queues):
        for actor in actors:
            if actor.incarnation == incarnation and call.caller.may(Action.PEEK, actor.name):
                return at("queues", actor.name, "messages", text.lower())
    return ""
