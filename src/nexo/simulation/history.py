"""What happened in a world, line by line, and the violation of a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LINES_SHOWN = 60


class Violation(AssertionError):
    """A promise was broken. `about` are the texts that mark the lines worth reading."""

    def __init__(self, promise: str, found: str, *about: str) -> None:
        super().__init__(f"{promise}: {found}")
        self.promise = promise
        self.found = found
        self.about = about


class History:
    """Lines are kept as values and only become text when somebody wants to read them. The number
    of a line orders everything that was seen from outside."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, tuple[Any, ...]]] = []
        self.time: Callable[[], float] = float  # of the loop that runs
        self.is_closed = False  # between the end of one process and the start of the next

    def add(self, what: str, *details: Any) -> int:
        if not self.is_closed:
            self.lines.append((self.time(), what, details))
        return len(self.lines)

    def text(self) -> list[str]:
        return [_text(line) for line in self.lines]

    def around(self, *about: str) -> list[str]:
        """The last lines that speak of one of these, with the turns of fate between them."""
        found = [
            _text(line)
            for line in self.lines
            if not about or line[1].startswith("--") or any(mark in str(line[2]) for mark in about)
        ]
        return found[-_LINES_SHOWN:]


def _text(line: tuple[float, str, tuple[Any, ...]]) -> str:
    now_s, what, details = line
    return f"{now_s:10.3f}  {what:<14} {' '.join(str(each) for each in details)}"
