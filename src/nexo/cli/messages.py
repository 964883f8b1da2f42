"""Messages as documents for programs and as rows for people."""

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexo import Event, Message, PeekedMessage

PREVIEW_CHARS = 60
_PLAIN = ("id", "queue", "priority", "attempts", "group_id", "attributes")
_TIMES = ("created_at", "visible_at", "delayed_until")
_DEAD_LETTER = ("reason", "source", "attempts", "first_failed_at", "last_failed_at")


def message_document(message: "Message | PeekedMessage") -> dict[str, Any]:
    """The client's field names. A body that is not text travels as base64, and says so."""
    text = text_of(message.body)
    document: dict[str, Any] = {name: getattr(message, name) for name in (*_PLAIN, *_TIMES)}
    document["body"] = text if text is not None else base64.b64encode(message.body).decode()
    document["text"] = text
    if text is None:
        document["body_encoding"] = "base64"
    document["state"] = state_of(message)
    letter = message.dead_letter
    document["dead_letter"] = letter and {name: getattr(letter, name) for name in _DEAD_LETTER}
    return document


def event_document(event: "Event") -> dict[str, Any]:
    """The same for an event of a topic."""
    text = text_of(event.body)
    document: dict[str, Any] = {
        "topic": event.topic,
        "offset": event.offset,
        "published_at": event.published_at,
        "attributes": event.attributes,
        "body": text if text is not None else base64.b64encode(event.body).decode(),
        "text": text,
    }
    if text is None:
        document["body_encoding"] = "base64"
    return document


def state_of(message: "Message | PeekedMessage") -> str:
    """Where a message is, in the words of the glossary."""
    return message.state.name.lower()


def text_of(body: bytes) -> str | None:
    """The body as text, if it is any."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def preview(body: bytes) -> str:
    """The beginning of a body on one line."""
    text = text_of(body)
    shown = f"{len(body):,} bytes" if text is None else text
    shown = "".join(each if each.isprintable() else " " for each in shown[: PREVIEW_CHARS * 2])
    return shown if len(shown) <= PREVIEW_CHARS else shown[: PREVIEW_CHARS - 1] + "…"
