"""Pages of `docs/reference/` and files of `ops/` that are made from the code, all at once.

python -m scripts.reference_pages
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from typer._completion_shared import get_completion_script

import nexo
from nexo.telemetry.families import FAMILIES
from nexo.vocabulary import errors
from scripts.command_tree import Option, commands

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
REGENERATE = "python -m scripts.reference_pages"
_MADE = f"Made from the code by `{REGENERATE}`; a test compares them."
_COMPLETE_VARIABLE = "_NEXO_COMPLETE"

_COMMANDS = """# Commands
{made}

Every command with its options, as `nexo COMMAND --help` shows them. [The command line](cli.md) is
the map: what belongs together, exit codes, how values are typed. With `pip install` you also get
`man nexo`, and completion for bash, zsh and fish.

## Options of every command
{shared}

Exit codes: 0 done, 1 refused by the broker, 2 wrong usage, 3 broker not reachable.

"""
_METRICS = """# Metrics
{made}

`GET /metrics` on the HTTP port (9324) answers in the text format of Prometheus. With
`--access required` it needs a token with `peek` on `nexo.metrics`. What to watch and what the
figures mean is in [running a broker](../operations.md#metrics); a dashboard, alert rules and the
scrape configuration are in [`ops/`](../../ops/README.md).

| metric | kind | labels | what it is |
|---|---|---|---|
{rows}

A histogram has the series `…_bucket`, `…_sum` and `…_count`.
"""
_ERRORS = """# Errors
{made}

Every error of the Python client derives from `nexo.NexoError` and has:

| attribute | what it is |
|---|---|
| `code` | a word for programs; it never changes |
| `message` | what happened |
| `hint` | what to do about it; may be empty |
| `retryable` | the same call may succeed later; the client has retried it already |
| `http_status` | the status with which the [admin API](admin-api.md) answers |

```python
import nexo

with nexo.connect() as client:
    try:
        client.queue("no-such-queue").push("hello")
    except nexo.QueueNotFound as error:
        print(error.code, error.retryable)
```
```text
queue_not_found False
```
The SQS and SNS APIs answer with the error codes of AWS instead: [SQS](sqs.md), [SNS](sns.md).

| code | Python | retryable | HTTP | kind of |
|---|---|---|---|---|
{rows}
"""


def commands_page() -> str:
    found = commands()
    shared = [each for each in found[-1].options if each.is_shared]
    lines = [_COMMANDS.format(made=_MADE, shared="\n".join(_option_table(shared)))]
    for command in found:
        lines += [f"## {command.name}", command.summary, "", "```", command.usage, "```"]
        if command.examples:
            lines += ["Examples:", "```", command.examples, "```"]
        if command.text:
            lines += [command.text, ""]
        told = [(word, about) for word, about in command.arguments if about]
        if told:
            lines += ["", "| argument | what it is |", "|---|---|"]
            lines += [f"| `{word.strip('[]')}` | {_cell(about)} |" for word, about in told]
        own = [each for each in command.options if not each.is_shared]
        if own:
            lines += ["", *_option_table(own)]
        lines.append("")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _option_table(options: list[Option]) -> list[str]:
    rows = ["| option | what it is |", "|---|---|"]
    for each in options:
        value = f" {each.metavar}" if each.metavar else ""
        names = ", ".join(f"`{name}{value}`" for name in each.names)
        rows.append(f"| {_cell(names)} | {_cell(each.about)} |")
    return [*rows, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics_page() -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} "
        f"| {_cell(each.help)} |"
        for each in FAMILIES.values()
    ]
    return _METRICS.format(made=_MADE, rows="\n".join(rows))


def errors_page() -> str:
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.NexoError) and kind.__name__ in nexo.__all__
    ]
    kinds.sort(key=lambda kind: (kind is not errors.NexoError, kind.code))
    rows = [
        f"| `{kind.code}` | `nexo.{kind.__name__}` | {'yes' if kind.retryable else ''} "
        f"| {kind.http_status} | {_parent(kind)} |"
        for kind in kinds
    ]
    return _ERRORS.format(made=_MADE, rows="\n".join(rows))


def _parent(kind: type[errors.NexoError]) -> str:
    above = kind.__mro__[1]
    return f"`nexo.{above.__name__}`" if above is not Exception else ""


# -- The manual page ------------------------------------------------------------------------------


def manual_page() -> str:
    found = commands()
    shared = [each for each in found[-1].options if each.is_shared]
    lines = [
        f'.\\" Made from the code by {REGENERATE}.',
        f'.TH NEXO 1 "" "nexo {nexo.__version__}" "User Commands"',
        ".SH NAME",
        "nexo \\- a durable message broker, and the commands to use it",
        ".SH SYNOPSIS",
        ".B nexo",
        ".I COMMAND",
        "[OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        "Queues with the semantics of Amazon SQS, topics, and a Spark pipeline.",
        ".B nexo serve",
        "runs a broker; the other commands talk to one.",
        ".SH OPTIONS OF EVERY COMMAND",
        *_manual_options(shared),
        ".SH COMMANDS",
    ]
    for command in found:
        lines += [f".SS {_roff(command.usage)}", _roff(command.summary)]
        lines += [f".PP\n{_roff(part)}" for part in command.text.split("\n\n") if part]
        lines += _manual_options([each for each in command.options if not each.is_shared])
        if command.examples:
            lines += [".PP", "Examples:", ".nf", _roff(command.examples), ".fi"]
    lines += [
        ".SH EXIT STATUS",
        "0 done, 1 refused by the broker, 2 wrong usage, 3 broker not reachable.",
        ".SH ENVIRONMENT",
        ".TP\n.B NEXO_URL\nThe broker, as --url.",
        ".TP\n.B NEXO_TOKEN\nThe token, as --token.",
        ".TP\n.B NEXO_TLS_CA\nThe file of --tls-ca.",
        ".PP\nEach setting of nexo serve has a variable too: NEXO_DATA for --data.",
        ".SH FILES",
        ".TP\n.I nexo.toml\nSettings of nexo serve, read from the working directory.",
    ]
    return "\n".join(lines) + "\n"


def _manual_options(options: list[Option]) -> list[str]:
    lines = []
    for each in options:
        names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in each.names)
        value = f" \\fI{_roff(each.metavar)}\\fR" if each.metavar else ""
        lines += [".TP", f"{names}{value}", _roff(" ".join(each.about.split())) or "\\&"]
    return lines


def _roff(text: str) -> str:
    """Text that roff prints as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.split("\n")
    )


def completion(shell: str) -> str:
    script = get_completion_script(prog_name="nexo", complete_var=_COMPLETE_VARIABLE, shell=shell)
    return script.strip() + "\n"


FILES: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/errors.md": errors_page,
    "ops/man/nexo.1": manual_page,
    "ops/completion/nexo.bash": lambda: completion("bash"),
    "ops/completion/_nexo": lambda: completion("zsh"),
    "ops/completion/nexo.fish": lambda: completion("fish"),
}

if __name__ == "__main__":
    for name, make in FILES.items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8")
        print(f"wrote {name}")
