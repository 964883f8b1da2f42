"""Log lines of the broker: for people in a terminal, as JSON for everything else.

A line is an event with fields: `logger.info("stopped", extra={"took_ms": 12})`.
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
        fields = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        if self._is_colored:
            at = f"{_DIM}{at}{_PLAIN}"
            level = f"{_COLORS.get(record.levelname, '')}{level}{_PLAIN}"
            fields = f"{_DIM}{fields}{_PLAIN}" if fields else ""
        line = f"{at} {level} {record.getMessage()}{fields}"
        if record.exc_info is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}
