"""The settings of queues and topics as forms, and forms as settings.

A form carries what it showed beside what was written into it, and only what differs is given: what
somebody else has changed meanwhile stays as they wanted it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.doors.console.request import as_number, as_pairs
from nexo.vocabulary import spoken
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.given import GivenQueueSettings, GivenTopicSettings

if TYPE_CHECKING:
    from nexo.vocabulary.settings import QueueSettings, TopicSettings

    Form = dict[str, list[str]]

Given = TypeVar("Given", GivenQueueSettings, GivenTopicSettings)

# A setting in the order of the page: its unit, and what it does in a few words.
_QUEUE: dict[str, tuple[str, str]] = {
    "visibility_timeout": ("s", "how long the work on a message may take"),
    "retransmit_timeout": ("s", "how long the word that it arrived may take"),
    "max_attempts": ("", "deliveries before it is a dead letter; empty: for ever"),
    "dead_letter": ("", "the queue for dead letters; {name} is this queue"),
    "delay": ("s", "how long a new message waits"),
    "retention": ("s", "how long a message is kept"),
    "max_receive_rate": ("/s", "deliveries a second, at most; empty: no limit"),
    "max_depth": ("", "messages it may hold; empty: no limit"),
    "max_message_bytes": ("B", "largest message allowed, body and attributes together"),
    "deduplication": ("", "what makes two messages the same"),
    "deduplication_scope": ("", "where a repetition is looked for"),
    "deduplication_window": ("s", "for how long a repetition is known"),
    "receive_wait": ("s", "how long an SQS receive waits"),
    "archive": ("", "keep what was pushed as a topic"),
    "archive_retention": ("s", "how long the archive is kept"),
    "events": ("", "tell the life of its messages in nexo.events"),
    "backoff_initial": ("s", "wait before the first retry; all empty: none"),
    "backoff_factor": ("times", "growth from retry to retry"),
    "backoff_max": ("s", "the longest wait"),
    "backoff_jitter": ("", "share of the wait that is spread out, 0 to 1"),
    "tags": ("", "for you and your tools: name=value, a line each"),
}
_TOPIC: dict[str, tuple[str, str]] = {
    "retention_messages": ("", "messages that are kept; empty: no limit"),
    "retention_seconds": ("s", "how long a message is kept; empty: for ever"),
    "retention_bytes": ("B", "bytes that are kept; empty: no limit"),
    "max_message_bytes": ("B", "largest message allowed, body and attributes together"),
}
_ON_OFF = ("on", "off")
_CHOICES = {
    "deduplication": ("off", "id", "content"),
    "deduplication_scope": ("queue", "group"),
    "archive": _ON_OFF,
    "events": _ON_OFF,
}
_WHOLE = (
    "max_attempts",
    "max_depth",
    "max_message_bytes",
    "retention_messages",
    "retention_bytes",
)
_BACKOFF = "backoff_"
WAS = "was_"  # before the name of a field: what it showed


class Field(msgspec.Struct, frozen=True):
    """`was` is what the setting is, `value` what is written into the field."""

    name: str
    value: str
    was: str
    unit: str
    about: str
    kind: str  # number, text, pairs or choice
    choices: tuple[str, ...] = ()


def queue_fields(settings: QueueSettings, form: Form) -> list[Field]:
    """With what was written into them, if the form was sent and could not be taken."""
    return _fields(_QUEUE, spoken.queue_settings(msgspec.to_builtins(settings)), form)


def topic_fields(settings: TopicSettings, form: Form) -> list[Field]:
    return _fields(_TOPIC, spoken.topic_settings(msgspec.to_builtins(settings)), form)


def given_queue_settings(form: Form, now: QueueSettings) -> GivenQueueSettings:
    """What a form changes; what it does not touch is not given."""
    given = _given(_QUEUE, form)
    backoff = {name: given.pop(name) for name in list(given) if name.startswith(_BACKOFF)}
    if backoff:
        told = spoken.queue_settings(msgspec.to_builtins(now)).backoff
        whole = {} if told is None else msgspec.structs.asdict(told)
        whole |= {name.removeprefix(_BACKOFF): value for name, value in backoff.items()}
        whole = {name: value for name, value in whole.items() if value is not None}
        given["backoff"] = whole or None
    return _as(GivenQueueSettings, given)


def changed_dead_letter(form: Form) -> str | None:
    """What a form makes of the setting `dead_letter`; None if it leaves it as it is."""
    return _given({"dead_letter": _QUEUE["dead_letter"]}, form).get("dead_letter")


def given_topic_settings(form: Form) -> GivenTopicSettings:
    return _as(GivenTopicSettings, _given(_TOPIC, form))


def _fields(shown: dict[str, tuple[str, str]], told: Any, form: Form) -> list[Field]:
    fields = []
    for name, (unit, about) in shown.items():
        if name.startswith(_BACKOFF):
            value = getattr(told.backoff, name.removeprefix(_BACKOFF), None)
        else:
            value = getattr(told, name)
        was = _text(form, WAS + name, _plain(value))
        text = _text(form, name, was)
        choices = _CHOICES.get(name, ())
        fields.append(Field(name, text, was, unit, about, _kind(name), choices))
    return fields


def _kind(name: str) -> str:
    if name in _CHOICES:
        return "choice"
    return {"dead_letter": "text", "tags": "pairs"}.get(name, "number")


def _given(shown: dict[str, tuple[str, str]], form: Form) -> dict[str, Any]:
    return {
        name: _value(name, _text(form, name))
        for name in shown
        if name in form and _text(form, name) != _text(form, WAS + name)
    }


def _as(kind: type[Given], given: dict[str, Any]) -> Given:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"these settings do not work: {error}") from None


def _text(form: Form, name: str, default: str = "") -> str:
    """A form sends line breaks as two characters."""
    return form.get(name, [default])[0].replace("\r\n", "\n").strip()


def _value(name: str, text: str) -> Any:
    kind = _kind(name)
    if kind == "pairs":
        return as_pairs(text)
    if kind != "number":
        return text == "on" if _CHOICES.get(name) is _ON_OFF else text
    number = as_number(text, name)
    if number is None or name not in _WHOLE:
        return number
    if not re.fullmatch("[0-9]{1,20}", text):
        raise InvalidArgument(f"{name} is {text!r:.40}, not a whole number")
    return int(text)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return "\n".join(f"{name}={each}" for name, each in value.items())
    return "" if value is None else str(value).removesuffix(".0")
