"""Progress bars with rates, where a person looks on; nothing elsewhere."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nexo.vocabulary.units import count_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from nexo.cli.session import Session


class Bar:
    def __init__(self, progress: "Progress | None" = None, task: "TaskID | None" = None) -> None:
        self._progress = progress
        self._task = task
        self.count = 0

    def advance(self, more: int, note: str = "") -> None:
        self.count += more
        self.show(self.count, note)

    def show(self, count: int, note: str = "", total: int | None = None) -> None:
        self.count = count
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=count, note=note, total=total)


@contextlib.contextmanager
def progress_bar(session: "Session", doing: str, total: int | None = None) -> Iterator[Bar]:
    """A bar for the length of a `with` block; without a total it only counts."""
    if not session.is_watched:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class Figures(TextColumn):
        def render(self, task: Task) -> Text:
            known = f" of {task.total:,.0f}" if task.total is not None else ""
            speed = task.finished_speed or task.speed
            rate = f"  {speed:,.0f}/s" if speed else ""
            return Text(f"{task.completed:,.0f}{known}{rate}", style="bold")

    ends = (BarColumn(32), Figures(""), Remaining()) if total else (Figures(""), Elapsed())
    columns = [SpinnerColumn(), TextColumn("{task.description}"), *ends]
    columns.append(TextColumn("[dim]{task.fields[note]}[/dim]"))
    # It vanishes at the end: a line on standard output says what came of it.
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(doing, total=total, note=""))


def show_rate(count: int, seconds: float, noun: str = "message") -> str:
    """A count, how long it took and how fast that is, in words."""
    rate = count / seconds if seconds > 0 else 0.0
    return f"{count_of(count, noun)} in {seconds:.1f} s ({rate:,.0f}/s)"
