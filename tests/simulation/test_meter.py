"""The meter and the watch on commits: what they must find, and what they must bear."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nexo.engine.committer import Committer
from nexo.engine.queue_actor import QueueActor
from nexo.engine.recorder import Recorders
from nexo.machine import ack as acks
from nexo.machine import pop as pops
from nexo.simulation.history import Violation
from nexo.simulation.large import chunks, leases
from nexo.simulation.large.world import SHAPES
from nexo.simulation.loop import VirtualLoop
from nexo.simulation.meter import STEP_LINES_MAX, UNIT_LINES_MAX, Meter
from nexo.simulation.seeds import run_large
from nexo.vocabulary import identity
from tests.simulation.planted import first_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.committer import Draft
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span
    from nexo.simulation.large.shape import Shape
    from nexo.simulation.seeds import Failure

SEEDS_TO_FIND_IT = 20


def work(lines: int) -> None:
    for seq in range(lines // 3):
        identity.priority_of(seq)  # entered, one line, left


def run_step(meter: Meter, step: Callable[[], object]) -> None:
    loop = VirtualLoop(0.0)

    async def main() -> None:
        loop.run_handle = meter.run
        loop.call_soon(step)
        await asyncio.sleep(1)

    try:
        loop.run(main())
    finally:
        loop.bury()


def test_a_step_that_does_nothing_for_anybody_may_cost_little() -> None:
    run_step(Meter(), lambda: work(STEP_LINES_MAX))
    with pytest.raises(Violation, match="priority_of"):
        run_step(Meter(), lambda: work(STEP_LINES_MAX + 10))


def test_a_step_may_cost_what_it_does() -> None:
    meter, done = Meter(), 0
    meter.handled = lambda: done

    def step() -> None:
        nonlocal done
        done += 1_000
        work(1_000 * UNIT_LINES_MAX)

    run_step(meter, step)
    assert meter.total > 900 * UNIT_LINES_MAX


def seed_of(shape: type[Shape]) -> int:
    return SHAPES.index(shape)


def failure_of(shape: type[Shape]) -> Failure:
    failure = run_large(seed_of(shape))
    assert failure is not None, "the planted bug was not found"
    return failure


def test_looking_through_a_lease_for_each_ack_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked(spans: list[Span], seq: int) -> int:
        at = 0
        while at + 1 < len(spans) and spans[at + 1].first <= seq:
            identity.priority_of(seq)  # a line of the broker for each
            at += 1
        return at

    monkeypatch.setattr(acks, "index_of", walked)
    failure = failure_of(leases.Lease)
    assert "a step costs what it moves" in failure.text
    assert f"--large --seed {failure.seed}" in failure.text


def test_looking_through_the_line_for_each_pop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = pops._select_one

    def thorough(queue: Queue) -> Any:
        for lane in queue.lanes:
            for span in lane.line.spans():
                identity.priority_of(span.first)
        return honest(queue)

    monkeypatch.setattr(pops, "_select_one", thorough)
    failure = failure_of(leases.Late)
    assert "a step costs what it moves" in failure.text
    assert "priority_of" in failure.text


def test_a_broker_that_never_folds_its_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorders, "bound", lambda self, writing: None)
    monkeypatch.setattr(Recorders, "fold_all", lambda self: None)
    assert "a start costs what is held" in failure_of(chunks.QuietPast).text


def test_a_committer_that_forgets_to_go_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Committer._schedule

    def forgetful(self: Committer) -> None:
        if self.commits < 10:
            honest(self)

    monkeypatch.setattr(Committer, "_schedule", forgetful)
    assert "commits keep coming" in first_failure(SEEDS_TO_FIND_IT).text


def test_a_swallowed_error_in_a_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committer stays busy for ever then, and says nothing."""
    honest, begin = Committer._collect, Committer.begin

    def broken(self: Committer) -> Any:
        if self.commits > 5:
            raise OverflowError("a number that no record takes")
        return honest(self)

    def silent(self: Committer) -> None:
        try:
            begin(self)
        except OverflowError:
            return

    monkeypatch.setattr(Committer, "_collect", broken)
    monkeypatch.setattr(Committer, "begin", silent)
    assert "commits keep coming" in first_failure(SEEDS_TO_FIND_IT).text


def test_an_error_that_the_broker_survives_ends_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to the log of a broker, and a world has none: it must not go unseen."""
    honest = QueueActor.collect

    def broken(self: QueueActor, draft: Draft) -> Any:
        if self.queue.totals.pushed > 5:
            raise OverflowError("a number that no record takes")
        return honest(self, draft)

    monkeypatch.setattr(QueueActor, "collect", broken)
    assert "a number that no record takes" in first_failure(SEEDS_TO_FIND_IT).text
