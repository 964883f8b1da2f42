"""A message that repeats one of the window is accepted, answered with the first's number, and
not stored."""

import msgspec
import pytest

from nexo.machine.ack import ack
from nexo.machine.deadlines import run_due
from nexo.machine.purge import purge
from nexo.machine.push import push
from nexo.vocabulary import limits
from nexo.vocabulary.errors import RateLimited
from nexo.vocabulary.limits import DEDUPLICATION_KEYS_FORGOTTEN
from tests.unit.machine.orders import batch, orders, put, take

BY_ID = {"deduplication": "id", "deduplication_window_ms": 100}
BY_CONTENT = {"deduplication": "content", "deduplication_window_ms": 100}


def test_repeated_id_gets_the_first_number() -> None:
    queue = orders(**BY_ID)
    put(queue, b"other")
    first = push(queue, batch(b"a", deduplication_ids=["x"]), 1_000)
    again = push(queue, batch(b"b", deduplication_ids=["x"]), 1_050)
    assert (again.seqs(), again.duplicates) == (first.seqs(), 1)
    assert queue.depth == 2


def test_batch_may_repeat_itself() -> None:
    queue = orders(**BY_ID)
    accepted = push(queue, batch(b"a", b"b", b"c", deduplication_ids=["x", None, "x"]), 1_000)
    assert (accepted.seqs(), accepted.duplicates) == ([0, 1, 0], 1)


def test_window_counts_from_the_first_message() -> None:
    queue = orders(**BY_ID)
    for now_ms, duplicates in ((1_000, 0), (1_099, 1), (1_100, 0)):
        accepted = push(queue, batch(b"a", deduplication_ids=["x"]), now_ms)
        assert accepted.duplicates == duplicates, f"at {now_ms}"


def test_window_holds_after_the_message_is_gone() -> None:
    queue = orders(**BY_ID)
    put(queue, b"a", deduplication_ids=["x"])
    ack(queue, take(queue).lease, 0, 1, 1_000)
    assert push(queue, batch(b"a", deduplication_ids=["x"]), 1_050).duplicates == 1
    assert queue.depth == 0


def test_content_is_recognised_without_an_id() -> None:
    queue = orders(**BY_CONTENT)
    put(queue, b"same")
    assert push(queue, batch(b"same"), 1_000).duplicates == 1
    assert push(queue, batch(b"other"), 1_000).duplicates == 0


def test_id_goes_before_the_content() -> None:
    queue = orders(**BY_CONTENT)
    put(queue, b"same", deduplication_ids=["x"])
    assert push(queue, batch(b"same", deduplication_ids=["y"]), 1_000).duplicates == 0
    assert push(queue, batch(b"other", deduplication_ids=["x"]), 1_000).duplicates == 1


def test_by_id_looks_at_no_content() -> None:
    queue = orders(**BY_ID)
    put(queue, b"same")
    assert push(queue, batch(b"same"), 1_000).duplicates == 0


def test_shorter_window_holds_for_what_comes_then() -> None:
    queue = orders(**{**BY_ID, "deduplication_window_ms": 100_000})
    put(queue, b"a", deduplication_ids=["long"])
    queue.settings = msgspec.structs.replace(queue.settings, deduplication_window_ms=10)
    put(queue, b"b", deduplication_ids=["short"])
    assert push(queue, batch(b"b", deduplication_ids=["short"]), 1_010).duplicates == 0
    assert push(queue, batch(b"a", deduplication_ids=["long"]), 1_010).duplicates == 1


def test_shorter_window_lets_keys_go_in_its_own_time() -> None:
    """They do not wait for those of the longer window that came before them."""
    queue = orders(**{**BY_ID, "deduplication_window_ms": 100_000})
    put(queue, b"a", deduplication_ids=["long"])
    queue.settings = msgspec.structs.replace(queue.settings, deduplication_window_ms=10)
    for number in range(100):
        push(queue, batch(b"b", deduplication_ids=[f"short {number}"]), 1_000 + 10 * number)
    run_due(queue, 3_000)
    assert queue.recent is not None
    assert list(queue.recent.entries()) == ["long"]
    run_due(queue, 102_000)
    assert not queue.recent.entries()


