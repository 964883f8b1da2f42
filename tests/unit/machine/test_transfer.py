"""What is taken aside to go to another shard: the first messages, of one priority, in few runs."""

from nexo.machine.discard import discard
from nexo.machine.transfer import ranges_of, take
from nexo.vocabulary.identity import first_seq
from tests.unit.machine.orders import commit, orders, put


def test_so_many_messages_in_so_many_runs() -> None:
    queue = orders()
    put(queue, *[b"x"] * 9)
    discard(queue, [2, 5], 1_000)
    commit(queue)
    assert ranges_of([span for _, span in take(queue, 100, 2)]) == [0, 2, 3, 5]
    assert ranges_of([span for _, span in take(queue, 2, 100)]) == [6, 8]
    assert [span.first for _, span in take(queue, 100, 100)] == [8]
    assert take(queue, 100, 100) == []


def test_of_the_highest_priority_alone() -> None:
    queue = orders()
    put(queue, b"low", priority=1)
    put(queue, b"high", priority=7)
    taken = [span for _, span in take(queue, 100, 100)]
    assert [span.first for span in taken] == [first_seq(7)]
    assert ranges_of(taken) == [0, 1], "numbers are those of its own priority"
