"""What every journal must do, whatever it is made of."""

from __future__ import annotations

from array import array

import pytest

from nexo.journal.port import CATALOG, Stored, Write
from nexo.vocabulary.batch import Batch, DeadLetter, Origin, batch_of
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, NotReady
from tests.journal.places import Place, bodies, change

FULL_BATCH = Batch(
    payload=b"onetwothree",
    offsets=array("i", [0, 3, 6, 11]),
    groups=["red", None, "blue"],
    deduplication_ids=["a", None, "ü"],
    attributes=[b"\x80", None, b""],
    origins=[Origin("id", 5, DeadLetter("why", "orders", 3, 1, 2)), None, Origin("other", 6)],
    priority=7,
)


def test_a_new_journal_is_empty(place: Place) -> None:
    journal = place.journal()
    assert journal.open() == 1
    assert journal.owners() == []
    assert journal.last_row() == 0
    assert journal.load(7) == Stored(None, [])


def test_the_epoch_grows_with_every_opening(place: Place) -> None:
    journal = place.journal()
    epochs = [journal.open(), journal.open()]
    journal.close()
    epochs.append(journal.open())
    journal.close()
    epochs.append(place.journal().open())
    assert epochs == [1, 2, 3, 4]


def test_records_come_back_in_order(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(Write(CATALOG, b"c1"), Write(5, b"a")))
    journal.commit(change(Write(5, b"b")))
    journal.commit(change(Write(5, b""), Write(5, b"c")))
    journal.close()
    again = place.journal()
    again.open()
    assert again.owners() == [CATALOG, 5]
    assert again.load(5) == Stored(None, [b"a", b"b", b"", b"c"])
    again.commit(change(Write(5, b"d")))
    assert again.load(5).records[-2:] == [b"c", b"d"]


def test_a_snapshot_stands_for_every_record_up_to_its_own(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(Write(1, b"a"), Write(2, b"x")))
    journal.commit(change(Write(1, b"b", b"folded")))
    assert journal.load(1) == Stored(b"folded", [])
    journal.commit(change(Write(1, b"c")))
    journal.commit(change(Write(1, b"d", b"")))
    journal.commit(change(Write(1, b"e")))
    journal.close()
    journal.open()
    assert journal.load(1) == Stored(b"", [b"e"])
    assert journal.load(2) == Stored(None, [b"x"])


def test_rows_come_back_as_they_were_in_the_order_asked_for(place: Place) -> None:
    journal = place.journal()
    journal.open()
    plain, large = bodies("p", ""), batch_of([bytes([n]) * 50_000 for n in range(20)])
    journal.commit(change(rows={1: plain, 2: FULL_BATCH, 3: large}))
    journal.close()
    journal.open()
    assert journal.fetch([3, 1, 2, 1]) == [large, plain, FULL_BATCH, plain]
    assert journal.fetch([]) == []


def test_constant_columns_stay_constant(place: Place) -> None:
    journal = place.journal()
    journal.open()
    batch = Batch(payload=b"ab", offsets=array("i", [0, 1, 2]), groups="g", attributes=b"\xc0")
    journal.commit(change(rows={1: batch}))
    assert journal.fetch([1]) == [batch]


@pytest.mark.parametrize("wrap", [bytearray, memoryview])
def test_any_buffer_is_a_payload(place: Place, wrap: type) -> None:
    journal = place.journal()
    journal.open()
    batch = Batch(payload=wrap(b"abc"), offsets=array("i", [0, 1, 3]))
    journal.commit(change(rows={1: batch}))
    assert journal.fetch([1])[0].bodies() == [b"a", b"bc"]


def test_a_missing_row_is_corruption(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(rows={1: bodies("a"), 2: bodies("b")}))
    journal.commit(change(dropped_rows=[1]))
    assert journal.fetch([2])[0].bodies() == [b"b"]
    with pytest.raises(DataCorrupt, match="row 1"):
        journal.fetch([2, 1])


def test_dropped_rows_are_gone_and_others_stay(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(rows={row: bodies(str(row)) for row in range(1, 31)}))
    journal.commit(change(dropped_rows=[9, 3, 4, 5, 30, 20, 19, 99]))
    for row in range(1, 31):
        if row in (3, 4, 5, 9, 19, 20, 30):
            with pytest.raises(DataCorrupt):
                journal.fetch([row])
        else:
            assert journal.fetch([row])[0].bodies() == [str(row).encode()]


