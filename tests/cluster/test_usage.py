"""When a node sends a client to another one: the decision alone."""

from __future__ import annotations

from itertools import pairwise

from nexo.cluster.redirects import Usage, deliveries_in
from nexo.vocabulary.limits import (
    CLUSTER_REDIRECT_AGAIN_S,
    CLUSTER_REDIRECT_FRAMES,
    CLUSTER_REDIRECT_WINDOW_S,
)
from nexo.wire.frame import Kind, frame, frame_parts

WINDOW_S, FRAMES = CLUSTER_REDIRECT_WINDOW_S, CLUSTER_REDIRECT_FRAMES


def test_one_whose_frames_all_go_to_another_node() -> None:
    usage = Usage(0.0)
    told = [usage.count("b", at * 0.01) for at in range(1_000)]
    assert [at * 0.01 for at, each in enumerate(told) if each] == [WINDOW_S]
    assert [each for each in told if each] == ["b"]


def test_few_frames_take_longer() -> None:
    usage = Usage(0.0)
    told = [usage.count("b", float(at)) for at in range(FRAMES)]
    assert [at for at, each in enumerate(told) if each] == [FRAMES - 1]


def test_it_is_told_again_after_a_while() -> None:
    """It may not have been able to go there, or have been elsewhere since."""
    usage = Usage(0.0)
    told = [at * 0.01 for at in range(2_500) if usage.count("b", at * 0.01)]
    assert len(told) == 3
    assert all(later - at >= CLUSTER_REDIRECT_AGAIN_S for at, later in pairwise(told))


def test_one_that_uses_two_nodes_alike_stays() -> None:
    usage, two = Usage(0.0), Usage(0.0)
    for at in range(10_000):
        assert usage.count(None, at * 0.01) is None
        assert usage.count("b", at * 0.01) is None
        assert two.count("b" if at % 2 else "c", at * 0.01) is None


def test_three_quarters() -> None:
    for here, is_sent in ((1, True), (2, False)):
        usage = Usage(0.0)
        told = [usage.count(None if at % 4 < here else "b", at * 0.01) for at in range(1_000)]
        assert any(told) is is_sent, here


def test_what_was_long_ago_does_not_count() -> None:
    usage = Usage(0.0)
    for at in range(100_000):
        usage.count(None, at * 0.001)
    told = [usage.count("b", 100.0 + at * 0.01) for at in range(300)]
    assert "b" in told


def test_many_deliveries_count_as_many() -> None:
    usage = Usage(0.0)
    assert usage.count("b", 0.5, FRAMES) is None
    usage.count(None, 0.6, 2)
    assert usage.count("b", WINDOW_S) == "b"


def test_deliveries_are_counted_however_they_are_cut() -> None:
    answer = frame(Kind.OK, 1, b"head", b"body")
    pieces = frame_parts(Kind.DELIVER, 0, b"head", [bytes([Kind.DELIVER]) * 50, b"x" * 100])
    assert deliveries_in([answer]) == 0
    assert deliveries_in(pieces) == 1
    assert deliveries_in([answer, *pieces, answer, *pieces]) == 2
    joined = b"".join([answer, *pieces, *pieces])
    assert deliveries_in([joined]) == 2
    assert deliveries_in([memoryview(joined), *pieces]) == 3
