"""The settings of queues and topics as forms, and forms as settings.

A form carries what it showed beside what was written into it, and only what differs is given: what
somebody else has changed meanwhile stays as they wanted it. Durations and sizes are written as
people do, `2d` and `64 MB`, and every field that is wrong is told of at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.doors.console.request import as_number, as_pairs
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.settings import (
    BACKOFF,
    FLAT_QUEUE_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
    user_queue_settings,
    user_topic_settings,
)
from nexo.vocabulary.units import parse_duration, parse_size, show_duration, show_size
from nexo.vocabulary.user_settings import GivenQueueSettings, GivenTopicSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.vocabulary.settings import QueueSettings, TopicSettings

    Form = dict[str, list[str]]

Given = TypeVar("Given", GivenQueueSettings, GivenTopicSettings)

# A queue stays as it was created, standard or FIFO, and what SQS clients store is theirs.
_QUEUE = tuple(each for each in FLAT_QUEUE_SETTINGS if each.name not in ("fifo", "aws"))
_UNITS = {"rate": "/s"}
_FIELD_KINDS = {
    "duration": "text",
    "size": "text",
    "name": "text",
    "pairs": "pairs",
    "choice": "choice",
    "switch": "choice",
}
_WRITTEN = {"duration": " (10s, 5m, 2d)", "size": " (64 KB, 1 MB)"}
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
    return _fields(_QUEUE, user_queue_settings(settings), form)


def topic_fields(settings: TopicSettings, form: Form) -> list[Field]:
    return _fields(TOPIC_SETTINGS, user_topic_settings(settings), form)


def given_queue_settings(form: Form, now: QueueSettings) -> GivenQueueSettings:
    """What a form changes; what it does not touch is not given."""
    given = _given(_QUEUE, form)
    backoff = {name: given.pop(name) for name in list(given) if name.startswith(BACKOFF)}
    if backoff:
        told = user_queue_settings(now).backoff
        whole = {} if told is None else msgspec.structs.asdict(told)
        whole |= {name.removeprefix(BACKOFF): value for name, value in backoff.items()}
        whole = {name: value for name, value in whole.items() if value is not None}
        given["backoff"] = whole or None
    return _as(GivenQueueSettings, given)


def changed_dead_letter(form: Form) -> str | None:
    """What a form makes of the setting `dead_letter`; None if it leaves it as it is."""
    settings = [each for each in _QUEUE if each.name == "dead_letter"]
    return _given(settings, form).get("dead_letter")


def given_topic_settings(form: Form) -> GivenTopicSettings:
    return _as(GivenTopicSettings, _given(TOPIC_SETTINGS, form))


def _fields(settings: Sequence[Setting], told: Any, form: Form) -> list[Field]:
    fields = []
    for each in settings:
        if each.name.startswith(BACKOFF):
            value = getattr(told.backoff, each.name.removeprefix(BACKOFF), None)
        else:
            value = getattr(told, each.name)
        was = _text(form, WAS + each.name, _plain(value, each.kind))
        fields.append(
            Field(
                name=each.name,
                value=_text(form, each.name, was),
                was=was,
                unit=_UNITS.get(each.kind, ""),
                about=_about(each),
                kind=_FIELD_KINDS.get(each.kind, "number"),
                choices=("on", "off") if each.kind == "switch" else each.choices,
            )
        )
    return fields


def _about(setting: Setting) -> str:
    """What a setting does, and what an empty field means."""
    if setting.name.startswith(BACKOFF):
        return f"{setting.about}; all four empty: retry at once"
    written = _WRITTEN.get(setting.kind, "")
    return setting.about + written + ("; empty: no limit" if setting.takes_none else "")


def _given(settings: Sequence[Setting], form: Form) -> dict[str, Any]:
    given: dict[str, Any] = {}
    wrong = []
    for each in settings:
        text = _text(form, each.name)
        if each.name not in form or text == _text(form, WAS + each.name):
            continue
        try:
            given[each.name] = value = _value(each, text)
            _check_range(each, value)
        except InvalidArgument as error:
            wrong.append(f"{each.name}: {error}")
    if wrong:
        raise InvalidArgument("; ".join(wrong))
    return given


def _as(kind: type[Given], given: dict[str, Any]) -> Given:
    wrong = []
    for name, value in given.items():
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError as error:
            wrong.append(f"{name}: {str(error).partition(' - at ')[0]}")
    if wrong:
        raise InvalidArgument("; ".join(wrong).replace("`", ""))
    return msgspec.convert(given, kind)


def _text(form: Form, name: str, default: str = "") -> str:
    """A form sends line breaks as two characters."""
    return form.get(name, [default])[0].replace("\r\n", "\n").strip()


def _value(setting: Setting, text: str) -> Any:
    if setting.kind == "pairs":
        return as_pairs(text)
    if setting.kind == "switch":
        return text == "on"
    if setting.kind in ("name", "choice"):
        return text
    if text and setting.kind == "duration":
        return parse_duration(text)
    if text and setting.kind == "size":
        return parse_size(text)
    number = as_number(text, "it")
    if number is None or setting.kind != "count":
        return number
    if not re.fullmatch("[0-9]{1,20}", text):
        raise InvalidArgument(f"{text!r:.40} is not a whole number")
    return int(text)


def _check_range(setting: Setting, value: Any) -> None:
    """Here, not at the broker, which tells of one field at a time."""
    low, high = setting.low, setting.high
    if setting.kind == "name" or low is None or high is None or value is None:
        return
    if not low <= value <= high:
        shown = [_plain(each, setting.kind) for each in (value, low, high)]
        raise InvalidArgument(f"{shown[0]} is out of range, allowed is {shown[1]} to {shown[2]}")


def _plain(value: Any, kind: str) -> str:
    if value is not None and kind == "duration":
        shown = show_duration(value)
        return shown if parse_duration(shown) == value else f"{value:.12g}s"
    if value is not None and kind == "size":
        shown = show_size(value)
        return shown if parse_size(shown) == value else str(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return "\n".join(f"{name}={each}" for name, each in value.items())
    return "" if value is None else str(value).removesuffix(".0")
