"""A snapshot is taken down in steps that are alike however much there is, and is of one moment."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.machine import claims
from nexo.machine import topic as topics
from nexo.machine.ack import ack, received
from nexo.machine.apply import apply
from nexo.machine.compact import copy_forward
from nexo.machine.deadlines import run_due
from nexo.machine.image import Image, encode_image, image_of, image_of_topic
from nexo.machine.log import Place
from nexo.machine.pop import pop
from nexo.machine.purge import purge
from nexo.machine.push import push, push_shared
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle
from nexo.machine.snapshot import (
    QueueSnapshot,
    SnapshotInSteps,
    TopicSnapshot,
    load_snapshot,
    read_topic_snapshot,
)
from nexo.machine.topic import Topic
from nexo.machine.unreadable import set_aside
from nexo.simulation.squeeze import squeezed
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.limits import LEASE_BITS
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from tests.engine.rig import comparable
from tests.work import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.vocabulary import changes as c

NOW_MS = 1_000
ENTRIES = 40


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with squeezed({"PIECE_BITS": 4}):
        yield


def new_queue(settings: QueueSettings | None = None) -> Queue:
    return Queue("q", settings or QueueSettings(), 1, count(1), 1 << LEASE_BITS)


def commit(queue: Queue, making: QueueSnapshot | None = None) -> None:
    collected = collect(queue)
    if making is not None:
        making.note(collected.changes)
    settle(queue, collected.mark)


def loaded(like: Queue, encoded: bytes | bytearray) -> Queue:
    """A queue that was brought back from a snapshot."""
    queue = new_queue(like.settings)
    load_snapshot(queue, bytes(encoded))
    apply(queue, [])
    return queue


def assert_same(one: Queue, other: Queue) -> None:
    now_ms = max(one.now_ms, other.now_ms)
    assert comparable(image_of(one), now_ms) == comparable(image_of(other), now_ms)


def batch(size: int) -> Batch:
    return batch_of([b"x"] * size)


def chunks(size: int) -> Queue:
    queue = new_queue()
    for _ in range(size):
        push(queue, batch(32), NOW_MS)
    return queue


def delays(size: int) -> Queue:
    queue = new_queue()
    each = list(range(10_000, 10_000 + 10 * size, 10))
    push(queue, msgspec.structs.replace(batch(size), delay_ms=each), NOW_MS)
    return queue


def leases(size: int) -> Queue:
    queue = new_queue()
    push(queue, batch(size), NOW_MS)
    commit(queue)
    for _ in range(size):
        pop(queue, 1, NOW_MS)
    return queue


def one_lease(size: int) -> Queue:
    """Every other message of it is done."""
    queue = new_queue()
    push(queue, batch(size), NOW_MS)
    commit(queue)
    delivery = pop(queue, size, NOW_MS, one_ack=True)
    for seq in range(0, size, 2):
        ack(queue, delivery.lease, seq, seq + 1, NOW_MS)
    return queue


def groups(size: int, fifo: bool = False) -> Queue:
    queue = new_queue(QueueSettings(fifo=fifo))
    names: list[str | None] = [f"g{number}" for number in range(size)]
    push(queue, msgspec.structs.replace(batch(size), groups=names), NOW_MS)
    return queue


def keys(size: int) -> Queue:
    queue = new_queue(QueueSettings(deduplication="id"))
    ids: list[str | None] = [f"k{number}" for number in range(size)]
    push(queue, msgspec.structs.replace(batch(size), deduplication_ids=ids), NOW_MS)
    commit(queue)
    delivery = pop(queue, size, NOW_MS, one_ack=True)
    ack(queue, delivery.lease, 0, size, NOW_MS)
    return queue


def producers(size: int) -> Queue:
    queue = new_queue()
    for number in range(size):
        push(queue, batch(1), NOW_MS, f"p{number}", 1)
    return queue


STATES = [chunks, delays, leases, one_lease, groups, keys, producers]


def most_steps(making: SnapshotInSteps) -> int:
    most = 0
    while not making.is_done:
        most = max(most, steps_of(lambda: making.step(ENTRIES)))
    return most


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_no_step_grows_with_what_is_there(state: Callable[[int], Queue]) -> None:
    queues = [state(10 * ENTRIES), state(40 * ENTRIES)]
    for queue in queues:
        commit(queue)
    few, many = (most_steps(QueueSnapshot(queue)) for queue in queues)
    assert many < 1.3 * few + 500  # the last step is longer by little


def test_no_step_of_a_topic_grows_with_what_is_there() -> None:
    taken = []
    for size in (10 * ENTRIES, 40 * ENTRIES):
        topic = Topic("t", TopicSettings(), count(1))
        for number in range(size):
            topics.archive(topic, batch(40), Place(number + 1), NOW_MS)
        topics.collect_topic(topic)
        taken.append(most_steps(TopicSnapshot(topic)))
    assert taken[1] < 1.3 * taken[0] + 500


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("entries", [1, 7, 10_000])
def test_the_pieces_are_the_whole(state: Callable[[int], Queue], entries: int) -> None:
    queue = state(50)
    commit(queue)
    making = QueueSnapshot(queue)
    while not making.is_done:
        making.step(entries)
    assert_same(loaded(queue, making.encoded), queue)


@pytest.mark.parametrize("fifo", [False, True])
def test_what_changes_meanwhile_is_in_it_once(fifo: bool) -> None:
    """Messages come, go out and go for good on both sides of the pen."""
    queue = groups(60, fifo) if fifo else delays(60)
    push(queue, batch(60), NOW_MS)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(20)
    while not making.is_done:
        push(queue, batch(2), NOW_MS)
        push(queue, batch(40), NOW_MS)
        delivery = pop(queue, 7, NOW_MS, one_ack=True)
        for part in delivery.parts[::2]:
            ack(queue, delivery.lease, part.first, part.first + part.count // 2 + 1, NOW_MS)
        commit(queue, making)
        making.step(50)
    assert_same(loaded(queue, making.encoded), queue)


@pytest.mark.parametrize("follows", [0, 3], ids=["the last chunk", "another follows"])
@pytest.mark.parametrize("grouped", [False, True], ids=["leases", "groups"])
def test_a_chunk_that_dies_while_the_pen_is_in_it(grouped: bool, follows: int) -> None:
    """Some of its messages are taken down: there must be a chunk for them when it is read."""
    queue = groups(60, fifo=True) if grouped else leases(60)
    commit(queue)
    (chunk,) = queue.lanes[0].log.chunks.values()
    if follows:
        queue.lanes[0].log.close_open()
        push(queue, batch(follows), NOW_MS)
        commit(queue)
    making = QueueSnapshot(queue)
    making.step(20)
    assert not making.is_done
    while chunk.live and queue.ready:
        pop(queue, 60, NOW_MS)
    for lease, spans in list(queue.leases.items()):
        for span in list(spans):
            if span.chunk is chunk:
                received(queue, lease, span.first, span.end, NOW_MS)
                ack(queue, lease, span.first, span.end, NOW_MS)
    assert not chunk.live
    commit(queue, making)
    while not making.is_done:
        making.step(1_000)
    assert_same(loaded(queue, making.encoded), queue)


def finished(queue: Queue, making: QueueSnapshot) -> None:
    while not making.is_done:
        making.step(1_000)
    assert_same(loaded(queue, making.encoded), queue)


@pytest.mark.parametrize("entries", range(1, 6))
def test_a_chunk_that_grows_while_the_pen_is_in_it_or_at_its_end(entries: int) -> None:
    queue = new_queue()
    push(queue, msgspec.structs.replace(batch(6), groups="g"), NOW_MS, "p", 1)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(entries)
    if making.is_done:
        return
    push(queue, batch(3), NOW_MS)
    commit(queue, making)
    finished(queue, making)


@pytest.mark.parametrize("entries", [1, 2, 3, 5, 8])
def test_a_change_on_both_sides_of_the_pen(entries: int) -> None:
    queue = new_queue()
    push(queue, msgspec.structs.replace(batch(60), groups="g"), NOW_MS)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(entries)
    assert not making.is_done
    delivery = pop(queue, 58, NOW_MS, one_ack=True)
    commit(queue, making)
    ack(queue, delivery.lease, 2, 55, NOW_MS)
    commit(queue, making)
    finished(queue, making)


def test_what_cannot_be_read_is_in_it() -> None:
    queue = chunks(3)
    commit(queue)
    assert set_aside(queue, queue.lanes[0].log.chunks[32])
    finished(queue, QueueSnapshot(queue))


def test_a_purge_begins_it_anew() -> None:
    queue = delays(100)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(10)
    purge(queue, NOW_MS)
    push(queue, batch(3), NOW_MS)
    commit(queue, making)
    making.step(10)
    assert making.is_done
    assert_same(loaded(queue, making.encoded), queue)


def test_a_producer_that_pushes_meanwhile_has_its_last_answers_and_its_place() -> None:
    queue = producers(30)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(10)
    for name in ("p3", "p25", "new"):
        push(queue, batch(1), NOW_MS, name, 2)
    commit(queue, making)
    making.step(1_000)
    read = image_of(loaded(queue, making.encoded)).producers
    assert read == image_of(queue).producers
    assert list(read)[-3:] == ["p3", "p25", "new"]


def test_a_topic_that_grows_and_is_trimmed_meanwhile() -> None:
    topic = Topic("t", TopicSettings(retention_messages=50), count(1))
    making = None
    for number in range(40):
        topics.publish(topic, batch(number % 3 * 20 + 1), NOW_MS, "p", number)
        topics.flush_topic(topic)
        collected = topics.collect_topic(topic)
        topics.settle_topic(topic, collected.end)
        topics.trim(topic, NOW_MS)
        collected.changes.extend(topics.collect_topic(topic).changes)
        if making is None:
            making = TopicSnapshot(topic)
        else:
            making.note(collected.changes)
        making.step(1)
        if making.is_done:
            read = read_topic_snapshot(bytes(making.encoded))
            assert read == image_of_topic(topic)
            making = None


def test_a_snapshot_of_an_earlier_version_is_read() -> None:
    """It was an image in one piece."""
    queue = one_lease(20)
    push(queue, batch(3), NOW_MS)
    commit(queue)
    assert_same(loaded(queue, encode_image(image_of(queue))), queue)
    assert_same(loaded(queue, encode_image(Image())), new_queue())


@pytest.mark.parametrize("entries", [2, 4, 40])
def test_a_chunk_that_is_copied_forward_behind_the_pen(entries: int) -> None:
    """The snapshot has its old row and its old numbers; what changed is kept beside it."""
    queue = chunks(60)
    commit(queue)
    delivery = pop(queue, 30, NOW_MS, one_ack=True)
    ack(queue, delivery.lease, 0, 30, NOW_MS)
    commit(queue)
    making = QueueSnapshot(queue)
    making.step(entries)
    assert not making.is_done
    first = queue.lanes[0].log.chunks[0]
    copy_forward(queue, first)
    commit(queue, making)
    while not making.is_done:
        making.step(2)
        commit(queue, making)
    found = loaded(queue, making.encoded)
    assert list(found.lanes[0].log.chunks[0].rows) == list(first.rows)
    assert_same(found, queue)


@pytest.mark.parametrize("entries", [1, 3, 1_000])
def test_keys_and_producers_that_come_while_a_snapshot_is_made(entries: int) -> None:
    queue = new_queue(QueueSettings(deduplication="content"))
    for number in range(10):
        push(queue, batch_of([b"%d" % number]), NOW_MS, f"producer {number}", 1)
    commit(queue)
    making = QueueSnapshot(queue)
    for number in range(10, 30):
        making.step(entries)
        if making.is_done:
            break
        push(queue, batch_of([b"%d" % number]), NOW_MS, f"producer {number % 10}", number)
        commit(queue, making)
    while not making.is_done:
        making.step(entries)
        commit(queue, making)
    assert_same(loaded(queue, making.encoded), queue)


def applied(*records: list[c.QueueChange]) -> Queue:
    queue = new_queue()
    apply(queue, records)
    return queue


def test_a_copied_chunk_begins_with_its_new_row_after_a_start() -> None:
    queue = new_queue()
    push_shared(queue, batch_of([b"x" * 3_000] * 40), Place(7, 5, False), NOW_MS)
    came = written(queue)
    delivery = pop(queue, 36, NOW_MS, one_ack=True)
    ack(queue, delivery.lease, 0, 36, NOW_MS)
    gone = written(queue)
    copy_forward(queue, queue.lanes[0].log.chunks[0])
    found = applied(came, gone, written(queue)).lanes[0].log.chunks[0]
    assert (list(found.rows), found.row_start) == ([1], 0)


def test_a_batch_that_lapsed_is_known_as_such_after_a_start() -> None:
    """Else the query would be told that it is empty, and its messages would go to the next."""
    queue = new_queue()
    push(queue, batch(5), NOW_MS)
    came = written(queue)
    epoch = claims.open_claims(queue, "query")
    claims.claim(queue, "query", epoch, 0, 5, NOW_MS, 100)
    claimed = written(queue)
    run_due(queue, NOW_MS + 200)
    found = applied(came, claimed, written(queue)).claims["query"].batches[1]
    assert (found.lease, found.lapsed) == (0, True)


def written(queue: Queue) -> list[c.QueueChange]:
    """What a commit would write."""
    collected = collect(queue)
    settle(queue, collected.mark)
    return collected.changes