def test_a_row_may_come_and_go_in_one_commit(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(rows={1: bodies("a"), 2: bodies("b")}, dropped_rows=[2]))
    with pytest.raises(DataCorrupt):
        journal.fetch([2])
    assert journal.fetch([1])[0].bodies() == [b"a"]
    journal.close()
    journal.open()
    assert journal.last_row() == 2


@pytest.mark.parametrize("drops", [[[1, 2, 3]], [[3], [2], [1]], [[1], [2], [3]], [[2, 3], [1]]])
def test_the_last_row_survives_the_deletion_of_all_rows(
    place: Place, drops: list[list[int]]
) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(rows={row: bodies("a") for row in (1, 2, 3)}))
    for rows in drops:
        journal.commit(change(dropped_rows=rows))
        assert journal.last_row() == 3
        journal.close()
        journal.open()
        assert journal.last_row() == 3
    journal.commit(change(rows={7: bodies("a")}))
    journal.close()
    journal.open()
    assert journal.last_row() == 7


def test_a_dropped_owner_is_gone_with_what_it_wrote_in_the_same_commit(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(Write(1, b"a", b"s"), Write(2, b"b")))
    journal.commit(change(Write(1, b"c"), Write(2, b"d"), dropped_owners=[1]))
    assert journal.owners() == [2]
    assert journal.load(1) == Stored(None, [])
    assert journal.load(2) == Stored(None, [b"b", b"d"])
    journal.commit(change(Write(1, b"new life")))
    assert journal.load(1) == Stored(None, [b"new life"])


def test_owners_lists_those_with_a_snapshot_and_those_with_records(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(Write(9, b"a"), Write(3, b"b", b"s"), Write(0, b"c")))
    journal.commit(change(Write(3, b"b2")))
    assert journal.owners() == [0, 3, 9]


@pytest.mark.parametrize(
    "batch",
    [
        Batch(payload=b"ab", offsets=array("q", [0, 1, 2])),
        Batch(payload=b"ab", offsets=[0, 1, 2]),  # type: ignore[arg-type]
        Batch(payload=b"ab", offsets=array("i", [0, 1, 3])),
        Batch(payload=b"ab", offsets=array("i", [1, 2])),
        Batch(payload=b"", offsets=array("i", [0])),
    ],
)
def test_a_batch_that_fits_no_row_is_refused_and_nothing_changes(
    place: Place, batch: Batch
) -> None:
    journal = place.journal()
    journal.open()
    with pytest.raises(InvalidArgument, match="row 2"):
        journal.commit(change(Write(1, b"a"), rows={1: bodies("good"), 2: batch}))
    assert journal.owners() == []
    assert journal.last_row() == 0


def test_a_row_number_cannot_be_used_twice(place: Place) -> None:
    journal = place.journal()
    journal.open()
    journal.commit(change(rows={1: bodies("first")}))
    with pytest.raises(InvalidArgument):
        journal.commit(change(Write(1, b"a"), rows={2: bodies("x"), 1: bodies("second")}))
    assert journal.owners() == []
    assert journal.last_row() == 1
    assert journal.fetch([1])[0].bodies() == [b"first"]
    journal.commit(change(Write(1, b"b"), rows={2: bodies("y")}))
    assert journal.load(1) == Stored(None, [b"b"])


def test_a_closed_journal_says_so(place: Place) -> None:
    journal = place.journal()
    for call in (journal.owners, journal.last_row, journal.usage, journal.tidy):
        with pytest.raises(NotReady):
            call()
    journal.open()
    journal.close()
    with pytest.raises(NotReady):
        journal.commit(change(Write(1, b"a")))
    with pytest.raises(NotReady):
        journal.fetch([1])


def test_usage_grows_with_what_is_stored(place: Place) -> None:
    journal = place.journal()
    journal.open()
    before = journal.usage().stored_bytes
    journal.commit(change(rows={1: batch_of([bytes(1_000_000)])}))
    assert journal.usage().stored_bytes >= before + 1_000_000
