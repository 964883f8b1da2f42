"""Log lines: what others said stays on its line, and a terminal obeys none of it."""

from __future__ import annotations

import json
import logging

import pytest

from nexo.server.logs import HumanLines, JsonLines, visible

FORGED = "x\r\n12:00:00.000 info    stopped\x1b[2J\x1b]0;title\x07\x9b31m\u2028\u202e\x7f"


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    told = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("nexo.access", logging.WARNING, "", 0, message, None, told)
    made.peer = FORGED
    return made


def controls(line: str) -> list[str]:
    return [each for each in line if not each.isprintable()]


@pytest.mark.parametrize("is_colored", [False, True])
def test_a_person_sees_what_was_said_and_nothing_happens(is_colored: bool) -> None:
    line = HumanLines(is_colored=is_colored).format(record(f"refused {FORGED}"))
    for ours in ("\x1b[2m", "\x1b[0m", "\x1b[33m"):
        line = line.replace(ours, "")
    assert controls(line) == []
    assert line.count(r"x\r\n12:00:00.000 info    stopped\x1b[2J\x1b]0;title\x07") == 2


def test_a_traceback_has_lines_that_are_not_ours() -> None:
    with pytest.raises(ValueError, match="stopped") as caught:
        raise ValueError(FORGED)
    error = caught.value
    first, *trace = HumanLines(is_colored=False).format(record("failed", error)).split("\n")
    assert controls(first) == []
    assert len(trace) > 3
    assert all(each.startswith("    ") and controls(each) == [] for each in trace)


def test_a_program_reads_one_line_with_what_was_said() -> None:
    line = JsonLines().format(record(f"refused {FORGED}"))
    assert "\n" not in line
    assert "\x1b" not in line
    assert json.loads(line)["message"] == f"refused {FORGED}"


def test_what_is_plain_stays_as_it_is() -> None:
    text = "città «ordini» 東京 🚚 a\\b"
    assert visible(text) == text
