"""The settings of queues and topics as flags: `visibility_timeout` is `--visibility-timeout`, and a
part of `backoff` is `--backoff-initial`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from nexo.cli.parameters import add_parameters, flag, parse_duration
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.settings import BACKOFF, FLAT_QUEUE_SETTINGS, TOPIC_SETTINGS, Setting
from nexo.vocabulary.units import parse_size

_NONE = "none"

QUEUE_FLAGS = tuple(each for each in FLAT_QUEUE_SETTINGS if each.kind != "pairs")
TOPIC_FLAGS = tuple(each for each in TOPIC_SETTINGS if each.kind != "pairs")

_METAVARS = {"duration": "DURATION", "rate": "N", "count": "N", "number": "X", "size": "SIZE"}
_READERS: dict[str, Callable[[str], Any]] = {
    "duration": parse_duration,
    "count": int,
    "rate": float,
    "number": float,
    "size": parse_size,
}


class _Given(NamedTuple):
    """What a flag was given, so that `none` differs from a flag that was not given."""

    value: Any


def takes_queue_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of all settings; its first parameter becomes what they say."""
    flags = [_flag(each, "Settings of the queue") for each in QUEUE_FLAGS]
    return add_parameters(function, flags, _gather)


def takes_topic_settings(function: Callable[..., None]) -> Callable[..., None]:
    flags = [_flag(each, "Settings of the topic") for each in TOPIC_FLAGS]
    return add_parameters(function, flags, _gather)


def _gather(given: dict[str, Any]) -> dict[str, Any]:
    """Settings as the client takes them: the parts of the backoff under one name."""
    settings: dict[str, Any] = {}
    backoff: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        plain = value.value if isinstance(value, _Given) else value
        if name.startswith(BACKOFF):
            backoff[name.removeprefix(BACKOFF)] = plain
        else:
            settings[name] = plain
    return {**settings, "backoff": backoff} if backoff else settings


def _flag(setting: Setting, panel: str) -> inspect.Parameter:
    dashed = setting.name.replace("_", "-")
    about = setting.about[:1].upper() + setting.about[1:]
    about += "; none: no limit" * setting.takes_none
    if setting.kind == "switch":
        switch = typer.Option(f"--{dashed}/--no-{dashed}", help=about, rich_help_panel=panel)
        return flag(setting.name, Annotated[bool | None, switch])
    metavar = "|".join(setting.choices).upper() or setting.kind.upper()
    option = typer.Option(
        f"--{dashed}",
        metavar=_METAVARS.get(setting.kind, metavar),
        parser=_parser(setting),
        help=about,
        show_default=False,
        rich_help_panel=panel,
    )
    return flag(setting.name, Annotated[Any, option])


def _parser(setting: Setting) -> Callable[[str], _Given]:
    read = _READERS.get(setting.kind, str)

    def parse(text: str) -> _Given:
        if setting.takes_none and text.lower() == _NONE:
            return _Given(None)
        if setting.choices and text not in setting.choices:
            *others, last = setting.choices
            raise typer.BadParameter(f"{text!r:.40} is not {', '.join(others)} or {last}")
        try:
            return _Given(read(text))
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}; {error.hint}") from None
        except ValueError:
            wanted = "a whole number" if setting.kind == "count" else "a number"
            none = " or none" if setting.takes_none else ""
            raise typer.BadParameter(f"{text!r:.40} is not {wanted}{none}") from None

    return parse
