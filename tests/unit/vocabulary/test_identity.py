"""A message id holds the queue's incarnation and the sequence number, and both come back."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import first_seq, message_id, parse_message_id, priority_of

INCARNATIONS = st.integers(0, 2**64 - 1)
SEQS = st.integers(0, 2**56 - 1)


@given(INCARNATIONS, SEQS)
def test_id_tells_its_parts(incarnation: int, seq: int) -> None:
    assert parse_message_id(message_id(incarnation, seq)) == (incarnation, seq)


@given(INCARNATIONS, SEQS)
def test_id_is_a_uuid_of_the_custom_kind(incarnation: int, seq: int) -> None:
    text = message_id(incarnation, seq)
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (8, uuid.RFC_4122)


def test_ids_of_neighbours_differ() -> None:
    ids = {message_id(incarnation, seq) for incarnation in range(3) for seq in range(3)}
    assert len(ids) == 9


@pytest.mark.parametrize("priority", [0, 1, 255])
def test_number_tells_its_priority(priority: int) -> None:
    assert priority_of(first_seq(priority)) == priority
    assert priority_of(first_seq(priority) + 2**48 - 1) == priority


@pytest.mark.parametrize("text", ["", "abc", "z" * 32, str(uuid.UUID(int=0)), "é" * 32])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a message id"):
        parse_message_id(text)
