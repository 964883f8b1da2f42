"""A query whose Python process came too late is started again, whenever its failure shows."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nexo.pipeline import watch
from nexo.pipeline.status import Teller

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LATE = "Python worker failed to connect back."
OTHER = "the broker has no such queue"


class Query:
    """It fails, or ends, once it was asked `looks` times how it is."""

    def __init__(self, looks: int, error: str | None = None) -> None:
        self._looks, self._error = looks, error
        self.status = {"isTriggerActive": False}

    @property
    def isActive(self) -> bool:  # noqa: N802
        return not self._is_over()

    def exception(self) -> Exception | None:
        return RuntimeError(self._error) if self._is_over() and self._error else None

    def stop(self) -> None:
        self._looks = 0

    def _is_over(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Query]], int]:
    """Watch one query, which is a next one each time that it is started; returns how many were."""
    monkeypatch.setattr(watch, "POLL_S", 0.001)
    monkeypatch.setattr(watch, "LAST_WORDS_S", 0.001)
    monkeypatch.setattr(watch, "explained", lambda error: error)
    streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
    spark: Any = SimpleNamespace(streams=streams)

    def run(queries: list[Query]) -> int:
        following = iter(queries)
        started = 0

        def start() -> Any:
            nonlocal started
            started += 1
            return next(following)

        watch.Watch(spark, Teller("archive", None)).run({"all": start}, lambda: False)
        return started

    return run


@pytest.mark.parametrize("looks", range(8))
def test_too_late_at_any_moment(run: Callable[[list[Query]], int], looks: int) -> None:
    assert run([Query(looks, TOO_LATE), Query(3)]) == 2


@pytest.mark.parametrize("looks", range(8))
def test_any_other_failure_ends_the_job(run: Callable[[list[Query]], int], looks: int) -> None:
    with pytest.raises(RuntimeError, match=OTHER):
        run([Query(looks, OTHER)])


def test_not_for_ever(run: Callable[[list[Query]], int]) -> None:
    with pytest.raises(RuntimeError, match=TOO_LATE):
        run([Query(1, TOO_LATE) for _ in range(watch.RESTARTS_MAX + 1)])


class Stopping(Query):
    """Its session is gone before its stop is answered."""

    def stop(self) -> None:
        super().stop()
        raise ConnectionError("the session has ended")


def watching(active: Any) -> watch.Watch:
    streams = SimpleNamespace(addListener=lambda _: None, active=active)
    session: Any = SimpleNamespace(streams=streams)
    return watch.Watch(session, Teller("job.py", None))


def interrupted(active: Any, *, is_over: bool = False) -> bool:
    """Whether who waits is interrupted until the thread that stops the queries has ended."""
    watched = watching(active)
    if is_over:
        watched.work_ended()
    try:
        watched.stop_soon()
        for each in threading.enumerate():
            if each.name == "nexo-stop":
                each.join(40)
    except KeyboardInterrupt:
        return True
    return False


def sleep_while_it_stops(watched: watch.Watch) -> None:
    watched.stop_soon()
    time.sleep(50)


def test_who_runs_no_query_is_interrupted() -> None:
    """Also if it sleeps, however late the thread is that sees to it."""
    with pytest.raises(KeyboardInterrupt):
        sleep_while_it_stops(watching([]))


def test_who_has_ended_is_not() -> None:
    assert not interrupted([], is_over=True)


def test_who_runs_a_query_is_not() -> None:
    query = Query(100)
    assert not interrupted([query])
    assert not query.isActive
    assert not interrupted([Stopping(100)])
