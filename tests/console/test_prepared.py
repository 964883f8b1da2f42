"""What the console needs for its first page is made in a thread, not in the event loop."""

from __future__ import annotations

import gzip
import threading
from typing import TYPE_CHECKING

from jinja2 import Environment

from nexo.doors.console import pages
from nexo.server import http

if TYPE_CHECKING:
    import pytest


def test_no_template_is_compiled_for_a_visitor(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def compress(*_: object, **__: object) -> bytes:
        made.append("packed")
        return b""

    monkeypatch.setattr(gzip, "compress", compress)
    pages._all_files.cache_clear()
    pages._COMPILED.code.clear()
    pages.prepare()
    assert made
    made.clear()
    honest = Environment.compile

    def compile_(environment: Environment, source: str, name: str, *more: object) -> object:
        made.append(name)
        return honest(environment, source, name, *more)  # type: ignore[call-overload]

    monkeypatch.setattr(Environment, "compile", compile_)
    environment = pages.Templates(pages.Files(), "1.0", has_cluster=False)._environment
    for name in environment.list_templates():
        environment.get_template(name)
    assert not made
    pages._all_files.cache_clear()  # they were not packed here


def test_the_modules_of_the_console_come_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(pages, "prepare", lambda: threads.append(threading.current_thread()))
    thread = threading.Thread(target=http._modules)
    thread.start()
    thread.join()
    assert threads == [thread]
