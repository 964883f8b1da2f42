"""What commands take, in the form that typer reads: flags that many of them share, values as people
write them, names that the shell completes, and the settings of queues and topics as flags:
`visibility_timeout` is `--visibility-timeout`, and a part of `backoff` is `--backoff-initial`."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from nexo.vocabulary import units
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.settings import BACKOFF, FLAT_QUEUE_SETTINGS, TOPIC_SETTINGS, Setting

if TYPE_CHECKING:
    from nexo import Client

Value = TypeVar("Value")

_QUICK_S = 1.0  # completion takes only what a broker says at once


def command_group(name: str, help: str) -> typer.Typer:
    """A command that only has subcommands: alone, it says which."""
    app = typer.Typer(name=name, help=help)

    @app.callback(invoke_without_command=True, help=help)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def add_parameters(
    function: Callable[..., Any],
    added: Sequence[inspect.Parameter],
    gather: Callable[[dict[str, Any]], Any],
) -> Callable[..., Any]:
    """A command with further flags. `gather` makes one value of what they were given, and that is
    what the function gets in place of its first parameter."""
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    parameters = [*rest, *added]

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        gathered = gather({each.name: values.pop(each.name) for each in added})
        return function(**{first.name: gathered}, **values)

    # typer reads the signature and the annotations, both without the first parameter.
    del command.__dict__["__wrapped__"]
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def flag(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    """A parameter that is only ever given by its flag."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parser(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """For typer: what it refuses is wrong usage."""

    @functools.wraps(parse)
    def read(text: str) -> Value:
        try:
            return parse(str(text))
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}; {error.hint}") from None

    return read


parse_duration = _parser(units.parse_duration)


@_parser
def parse_file_size(text: str) -> int:
    """A size that a file can have."""
    size = units.parse_size(text)
    if size < 1:
        raise InvalidArgument(f"{text!r:.40} is too small", "write 1MB or more, such as 128MB")
    return size


@_parser
def parse_moment(text: str) -> units.Moment:
    """A time: 2026-05-31, 2026-05-31T14:30 (UTC unless it says so), or 2h for so long ago."""
    return units.parse_moment(text, datetime.now(UTC))


@_parser
def parse_start(text: str) -> str | int | datetime:
    """Where to begin in a topic. Digits alone are an offset; all else has to be a time."""
    text = text.strip()
    if text in ("latest", "earliest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        return units.parse_moment(text, datetime.now(UTC)).at
    except InvalidArgument:
        raise InvalidArgument(
            f"{text!r:.40} is not a valid start position",
            "use latest, earliest, an offset, 10m for ten minutes ago, or a time such as "
            "2026-05-31T14:30 (UTC)",
        ) from None


def attributes_of(given: Iterable[str], flag: str = "--attribute") -> dict[str, str] | None:
    """What flags of the form name=value say; None if nothing."""
    attributes = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidArgument(f"{each!r:.80} is not NAME=VALUE", f"write {flag} name=value")
        attributes[name] = value
    return attributes or None


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """The queues that begin like this; none if no broker answers quickly."""
    return _names(context, incomplete, lambda client: [each.name for each in client.queues()])


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin like this; none if no broker answers quickly."""
    return _names(context, incomplete, lambda client: [each.name for each in client.topics()])


def _names(
    context: typer.Context, incomplete: str, listing: "Callable[[Client], Iterable[str]]"
) -> list[str]:
    """Those of a listing that begin like this."""
    import nexo
    from nexo.cli.session import Session, with_context
    from nexo.vocabulary.errors import NexoError

    names = ("url", "token", "tls_ca")
    try:
        given = with_context({name: context.params.get(name) for name in names})
        url, token = given["url"], given["token"]
        session = Session(url, token, json=False, tls_ca=given["tls_ca"])
        session.require_broker()
        with nexo.connect(url, token=token, timeout=_QUICK_S, tls_ca=session.tls_ca) as client:
            found = list(listing(client))
    except NexoError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def queue_argument(help: str = "Name of the queue.") -> Any:
    return typer.Argument(
        metavar="QUEUE", help=help, show_default=False, autocompletion=queue_names
    )


def topic_argument(help: str = "Name of the topic.") -> Any:
    return typer.Argument(
        metavar="TOPIC", help=help, show_default=False, autocompletion=topic_names
    )


Queue = Annotated[str, queue_argument()]
Topic = Annotated[str, topic_argument()]

_NONE = "none"

QUEUE_FLAGS = tuple(each for each in FLAT_QUEUE_SETTINGS if each.kind != "pairs")
TOPIC_FLAGS = tuple(each for each in TOPIC_SETTINGS if each.kind != "pairs")

_METAVARS = {"duration": "DURATION", "rate": "N", "count": "N", "number": "X", "size": "SIZE"}
_READERS: dict[str, Callable[[str], Any]] = {
    "duration": parse_duration,
    "count": int,
    "rate": float,
    "number": float,
    "size": units.parse_size,
}


class _Given(NamedTuple):
    """What a flag was given, so that `none` differs from a flag that was not given."""

    value: Any


def takes_queue_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of all settings; its first parameter becomes what they say."""
    flags = [_setting_flag(each, "Queue settings") for each in QUEUE_FLAGS]
    return add_parameters(function, flags, _gather)


def takes_topic_settings(function: Callable[..., None]) -> Callable[..., None]:
    flags = [_setting_flag(each, "Topic settings") for each in TOPIC_FLAGS]
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


def _setting_flag(setting: Setting, panel: str) -> inspect.Parameter:
    dashed = setting.name.replace("_", "-")
    about = setting.about[:1].upper() + setting.about[1:]
    about += "; none: no limit" * setting.takes_none
    if setting.kind == "switch":
        switch = typer.Option(f"--{dashed}/--no-{dashed}", help=about, rich_help_panel=panel)
        return flag(setting.name, Annotated[bool | None, switch])
    metavar = "|".join(setting.choices) or setting.kind.upper()
    option = typer.Option(
        f"--{dashed}",
        metavar=_METAVARS.get(setting.kind, metavar),
        parser=_setting_parser(setting),
        help=about,
        show_default=False,
        rich_help_panel=panel,
    )
    return flag(setting.name, Annotated[Any, option])


def _setting_parser(setting: Setting) -> Callable[[str], _Given]:
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
