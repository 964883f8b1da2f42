"""Durations on the command line."""

import typer

from nexo.server.durations import parse_seconds, show_duration
from nexo.vocabulary.errors import InvalidArgument

__all__ = ["parse_duration", "show_duration"]


def parse_duration(text: str) -> float:
    """Seconds. Typer calls it for the flags that take a duration."""
    try:
        return parse_seconds(str(text))
    except InvalidArgument as error:
        raise typer.BadParameter(f"{error.message}; {error.hint}") from None
