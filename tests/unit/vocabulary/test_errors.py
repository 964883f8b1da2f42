"""Every refusal has a code that programs rely on, and the tree in the docstring is the tree."""

import inspect
import re

import pytest

from nexo.vocabulary import errors
from nexo.vocabulary.errors import InvalidArgument, NexoError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, NexoError) and kind is not NexoError
]
PROMISED = [
    "invalid_argument",
    "message_too_large",
    "queue_not_found",
    "queue_exists",
    "topic_not_found",
    "topic_exists",
    "queue_full",
    "stale_receipt",
    "wrong_state",
    "unauthorized",
    "forbidden",
    "rate_limited",
    "read_only",
    "not_ready",
    "unreachable",
    "timeout",
    "version_mismatch",
    "fenced",
    "lease_lost",
    "offset_expired",
]


def test_promised_codes_exist_once_each() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert set(PROMISED) <= set(codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_docstring_tells_of_it(kind: type[NexoError]) -> None:
    line = re.search(rf"[├└]── {kind.__name__} +(.*)", errors.__doc__ or "")
    assert line, f"the tree in the docstring lacks {kind.__name__}"
    words = line[1].split()
    told = (words[0], "yes" in words[1:2], int(words[2 if "yes" in words[1:2] else 1]))
    assert told == (kind.code, kind.retryable, kind.http_status)


def test_text_holds_the_hint() -> None:
    assert str(InvalidArgument("no", "do that")) == "no (do that)"
    assert str(InvalidArgument("no")) == "no"
