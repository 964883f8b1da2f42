"""Receipt handles: whatever is not one of this queue is refused."""

import pytest

from nexo.doors.sqs_http.errors import SqsError
from nexo.doors.sqs_http.receipts import Handle, handle_of, read_handle

INCARNATION, LEASE, SEQ = 2**64 - 1, 3 << 44 | 9, 255 << 48 | 7


def test_a_handle_says_what_it_was_made_of() -> None:
    assert read_handle(handle_of(INCARNATION, LEASE, SEQ), INCARNATION) == Handle(LEASE, SEQ)


@pytest.mark.parametrize(
    "text", ["", "garbage", "a" * 1_000, "ü", "AAAA", handle_of(1, LEASE, SEQ)]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(SqsError, match="is not a valid receipt handle") as refused:
        read_handle(text, INCARNATION)
    assert refused.value.code == "ReceiptHandleIsInvalid"


def test_no_letter_can_be_changed() -> None:
    handle = handle_of(INCARNATION, LEASE, SEQ)
    for at, letter in enumerate(handle.rstrip("=")):
        changed = handle[:at] + ("A" if letter != "A" else "B") + handle[at + 1 :]
        with pytest.raises(SqsError):
            read_handle(changed, INCARNATION)
