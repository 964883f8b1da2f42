"""Log lines of the broker: for people in a terminal, as JSON for everything else.

A line is an event with fields: `logger.info("stopped", extra={"took_ms": 12})`.

Much of what is logged was said by somebody else. A person's terminal obeys control characters, and
a line break makes a line that looks like one of ours, so a formatter lets none of them through.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

# What a record has by itself; the rest are the fields that the caller gave.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLORS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
# Control characters, and what breaks lines or turns the direction of writing.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in [*_CONTROLS, *_DIRECTIONS]
} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def set_up_logs(log_format: str, log_level: str, stream: TextIO | None = None) -> None:
    """Send everything to standard error, which is not what a program reads."""
    stream = stream or sys.stderr
    is_terminal = stream.isatty()
    wants_json = log_format == "json" or (log_format == "auto" and not is_terminal)
    handler = logging.StreamHandler(stream)
    is_colored = is_terminal and "NO_COLOR" not in os.environ
    handler.setFormatter(JsonLines() if wants_json else HumanLines(is_colored=is_colored))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(log_level.upper())
    # asyncio warns of slow callbacks and the like; its debug lines are not about the broker.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def visible(text: object) -> str:
    """The text on one line, with everything that a terminal would obey written out."""
    return str(text).translate(_VISIBLE)


class JsonLines(logging.Formatter):
    """One JSON document a line; the fields stand beside `at`, `level`, `logger` and `message`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class HumanLines(logging.Formatter):
    def __init__(self, *, is_colored: bool) -> None:
        super().__init__()
        self._is_colored = is_colored

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname.lower():7}"
        given = _fields(record).items()
        fields = "".join(f"  {visible(name)}={visible(value)}" for name, value in given)
        if self._is_colored:
            at = f"{_DIM}{at}{_PLAIN}"
            level = f"{_COLORS.get(record.levelname, '')}{level}{_PLAIN}"
            fields = f"{_DIM}{fields}{_PLAIN}" if fields else ""
        line = f"{at} {level} {visible(record.getMessage())}{fields}"
        if record.exc_info is not None:  # set in, so that no line of it looks like one of ours
            trace = self.formatException(record.exc_info).split("\n")
            line += "".join(f"\n    {visible(each)}" for each in trace)
        return line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}
