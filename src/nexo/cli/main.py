"""The command `nexo`: its subcommands put together, and what happens when one fails."""

import os
import sys

import typer

from nexo.cli import backup, bench, doctor, pipeline, queue, token, top, topic, version
from nexo.cli.audit import audit
from nexo.cli.consume import consume
from nexo.cli.definitions import export, import_definitions
from nexo.cli.demo import demo
from nexo.cli.failures import UNREACHABLE, USAGE, show_failure, show_usage, status_of
from nexo.cli.pop import pop
from nexo.cli.produce import produce
from nexo.cli.push import push
from nexo.cli.serve import serve
from nexo.cli.worker import worker
from nexo.vocabulary.errors import NexoError

INTERRUPTED = 130

_BROKER, _MESSAGES, _MACHINE = "Broker and queues", "Messages", "Measure, check and keep"

app = typer.Typer(
    name="nexo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def nexo(context: typer.Context) -> None:
    """A durable message broker: queues that never lose what they accepted.

    [bold]Start here[/bold]

      nexo serve                          a broker on this machine
      nexo push orders "hello" --create   a message
      nexo pop orders                     and back
      nexo top                            what is going on

    Exit codes: 0 done, 1 refused by the broker, 2 wrong usage, 3 broker not reachable.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(rich_help_panel=_BROKER)(serve)
app.command(rich_help_panel=_BROKER)(demo)
app.add_typer(queue.app, rich_help_panel=_BROKER)
app.add_typer(topic.app, rich_help_panel=_BROKER)
app.add_typer(token.app, rich_help_panel=_BROKER)
app.add_typer(pipeline.app, rich_help_panel=_BROKER)
app.command(rich_help_panel=_BROKER)(top.top)
app.command(rich_help_panel=_BROKER)(audit)
app.command(rich_help_panel=_MESSAGES)(push)
app.command(rich_help_panel=_MESSAGES)(pop)
app.command(rich_help_panel=_MESSAGES)(produce)
app.command(rich_help_panel=_MESSAGES)(consume)
app.command(rich_help_panel=_MESSAGES)(worker)
app.command(rich_help_panel=_MACHINE)(backup.backup)
app.command(rich_help_panel=_MACHINE)(backup.restore)
app.command(rich_help_panel=_MACHINE)(export)
app.command("import", rich_help_panel=_MACHINE)(import_definitions)
app.add_typer(bench.app, rich_help_panel=_MACHINE)
app.command(rich_help_panel=_MACHINE)(doctor.doctor)
app.command(rich_help_panel=_MACHINE)(version.version)


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
    try:
        result = app(arguments, prog_name="nexo", standalone_mode=False)
    except typer.TyperException as error:
        show_usage(error, as_json)
        return USAGE
    except typer.Abort:
        sys.stderr.write("nexo: nothing was done\n")
        return 1
    except NexoError as error:
        show_failure(error, as_json)
        return status_of(error)
    except ConnectionError as error:
        sys.stderr.write(f"nexo: the connection broke: {error}\n")
        return UNREACHABLE
    return result if isinstance(result, int) else 0
