"""The settings of a queue as flags: `visibility_timeout` is `--visibility-timeout`, and a part of
`backoff` is `--backoff-initial`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from nexo.cli.parameters import add_parameters, flag, parse_duration
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import parse_size

_PANEL = "Settings of the queue"
_NONE = "none"


class SettingFlag(NamedTuple):
    """A setting in the words of the contract; `takes_none` if `none` switches it off."""

    name: str
    kind: str
    help: str
    takes_none: bool = False


BACKOFF = "backoff_"  # what its four flags begin with

SETTINGS = (
    SettingFlag("visibility_timeout", "duration", "how long the work on a message may take"),
    SettingFlag("retransmit_timeout", "duration", "how long the reception ack may take"),
    SettingFlag("max_attempts", "count", "deliveries before a message is a dead letter", True),
    SettingFlag("dead_letter", "name", "the queue for dead letters; {name} is this queue's name"),
    SettingFlag("delay", "duration", "how long a pushed message waits before it is ready"),
    SettingFlag("retention", "duration", "how long a message is kept"),
    SettingFlag("deduplication", "off|id|content", "what makes two messages the same"),
    SettingFlag("deduplication_window", "duration", "how long a message is remembered for that"),
    SettingFlag("max_receive_rate", "rate", "messages given out a second, at most", True),
    SettingFlag("backoff_initial", "duration", "how long a failed message waits the first time"),
    SettingFlag("backoff_factor", "number", "how much longer with every further failure"),
    SettingFlag("backoff_max", "duration", "how long at most"),
    SettingFlag("backoff_jitter", "number", "the share of the wait that is spread out, 0 to 1"),
    SettingFlag("fifo", "switch", "keep the order inside each group"),
    SettingFlag(
        "max_message_bytes", "size", "largest message allowed, body and attributes together"
    ),
    SettingFlag("max_depth", "count", "messages in the queue, at most", True),
    SettingFlag("archive", "switch", "keep what was pushed readable as a topic"),
    SettingFlag("archive_retention", "duration", "how long the archive keeps it"),
    SettingFlag("events", "switch", "tell the life of its messages in nexo.events"),
    SettingFlag("receive_wait", "duration", "how long an SQS receive waits that does not say"),
    SettingFlag("deduplication_scope", "queue|group", "where a message may not be repeated"),
)

_METAVARS = {"duration": "DURATION", "rate": "N", "count": "N", "number": "X", "size": "SIZE"}


class _Given(NamedTuple):
    """What a flag was given, so that `none` differs from a flag that was not given."""

    value: Any


def takes_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of all settings; its first parameter becomes what they say."""
    return add_parameters(function, [_flag(each) for each in SETTINGS], _gather)


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


def _flag(setting: SettingFlag) -> inspect.Parameter:
    dashed = setting.name.replace("_", "-")
    told = setting.help[:1].upper() + setting.help[1:] + ("; none: no limit" * setting.takes_none)
    if setting.kind == "switch":
        switch = typer.Option(f"--{dashed}/--no-{dashed}", help=told, rich_help_panel=_PANEL)
        return flag(setting.name, Annotated[bool | None, switch])
    option = typer.Option(
        f"--{dashed}",
        metavar=_METAVARS.get(setting.kind, setting.kind.upper()),
        parser=_parser(setting),
        help=told,
        show_default=False,
        rich_help_panel=_PANEL,
    )
    return flag(setting.name, Annotated[Any, option])


def _parser(setting: SettingFlag) -> Callable[[str], _Given]:
    read = _READERS.get(setting.kind, str)

    def parse(text: str) -> _Given:
        if setting.takes_none and text.lower() == _NONE:
            return _Given(None)
        try:
            return _Given(read(text))
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}; {error.hint}") from None
        except ValueError:
            wanted = "a whole number" if setting.kind == "count" else "a number"
            none = " or none" if setting.takes_none else ""
            raise typer.BadParameter(f"{text!r:.40} is not {wanted}{none}") from None

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            wanted = f"{', '.join(words[:-1])} or {words[-1]}"
            raise typer.BadParameter(f"{text!r:.40} is not {wanted}")
        return text

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "duration": parse_duration,
    "count": int,
    "rate": float,
    "number": float,
    "size": parse_size,
    "off|id|content": _one_of("off", "id", "content"),
    "queue|group": _one_of("queue", "group"),
}
