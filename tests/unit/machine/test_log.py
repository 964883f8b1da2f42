"""The log: small pushes fill an open chunk, large ones are chunks by themselves."""

from array import array
from itertools import count

import msgspec

from nexo.machine.chunk import Growing
from nexo.machine.log import Log, Place
from nexo.vocabulary import limits
from nexo.vocabulary.batch import TIME_TYPE, batch_of
from tests.unit.machine.test_cost import cost

LARGE = batch_of([b"x"] * limits.SMALL_PUSH_MESSAGES)
TWO = batch_of([b"one", b"two"])


def test_small_pushes_share_a_chunk() -> None:
    log = Log(100)
    first = log.append_one(b"zero", 1)
    second = log.append(TWO, 2)
    assert first is second
    assert (first.first, first.end, log.end) == (100, 103, 103)
    assert [first.created_ms(seq) for seq in range(100, 103)] == [1, 2, 2]


def test_large_push_is_a_chunk_without_a_copy() -> None:
    log = Log(0)
    small = log.append(TWO, 1)
    large = log.append(LARGE, 1)
    assert large.content is LARGE
    after = log.append(TWO, 1)
    assert [chunk.first for chunk in log.chunks.values()] == [0, 2, 2 + LARGE.count]
    assert after is not small


def test_large_push_comes_now_whatever_its_batch_says() -> None:
    log = Log(0)
    created = array(TIME_TYPE, [5] * LARGE.count)
    chunk = log.append(msgspec.structs.replace(LARGE, created=created), 1_000)
    assert chunk.created_ms(0) == 1_000


def test_open_chunk_closes_when_it_is_full() -> None:
    log = Log(0)
    for _ in range(limits.CHUNK_MESSAGES_MAX + 1):
        log.append_one(b"x", 1)
    assert [chunk.end for chunk in log.chunks.values()] == [
        limits.CHUNK_MESSAGES_MAX,
        limits.CHUNK_MESSAGES_MAX + 1,
    ]


def test_open_chunk_closes_when_it_is_heavy() -> None:
    log = Log(0)
    log.append_one(bytes(limits.CHUNK_BYTES_MAX), 1)
    log.append_one(b"x", 1)
    assert list(log.chunks) == [0, 1]


def test_flush_gives_each_message_one_row() -> None:
    log, rows = Log(0), count(1)
    log.append(TWO, 1)
    (first,) = log.flush(rows)
    log.append_one(b"three", 2)
    log.append(LARGE, 2)
    second, third = log.flush(rows)
    assert [(f.row, f.first, f.end) for f in (first, second, third)] == [
        (1, 0, 2),
        (2, 2, 3),
        (3, 3, 3 + LARGE.count),
    ]
    assert second.batch.bodies() == [b"three"]
    assert log.flush(rows) == []
    assert log.chunks[0].rows == [1, 2]


def test_shared_batch_has_its_row_already() -> None:
    log, rows = Log(0), count(1)
    log.append_one(b"own", 1)
    chunk = log.share(TWO, Place(77, 4, is_whole=False), 1)
    assert (chunk.rows, chunk.row_start) == ([77], 4)
    assert [f.first for f in log.flush(rows)] == [0]


def test_small_shared_batches_lie_together_as_long_as_their_times_go_on() -> None:
    log, rows = Log(0), count(100)
    for created_ms in (1, 2, 2, 1, 3, 4, 5, 6):
        batch = msgspec.structs.replace(TWO, created=array(TIME_TYPE, [created_ms] * 2))
        log.gather(batch, Place(next(rows)), 9, rows_max=4)
    chunks = [(chunk.first, chunk.rows) for chunk in log.chunks.values()]
    assert chunks == [(0, [100, 101, 102]), (6, [103, 104, 105, 106]), (14, [107])]
    assert log.flush(rows) == []


def test_content_leaves_memory_and_comes_back() -> None:
    log = Log(0)
    chunk = log.append(LARGE, 1)
    assert not log.evictable(chunk), "it is not on disk yet"
    log.flush(count(1))
    log.settled = log.end
    assert log.evictable(chunk)
    log.evict(chunk)
    assert (chunk.content, log.resident_bytes) == (None, 0)
    log.restore(chunk, LARGE)
    assert chunk.content is LARGE
    assert log.resident_bytes == chunk.memory_bytes


def test_open_chunk_is_not_evictable() -> None:
    log = Log(0)
    chunk = log.append(TWO, 1)
    log.settled = log.end
    assert not log.evictable(chunk)


def test_dropped_chunk_tells_its_rows() -> None:
    log = Log(0)
    chunk = log.append(TWO, 1)
    log.flush(count(5))
    assert log.drop(chunk) == [5]
    assert (log.chunks, log.resident_bytes) == ({}, 0)
    assert log.append(TWO, 1).first == 2


def test_flush_looks_at_nothing_that_has_a_row() -> None:
    """A commit may bring thousands of shared chunks."""

    def lines_of(size: int) -> int:
        log = Log(0)
        for row in range(size):
            log.share(LARGE, Place(row), 1)
        return cost(lambda: log.flush(count(1))).lines

    assert lines_of(10) == lines_of(100)


def test_flush_finds_what_came_before_something_shared() -> None:
    log = Log(0)
    log.append(TWO, 1)
    log.share(LARGE, Place(7), 1)
    log.append(TWO, 1)
    flushed = log.flush(count(100))
    assert [(each.row, each.first, each.end) for each in flushed] == [(100, 0, 2), (101, 34, 36)]
    log.share(LARGE, Place(8), 1)
    assert log.flush(count(200)) == []


def test_one_plain_message_is_gathered_like_any_other() -> None:
    """The shortest way in, and what it must not forget."""
    plain = msgspec.structs.replace(batch_of([b"plain"]), created=array(TIME_TYPE, [1]))
    named = msgspec.structs.replace(plain, groups="group")
    log = Log(0)
    for row, each in enumerate((plain, plain, named, plain)):
        log.gather(each, Place(row), 1)
    content = log.chunks[0].content
    assert isinstance(content, Growing)
    assert content.groups == [None, None, "group", None]
    assert content.cut(0, 4).bodies() == [b"plain"] * 4
    archive = Log(0, evicts_oldest=True)
    for row, priority in enumerate((0, 9, 0)):
        archive.gather(msgspec.structs.replace(plain, priority=priority), Place(row), 1)
    content = archive.chunks[0].content
    assert isinstance(content, Growing)
    assert content.cut(0, 3).priority == bytes([0, 9, 0])
