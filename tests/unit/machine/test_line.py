"""The line: what is new goes to its end, what comes back goes to its old place."""

from nexo.machine.chunk import Chunk
from nexo.machine.line import Line
from nexo.machine.span import History, Span

CHUNK = Chunk(0, 100, None, 0)
ALL = 1_000


def spans_of(line: Line) -> list[tuple[int, int]]:
    return sorted((span.first, span.end) for span in line.spans())


def test_fresh_messages_extend_the_tail() -> None:
    line = Line()
    line.append(CHUNK, 0, 3)
    line.append(CHUNK, 3, 5)
    assert spans_of(line) == [(0, 5)]
    assert line.count == 5


def test_tail_of_another_chunk_is_not_extended() -> None:
    line = Line()
    line.append(CHUNK, 0, 3)
    line.append(Chunk(3, 5, None, 0), 3, 5)
    assert spans_of(line) == [(0, 3), (3, 5)]


def test_tail_grows_on_while_its_head_is_taken() -> None:
    line = Line()
    line.append(CHUNK, 0, 3)
    line.take(2, ALL)
    line.append(CHUNK, 3, 5)
    assert spans_of(line) == [(2, 5)]


def test_tail_that_was_taken_whole_is_left_alone() -> None:
    line = Line()
    line.append(CHUNK, 0, 3)
    taken = line.take(3, ALL)
    line.append(CHUNK, 3, 5)
    assert (taken.first, taken.end) == (0, 3)
    assert spans_of(line) == [(3, 5)]


def test_what_comes_back_takes_its_old_place() -> None:
    line = Line()
    line.append(CHUNK, 5, 9)
    line.give_back(Span(CHUNK, 2, 4, History(1, 10), None))
    taken = [line.take(10, ALL) for _ in range(2)]
    assert [(span.first, span.end) for span in taken] == [(2, 4), (5, 9)]


def test_take_splits_a_span() -> None:
    line = Line()
    line.append(CHUNK, 0, 5)
    taken = line.take(2, ALL)
    assert (taken.first, taken.end) == (0, 2)
    assert spans_of(line) == [(2, 5)]
    assert line.count == 3


def test_nothing_beyond_the_settled_number_is_seen() -> None:
    line = Line()
    line.append(CHUNK, 0, 5)
    assert line.head(0) is None
    taken = line.take(5, 3)
    assert (taken.first, taken.end) == (0, 3)
    assert line.head(3) is None
    assert line.head(4) is not None


def test_drop_below_cuts_where_it_must() -> None:
    line = Line()
    line.append(CHUNK, 0, 5)
    line.give_back(Span(CHUNK, 7, 9, History(1, 10), None))
    dropped = line.drop_below(8, ALL)
    assert [(span.first, span.end) for span in dropped] == [(0, 5), (7, 8)]
    assert spans_of(line) == [(8, 9)]
    assert line.count == 1


def test_drop_below_takes_so_many_runs() -> None:
    line = Line()
    line.append(CHUNK, 0, 2)
    for first in (3, 5, 7):
        line.give_back(Span(CHUNK, first, first + 1, History(1, 10), None))
    assert len(line.drop_below(8, 2)) == 2
    assert spans_of(line) == [(5, 6), (7, 8)]
