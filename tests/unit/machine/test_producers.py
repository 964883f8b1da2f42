"""A producer that sends a push again gets its first answer, and nothing is stored twice."""

import gc

import msgspec
import pytest

from nexo.machine.image import Image, ProducerImage, decode_image, encode_image, image_of, revive
from nexo.machine.producers import Producers
from nexo.machine.push import push
from nexo.vocabulary.changes import Produced, decode_queue_changes, encode_changes
from nexo.vocabulary.errors import InvalidArgument, NumberReused
from nexo.vocabulary.limits import PRODUCER_IDLE_MS, PRODUCER_RESULTS_KEPT, PRODUCERS_MAX
from tests.unit.machine.orders import batch, commit, orders


def test_retry_gets_the_same_answer() -> None:
    queue = orders()
    push(queue, batch(b"other"), 1_000)
    first = push(queue, batch(b"a", b"b", priority=bytes([3, 0])), 1_000, "spark", 5)
    again = push(queue, batch(b"a", b"b", priority=bytes([3, 0])), 9_000, "spark", 5)
    assert (again.seqs(), again.duplicates) == (first.seqs(), 2)
    assert queue.depth == 3


def test_other_messages_under_a_number_are_refused() -> None:
    queue = orders()
    push(queue, batch(b"a", b"b"), 1_000, "spark", 5, checksum=77)
    assert push(queue, batch(b"b", b"a"), 1_000, "spark", 5, checksum=77).duplicates == 2
    changes = len(queue.changes)
    with pytest.raises(NumberReused, match=r"push 5 of producer 'spark' .* other messages"):
        push(queue, batch(b"c", b"d"), 1_000, "spark", 5, checksum=78)
    assert (queue.depth, len(queue.changes)) == (2, changes)
    assert push(queue, batch(b"c"), 1_000, "spark", 5).duplicates == 1, "who says none is let by"
    assert push(queue, batch(b"c"), 1_000, "spark", 6, checksum=78).duplicates == 0


def test_checksums_go_through_the_journal() -> None:
    """Both through a snapshot and through the record of the push."""
    queue = orders()
    push(queue, batch(b"a"), 1_000, "spark", 5, checksum=77)
    (told,) = [change for change in queue.changes if isinstance(change, Produced)]
    assert decode_queue_changes(encode_changes([told])) == [Produced("spark", 5, 1_000, [0, 1], 77)]
    commit(queue)
    again = orders()
    revive(again, decode_image(encode_image(image_of(queue))))
    with pytest.raises(NumberReused):
        push(again, batch(b"b"), 1_000, "spark", 5, checksum=78)


def test_what_an_older_broker_has_kept_is_read() -> None:
    """It knew no checksums: there is nothing to compare with."""
    old = Image(producers={"spark": ProducerImage(1_000, {5: [0, 1]})})
    fields = msgspec.msgpack.decode(encode_image(old))
    fields["producers"]["spark"] = fields["producers"]["spark"][:2]
    queue = orders()
    revive(queue, decode_image(msgspec.msgpack.encode(fields)))
    assert push(queue, batch(b"b"), 1_000, "spark", 5, checksum=78).ranges == [0, 1]
    record = msgspec.msgpack.encode([[9, "spark", 6, 1_000, [1, 2]]])
    assert decode_queue_changes(record) == [Produced("spark", 6, 1_000, [1, 2])]


def test_a_checksum_goes_with_its_number() -> None:
    producers = Producers()
    for number in range(PRODUCER_RESULTS_KEPT + 2):
        producers.remember("p", number, 1_000, [number, number + 1], checksum=number + 1)
    assert len(producers.by_name["p"].checksums()) == PRODUCER_RESULTS_KEPT
    assert producers.answer("p", 1, checksum=99) == [], "forgotten, but accepted long ago"


def test_each_producer_counts_for_itself() -> None:
    queue = orders()
    for producer in ("one", "other"):
        assert push(queue, batch(b"a"), 1_000, producer, 1).duplicates == 0
    assert queue.depth == 2


def test_number_below_all_that_are_kept_was_accepted_long_ago() -> None:
    producers = Producers()
    for number in range(1, PRODUCER_RESULTS_KEPT + 2):
        producers.remember("p", number, 1_000, [number, number + 1])
    assert producers.answer("p", 2) == [2, 3]
    assert producers.answer("p", 1) == []
    assert producers.answer("p", 1_000) is None
    assert len(producers.by_name["p"]) == PRODUCER_RESULTS_KEPT


def test_answers_of_every_shape_and_order_are_kept() -> None:
    producers = Producers()
    answers = {9: [4, 5], 3: [], 7: [1, 2, 5, 9], 2**64 - 1: [9, 11], 5: [-1, -1]}
    for number, ranges in answers.items():
        producers.remember("p", number, 1_000, ranges)
    producers.remember("p", 7, 1_000, [0, 1])
    answers[7] = [0, 1]
    assert {number: producers.answer("p", number) for number in answers} == answers
    assert producers.by_name["p"].answers() == answers
    known = Producers()
    known.recall("p", 1_000, answers)
    assert known.by_name["p"].answers() == answers


def test_an_answer_takes_a_few_bytes() -> None:
    """Each of hundreds of clients has its last answers kept in each of hundreds of queues."""
    producers, clients = Producers(), 20
    gc.collect()
    before = len(gc.get_objects())
    for number in range(2 * PRODUCER_RESULTS_KEPT):
        for client in range(clients):
            producers.remember(f"p{client}", number, 1_000, [2**50, 2**50 + 1])
    gc.collect()
    made = len(gc.get_objects()) - before  # also by other threads of this process
    assert made < clients * PRODUCER_RESULTS_KEPT / 3, "an answer is an object"


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_beyond_every_client_is_refused_before_anything_changes(number: int) -> None:
    queue = orders()
    with pytest.raises(InvalidArgument, match="push number"):
        push(queue, batch(b"a"), 1_000, "p", number)
    assert (queue.depth, queue.producers) == (0, None)


def test_number_that_comes_late_is_new_while_few_are_known() -> None:
    producers = Producers()
    producers.remember("p", 7, 1_000, [0, 1])
    assert producers.answer("p", 6) is None


def test_silent_producers_are_forgotten() -> None:
    producers = Producers()
    producers.remember("old", 1, 1_000, [0, 1])
    producers.remember("new", 1, 1_000 + PRODUCER_IDLE_MS, [1, 2])
    assert list(producers.by_name) == ["new"]


def test_number_of_producers_is_bounded() -> None:
    producers = Producers()
    for number in range(PRODUCERS_MAX + 1):
        producers.remember(str(number), 1, 1_000, [0, 1])
    assert len(producers.by_name) == PRODUCERS_MAX
    assert "0" not in producers.by_name
