"""Takes a look twice a second, in a thread: the view must not freeze while the broker is away."""

from __future__ import annotations

import sqlite3
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import msgspec

import nexo
from examples.gps import names
from examples.gps.demo.look import Course, Letter, Line, Look
from examples.gps.dispatch import count_handled, read_handled
from examples.gps.progress_file import read_progress
from examples.gps.tally import read_totals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nexo import Client

EVERY_S = 0.5
TIMEOUT_S = 1.0
SHOWN = 12


class Watch(threading.Thread):
    def __init__(self, url: str, http: str, folder: Path, clock: Callable[[], float]) -> None:
        super().__init__(name="watch", daemon=True)
        self.course = Course()
        self.has_console = _answers(f"{http}/console")
        self._url = url
        self._folder = folder
        self._clock = clock
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        with nexo.connect(self._url, timeout=TIMEOUT_S) as client:
            while not self._over.wait(EVERY_S):
                self.course.add(self.look(client))

    def look(self, client: Client) -> Look:
        try:
            lines, letters, is_up = _lines(client), _letters(client), True
        except nexo.NexoError:
            last = self.course.last
            lines, letters, is_up = last.lines, last.dead_letters, False
        look = msgspec.structs.replace(
            self.course.last,
            at_s=self._clock(),
            is_up=is_up,
            lines=lines,
            dead_letters=letters,
            spark=read_progress(self._folder / "lake" / "_progress.json"),
        )
        handled = self._folder / "handled.db"
        try:
            return msgspec.structs.replace(
                look,
                totals=read_totals(self._folder / "tally.db"),
                handled_total=count_handled(handled),
                handled=read_handled(handled, SHOWN),
            )
        except sqlite3.OperationalError:
            return look  # whoever writes it is just opening or closing it


def _lines(client: Client) -> dict[str, Line]:
    lines = {
        info.name: Line(
            info.depth, info.in_flight, info.scheduled, info.pushed, info.acked, info.nacked
        )
        for info in client.queues()
    }
    topic = client.topic(names.BY_UDP).info()
    lines[topic.name] = Line(depth=topic.messages, pushed=topic.end)
    return lines


def _letters(client: Client) -> list[Letter]:
    peeked = client.queue(names.DEAD_ALERTS).peek(1_000)[-SHOWN:]
    return [
        Letter(each.json(), each.dead_letter.reason if each.dead_letter else "")
        for each in reversed(peeked)
    ]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:  # noqa: S310  our own broker
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
