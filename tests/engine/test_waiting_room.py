"""The waiting room: each consumer's share of what is ready follows from who is there."""

from collections.abc import Callable

import pytest

from nexo.engine.waiting_room import Waiter, WaitingRoom


def consumer(room: WaitingRoom, free: int, standing: bool = True) -> Waiter:
    waiter = Waiter(free, lambda _: None, lambda _: None, standing=standing)
    room.enter(waiter)
    return waiter


def share(room: WaitingRoom, ready: int) -> int:
    turn = room.next(ready)
    assert turn is not None
    return turn[1]


LEAVING: dict[str, Callable[[WaitingRoom, Waiter], None]] = {
    "leaves": lambda room, waiter: room.leave(waiter),
    "rests": lambda room, waiter: room.rest(waiter),
}


@pytest.mark.parametrize("what", LEAVING)
@pytest.mark.parametrize("standing", [True, False])
def test_who_is_gone_takes_its_share_along(what: str, standing: bool) -> None:
    """It would be kept for it for ever: those who stay would get less each time."""
    room = WaitingRoom()
    consumer(room, 10)
    other = consumer(room, 10, standing)
    assert share(room, 10) == 5
    LEAVING[what](room, other)
    assert share(room, 10) == 10


def test_who_was_served_counts_with_what_it_has_left() -> None:
    room = WaitingRoom()
    first, second = consumer(room, 10), consumer(room, 10)
    room.served(first, 8)
    assert room.next(6) == (second, 5)
    room.leave(second)
    assert room.next(6) == (first, 2)
    room.grant(first, 4)
    assert room.next(6) == (first, 6)


def test_who_leaves_with_nothing_left_changes_nothing() -> None:
    room = WaitingRoom()
    first = consumer(room, 5)
    consumer(room, 5)
    room.served(first, 5)
    room.leave(first)
    assert share(room, 5) == 5
