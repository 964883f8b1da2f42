"""Where to begin in a topic, on the command line: `latest`, `earliest`, an offset, or a time."""

from datetime import UTC, datetime, timedelta

import typer

from nexo.server.durations import parse_seconds
from nexo.vocabulary.errors import InvalidArgument


def parse_start(text: str) -> str | int | datetime:
    """Digits alone are an offset; a duration is so long ago; all else has to be a time."""
    text = str(text).strip()
    if text in ("latest", "earliest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_seconds(text))
    except (InvalidArgument, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r:.40} is not a start; write latest, earliest, an offset, 10m for ten minutes "
            "ago, or a time as 2026-05-31T14:30"
        ) from None
