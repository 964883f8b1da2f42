"""Replies as bytes: the objects of the original protocol, written as it writes them.

The texts of errors are for people and are Italian, as they have been from the start; programs look
at `code`.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.doors.json_udp.datagram import Action, Refusal
from nexo.vocabulary import errors, limits

if TYPE_CHECKING:
    from nexo.doors.json_udp.datagram import Command, Ref
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.types import Part

_TEXTS = {
    errors.Unauthorized.code: "Non autorizzato",
    errors.Forbidden.code: "Non autorizzato",
    errors.RateLimited.code: "Troppe richieste",
    errors.ReadOnly.code: "Sola lettura: disco pieno o guasto",
    errors.NotReady.code: "Server non pronto",
    errors.MessageTooLarge.code: "Payload troppo grande",
    errors.TopicNotFound.code: "Topic non trovato",
    errors.QueueNotFound.code: "Gruppo non trovato",
}
_OTHERWISE = "Richiesta rifiutata"
_TAIL_BYTES = len(', "truncated": true, "next": 9223372036854775808}')

_decode_json = msgspec.json.Decoder().decode


def refusal_of(error: errors.NexoError, ref: Ref | None = None) -> Refusal:
    """What a datagram is told when the broker refuses it."""
    return Refusal(_TEXTS.get(error.code, _OTHERWISE), error.code, ref)


def encode_refusal(refusal: Refusal) -> bytes:
    reply = {"status": "error", "error": refusal.text, "code": refusal.code}
    return _dump(reply, refusal.ref)


def success(action: Action, topic: str, ref: Ref | None = None, **more: Any) -> bytes:
    """What every request that was done is told, and what else there is to tell."""
    return _dump({"status": "success", "action": action, "topic": topic, **more}, ref)


@lru_cache(maxsize=4_096)
def confirmation(action: Action, topic: str) -> bytes:
    """The same for the many that have nothing else to tell."""
    return success(action, topic)


def with_ref(reply: bytes, ref: Ref) -> bytes:
    """A reply that has none yet, with the reference of its request."""
    return b'%b, "ref": %b}' % (reply[:-1], json.dumps(ref).encode())


def encode_message(body: bytes, created_ms: int, **more: Any) -> bytes:
    """One message of a reply. A body that is JSON is shown as such; other text as a string; and
    what is not even text in base64."""
    told = b"".join(b', "%b": %b' % (n.encode(), json.dumps(v).encode()) for n, v in more.items())
    if len(body) > limits.UDP_REPLY_BYTES_MAX:
        return _too_large(len(body), created_ms, told)
    payload, encoding = body, b""
    if not _is_json(body):
        try:
            payload = json.dumps(body.decode()).encode()
        except UnicodeDecodeError:
            payload = b'"%b"' % base64.b64encode(body)
            encoding = b', "encoding": "base64"'
    if len(payload) > limits.UDP_PAYLOAD_BYTES_MAX:
        return _too_large(len(body), created_ms, told)
    return b'{"payload": %b, "timestamp": %b%b%b}' % (
        payload,
        _seconds(created_ms),
        encoding,
        told,
    )


class Page:
    """A reply with messages, as many as fit."""

    def __init__(self, action: Action, topic: str, ref: Ref | None, bytes_max: int) -> None:
        self._head = confirmation(action, topic)[:-1] + b', "messages": ['
        self._ref = b"" if ref is None else b', "ref": %b' % json.dumps(ref).encode()
        self._room = bytes_max - len(self._head) - len(self._ref) - _TAIL_BYTES - 1
        self._messages: list[bytes] = []

    @property
    def room(self) -> int:
        return self._room

    def add(self, message: bytes) -> bool:
        """False if it does not fit: then nothing may follow."""
        size = len(message) + 2
        if size > self._room:
            return False
        self._room -= size
        self._messages.append(message)
        return True

    def encode(self, *, truncated: bool = False, following: int | None = None) -> bytes:
        tail = b', "truncated": true' if truncated else b""
        if following is not None:
            tail += b', "next": %d' % following
        return b"%b%b]%b%b}" % (self._head, b", ".join(self._messages), tail, self._ref)


async def read_page(actor: TopicActor, command: Command, bytes_max: int) -> bytes:
    """The reply to a `get`: what a topic keeps from `since` on, the oldest first, and as much of it
    as fits. Nothing is removed by it."""
    page = Page(Action.GET, command.topic, command.ref, bytes_max)
    offset = command.since or 0
    left = min(command.limit or limits.UDP_GET_MESSAGES_MAX, limits.UDP_GET_MESSAGES_MAX)
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


def _too_large(size: int, created_ms: int, told: bytes) -> bytes:
    """In place of a message that no datagram can carry: it came through another door."""
    return b'{"payload": null, "timestamp": %b, "code": "%b", "size": %d%b}' % (
        _seconds(created_ms),
        errors.MessageTooLarge.code.encode(),
        size,
        told,
    )


def _seconds(time_ms: int) -> bytes:
    return repr(time_ms / 1000).encode()


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        _decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _dump(reply: dict[str, Any], ref: Ref | None) -> bytes:
    if ref is not None:
        reply["ref"] = ref
    return json.dumps(reply).encode()
