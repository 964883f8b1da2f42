"""How a failure is told: one line that says what to do, and the exit code that goes with it."""

import difflib
import json
import re
import sys

import typer

from nexo.vocabulary.errors import InvalidArgument, NexoError

DONE, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3

_POSSIBLE = re.compile(r"\(Possible options: ([^)]*)\)")


def status_of(error: NexoError) -> int:
    """The exit code of an error. Wrong values are wrong usage, whoever noticed."""
    if error.code in ("unreachable", "timeout"):
        return UNREACHABLE
    if type(error) is InvalidArgument:  # not its kinds: a message too large is a refusal
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
    wanted = getattr(error, "option_name", "")
    message = _POSSIBLE.sub(lambda found: _did_you_mean(found, wanted), error.format_message())
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