def test_many_keys_go_in_many_steps() -> None:
    queue = orders(**BY_ID)
    count = 3 * DEDUPLICATION_KEYS_FORGOTTEN
    keys = [f"key {number}" for number in range(count)]
    put(queue, *[b""] * count, deduplication_ids=keys)
    assert queue.recent is not None
    for left in (2, 1, 0):
        run_due(queue, 2_000)
        assert len(queue.recent) == left * DEDUPLICATION_KEYS_FORGOTTEN
    again = push(queue, batch(b"", deduplication_ids=[keys[0]]), 2_000)
    assert again.duplicates == 0


def test_key_that_is_over_may_come_again_before_it_is_dropped() -> None:
    queue = orders(**BY_ID)
    push(queue, batch(b"a", deduplication_ids=["x"]), 1_000)
    again = push(queue, batch(b"b", deduplication_ids=["x"]), 1_100)
    assert again.duplicates == 0
    run_due(queue, 1_199)
    assert push(queue, batch(b"c", deduplication_ids=["x"]), 1_199).seqs() == again.seqs()


def test_too_many_keys_are_refused_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """To forget one of them early would let a message through twice."""
    monkeypatch.setattr(limits, "DEDUPLICATION_KEYS_MAX", 2)
    queue = orders(**BY_ID)
    put(queue, b"a", b"b", deduplication_ids=["x", "y"])
    with pytest.raises(RateLimited, match="remembers 2 deduplication ids"):
        push(queue, batch(b"c", deduplication_ids=["z"]), 1_050)
    assert queue.depth == 2
    assert push(queue, batch(b"b", deduplication_ids=["y"]), 1_050).duplicates == 1
    put(queue, b"no key", now_ms=1_050)
    assert push(queue, batch(b"c", deduplication_ids=["z"]), 1_300).duplicates == 0


def test_duplicates_need_no_room() -> None:
    queue = orders(**BY_ID, max_depth=1)
    put(queue, b"a", deduplication_ids=["x"])
    assert push(queue, batch(b"a", deduplication_ids=["x"]), 1_000).duplicates == 1


GROUPS = {**BY_ID, "fifo": True, "deduplication_scope": "group"}


def test_scope_of_groups_lets_another_group_repeat() -> None:
    queue = orders(**GROUPS)
    put(queue, b"a", groups="one", deduplication_ids=["x"])
    assert push(queue, batch(b"b", groups="two", deduplication_ids=["x"]), 1_000).duplicates == 0
    assert push(queue, batch(b"c", groups="one", deduplication_ids=["x"]), 1_000).duplicates == 1


def test_scope_of_groups_holds_for_contents() -> None:
    queue = orders(**{**GROUPS, "deduplication": "content"})
    put(queue, b"a", groups="one")
    accepted = push(queue, batch(b"a", b"a", groups=["two", "one"]), 1_000)
    assert accepted.duplicates == 1


def test_changed_scope_counts_from_its_time_on() -> None:
    queue = orders(**{**GROUPS, "deduplication_scope_since_ms": 1_050})
    put(queue, b"a", groups="one", deduplication_ids=["x"])
    for now_ms, duplicates in ((1_049, 1), (1_050, 0)):
        again = push(queue, batch(b"b", groups="two", deduplication_ids=["x"]), now_ms)
        assert again.duplicates == duplicates, f"at {now_ms}"


def test_purge_forgets_what_was_pushed() -> None:
    queue = orders(**BY_ID)
    put(queue, b"a", deduplication_ids=["x"])
    purge(queue, 1_000)
    assert push(queue, batch(b"a", deduplication_ids=["x"]), 1_000).duplicates == 0
