"""What is on disk stays readable: tags of changes and numbers of states never change."""

from typing import get_args

import pytest

from nexo.vocabulary import changes as c
from nexo.vocabulary.events import Event, batch_of_events, decode_event
from nexo.vocabulary.states import Cause, EventKind, State

TAGS = {
    1: c.Pushed,
    2: c.Delivered,
    3: c.DeadlineSet,
    4: c.Removed,
    5: c.Returned,
    6: c.Purged,
    7: c.Rewritten,
    8: c.Remembered,
    9: c.Produced,
    10: c.ClaimOpened,
    11: c.Claimed,
    12: c.Sealed,
    13: c.ClaimAcked,
    14: c.ClaimEmptied,
    15: c.ClaimForgotten,
    16: c.PauseSet,
    20: c.Published,
    21: c.Trimmed,
    30: c.QueueDefined,
    31: c.TopicDefined,
    32: c.Dropped,
    33: c.Bound,
    34: c.Unbound,
    35: c.TokenDefined,
    36: c.TokenRevoked,
    37: c.MoveNoted,
}
QUEUE_CHANGES: list[c.QueueChange] = [
    c.Pushed(1, 0, 10, 10, 12, 100, 200, [0, 300], ["a", None], 9),
    c.Pushed(1, 0, 10, 10, 12, 100, 200, 0, None, 9, (2, 3), 300),
    c.Delivered(5, State.SENT, 100, 200, 30, "c", (10, 12)),
    c.DeadlineSet(5, (10, 11), State.SEALED, 0, True),
    c.Removed(5, Cause.ACKED, (10, 11)),
    c.Returned(5, Cause.NACKED, 100, 0, (11, 12)),
    c.Purged(100),
    c.Rewritten(10, 2, [11], 3),
    c.Remembered(100, ["k"], [10]),
    c.Produced("p", 1, 100, [10, 12]),
    c.ClaimOpened("q", 1),
    c.Claimed("q", 1, 5),
    c.Sealed("q", 1),
    c.ClaimAcked("q", 1),
    c.ClaimEmptied("q", 1, True),
    c.ClaimForgotten("q"),
    c.PauseSet(True),
]


def test_tags_stand_for_what_they_always_did() -> None:
    known = {kind.__struct_config__.tag: kind for kind in TAGS.values()}
    assert known == TAGS
    unions = (c.QueueChange, c.TopicChange, c.CatalogChange)
    named = {kind for union in unions for kind in get_args(union)}
    assert named == set(TAGS.values()), "a change without a tag in this test"


@pytest.mark.parametrize("change", QUEUE_CHANGES, ids=lambda change: type(change).__name__)
def test_change_comes_back_from_its_bytes(change: c.QueueChange) -> None:
    assert c.decode_queue_changes(c.encode_changes([change])) == [change]


def test_every_change_of_a_queue_is_tried() -> None:
    assert {type(change) for change in QUEUE_CHANGES} == set(get_args(c.QueueChange))


def test_numbers_of_states_stand_still() -> None:
    assert [state.name for state in sorted(State)] == [
        "SCHEDULED",
        "READY",
        "SENT",
        "RECEIVED",
        "CLAIMED",
        "SEALED",
        "DOOMED",
        "MOVING",
        "GONE",
    ]
    assert [cause.name for cause in sorted(Cause)] == [
        "ACKED",
        "RETENTION",
        "PURGED",
        "DEAD_LETTERED",
        "REDRIVEN",
        "NACKED",
        "RETRANSMIT_TIMEOUT",
        "VISIBILITY_TIMEOUT",
        "GIVEN_BACK",
        "CLAIM_LAPSED",
        "RELEASED",
    ]
    for kinds in (State, Cause):
        assert [kind.value for kind in sorted(kinds)] == list(range(len(kinds)))


def test_words_of_events_stand_still() -> None:
    assert [kind.value for kind in EventKind] == [
        "pushed",
        "delivered",
        "received",
        "acked",
        "nacked",
        "returned",
        "timed_out",
        "expired",
        "dead_lettered",
        "redriven",
        "purged",
        "deduplicated",
    ]
    event = Event(
        kind=EventKind.NACKED,
        queue="q",
        first_seq=7,
        count=2,
        at_ms=1_000,
        created_ms=900,
        attempts=3,
        consumer="me",
        reason='it said "no"\n',
        delivered_ms=950,
    )
    batch = batch_of_events([event, event])
    told = (
        b'{"kind":"nacked","queue":"q","first_seq":7,"count":2,"at_ms":1000,"created_ms":900,'
        b'"attempts":3,"consumer":"me","reason":"it said \\"no\\"\\n","delivered_ms":950}'
    )
    assert batch.bodies() == [told, told]
    assert decode_event(batch.body(1)) == event
