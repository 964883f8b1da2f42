"""`get`: what a topic keeps, as much of it as fits a datagram. Nothing is removed by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.replies import Page, encode_message
from nexo.vocabulary.limits import UDP_GET_MESSAGES_MAX

if TYPE_CHECKING:
    from nexo.doors.json_udp.datagram import Command
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.types import Part


async def read_page(actor: TopicActor, command: Command, bytes_max: int) -> bytes:
    """The reply: the messages from `since` on, the oldest first."""
    page = Page(Action.GET, command.topic, command.ref, bytes_max)
    offset = command.since or 0
    left = min(command.limit or UDP_GET_MESSAGES_MAX, UDP_GET_MESSAGES_MAX)
    is_cut = False
    while left and not is_cut:
        # At least one message comes, whatever its size: the page sees whether it fits.
        reading = await actor.read(offset, left, bytes_max=max(page.room, 1))
        if not reading.parts:
            offset = reading.next
            break
        for part in reading.parts:
            added = _add(page, part)
            offset, left = part.first + added, left - added
            is_cut = added < part.count
            if is_cut:
                break
    if not left and command.limit is None:
        is_cut = offset < actor.info().end
    is_paging = command.since is not None or command.limit is not None
    return page.encode(truncated=is_cut, following=offset if is_cut or is_paging else None)


def _add(page: Page, part: Part) -> int:
    """Put messages that lie side by side on the page; how many it took."""
    content = part.content
    for added in range(part.count):
        index = part.index + added
        body = bytes(content.payload[content.offsets[index] : content.offsets[index + 1]])
        created_ms = part.created_ms if content.created is None else content.created[index]
        if not page.add(encode_message(body, created_ms)):
            return added
    return part.count
