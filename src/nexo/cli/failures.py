"""How a failure is told: one line that says what to do, and the exit code that goes with it."""

import json
import re
import sys

import typer

from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NexoError

DONE, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3

_POSSIBLE = re.compile(r"\(Possible options: ([^)]*)\)")


def status_of(error: NexoError) -> int:
    """The exit code of an error. Wrong values are wrong usage, whoever noticed."""
    if error.code in ("unreachable", "timeout"):
        return UNREACHABLE
    if error.code == InvalidArgument.code and not isinstance(error, MessageTooLarge):
        return USAGE
    return REFUSED


def show_failure(error: NexoError, as_json: bool) -> None:
    if as_json:
        _show_json(error.code, error.message, error.hint, error.retryable)
        return
    hint = f": {error.hint}" if error.hint else ""
    sys.stderr.write(f"nexo: {_one_line(error.message + hint)}\n")


def show_usage(error: typer.TyperException, as_json: bool) -> None:
    """What typer found wrong in the command line."""
    message = _POSSIBLE.sub(_did_you_mean, error.format_message())
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nexo"
    if as_json:
        _show_json(InvalidArgument.code, message, f"see {command} --help", False)
        return
    separator = "" if message.endswith((".", "?")) else ";"
    sys.stderr.write(f"{command}: {_one_line(message)}{separator} see {command} --help\n")


def _did_you_mean(found: re.Match[str]) -> str:
    options = found[1].split(", ")
    return f"- did you mean {' or '.join(options[:3])}?"


def _show_json(code: str, message: str, hint: str, retryable: bool) -> None:
    told = {"code": code, "message": message, "hint": hint, "retryable": retryable}
    sys.stderr.write(json.dumps({"error": told}) + "\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())
