"""Virtual time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from nexo.simulation.history import Violation
from nexo.simulation.loop import Halted, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@pytest.fixture
def loop():
    loop = VirtualLoop(5.0)
    yield loop
    loop.bury()


def test_an_hour_takes_no_time(loop: VirtualLoop) -> None:
    started = time.perf_counter()
    loop.run(asyncio.sleep(3_600))
    assert loop.time() == 3_605.0
    assert time.perf_counter() - started < 30  # next to an hour; the machine may be busy


def test_timers_fire_in_the_order_of_their_times(loop: VirtualLoop) -> None:
    fired: list[str] = []

    async def main() -> None:
        loop.call_later(2, fired.append, "second")
        loop.call_later(1, fired.append, "first")
        loop.call_later(1.5, fired.append, "never").cancel()
        await asyncio.sleep(3)

    loop.run(main())
    assert fired == ["first", "second"]


def test_what_was_about_to_run_never_runs_after_a_halt(loop: VirtualLoop) -> None:
    ran: list[str] = []

    async def main() -> None:
        loop.call_soon(loop.halt)
        loop.call_soon(ran.append, "too late")
        await asyncio.sleep(1)

    with pytest.raises(Halted):
        loop.run(main())
    assert ran == []


def test_an_error_in_a_callback_ends_the_run(loop: VirtualLoop) -> None:
    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_an_error_in_a_task_that_nobody_awaits_ends_the_run(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise KeyError("nobody looks")

    async def main() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        task.cancel()

    with pytest.raises(KeyError):
        loop.run(main())


async def wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def spin() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    again()
    await wait_for_ever()


@pytest.mark.parametrize("main", [wait_for_ever, spin])
def test_a_standstill_and_a_spin_are_found(
    loop: VirtualLoop, main: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    with pytest.raises(Violation):
        loop.run(main())
