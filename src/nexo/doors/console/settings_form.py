"""The settings of a queue as a form, and a form as settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary import spoken
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.given import GivenQueueSettings

if TYPE_CHECKING:
    from nexo.vocabulary.settings import QueueSettings

# A setting in the order of the page: its unit, and what it does in a few words.
SETTINGS_SHOWN: dict[str, tuple[str, str]] = {
    "visibility_timeout": ("s", "how long the work on a message may take"),
    "retransmit_timeout": ("s", "how long the word that it arrived may take"),
    "max_attempts": ("", "deliveries before it is a dead letter; empty: for ever"),
    "dead_letter": ("", "the queue for dead letters; {name} is this queue"),
    "delay": ("s", "how long a new message waits"),
    "retention": ("s", "how long a message is kept"),
    "max_receive_rate": ("/s", "deliveries a second, at most; empty: no limit"),
    "max_depth": ("", "messages it may hold; empty: no limit"),
    "max_message_bytes": ("B", "the largest body"),
    "deduplication": ("", "what makes two messages the same"),
    "deduplication_window": ("s", "for how long a repetition is known"),
    "receive_wait": ("s", "how long an SQS receive waits"),
    "archive": ("", "keep what was pushed as a topic"),
    "archive_retention": ("s", "how long the archive is kept"),
    "events": ("", "tell the life of its messages in nexo.events"),
}
BACKOFF_SHOWN: dict[str, tuple[str, str]] = {
    "initial": ("s", "wait before the first retry; all empty: none"),
    "factor": ("times", "growth from retry to retry"),
    "max": ("s", "the longest wait"),
    "jitter": ("", "share of the wait that is spread out, 0 to 1"),
}
_CHOICES = {"deduplication": ("off", "id", "content")}
_SWITCHES = ("archive", "events")
_TEXTS = ("dead_letter", "deduplication")
_WHOLE = ("max_attempts", "max_depth", "max_message_bytes")


class Field(msgspec.Struct, frozen=True):
    name: str
    value: str
    unit: str
    about: str
    kind: str  # number, text, choice or switch
    choices: tuple[str, ...] = ()


def settings_fields(settings: QueueSettings) -> list[Field]:
    told = spoken.queue_settings(msgspec.to_builtins(settings))
    fields = []
    for name, (unit, about) in SETTINGS_SHOWN.items():
        value = getattr(told, name)
        kind = "switch" if name in _SWITCHES else "choice" if name in _CHOICES else "number"
        if name in _TEXTS and kind == "number":
            kind = "text"
        text = ("on" if value else "off") if kind == "switch" else _plain(value)
        choices = _CHOICES.get(name, ("on", "off") if kind == "switch" else ())
        fields.append(Field(name, text, unit, about, kind, choices))
    for name, (unit, about) in BACKOFF_SHOWN.items():
        value = getattr(told.backoff, name) if told.backoff is not None else None
        fields.append(Field(f"backoff_{name}", _plain(value), unit, about, "number"))
    return fields


def given_settings(form: dict[str, list[str]]) -> GivenQueueSettings:
    """What a form gives; a field that it does not have stays as it is."""
    given: dict[str, Any] = {}
    for name in SETTINGS_SHOWN:
        if name in form:
            text = form[name][0].strip()
            given[name] = _value(name, text)
    backoff = {
        name: _number(f"backoff_{name}", form[f"backoff_{name}"][0].strip())
        for name in BACKOFF_SHOWN
        if form.get(f"backoff_{name}", [""])[0].strip()
    }
    if "backoff_initial" in form:
        given["backoff"] = backoff or None
    try:
        return msgspec.convert(given, GivenQueueSettings)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"these settings do not work: {error}") from None


def _value(name: str, text: str) -> Any:
    if name in _SWITCHES:
        return text == "on"
    if name in _TEXTS:
        return text
    return _number(name, text) if text else None


def _number(name: str, text: str) -> float:
    try:
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        raise InvalidArgument(f"{name} is {text!r:.40}, not a number") from None


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:g}"
        if isinstance(value, float) and abs(value) < 1e6
        else str(value).removesuffix(".0")
    )
