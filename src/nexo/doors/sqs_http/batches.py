"""What the three batch actions have in common: up to ten entries, each with an id of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from nexo.doors.sqs_http.errors import SqsError, missing
from nexo.doors.sqs_http.shapes import BatchResultErrorEntry

if TYPE_CHECKING:
    from nexo.doors.sqs_http import shapes

    Entry = TypeVar(
        "Entry",
        shapes.SendMessageBatchRequestEntry,
        shapes.DeleteMessageBatchRequestEntry,
        shapes.ChangeMessageVisibilityBatchRequestEntry,
    )

ENTRIES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_entries(entries: list[Entry] | None, kind: str) -> list[Entry]:
    """Refuse a batch that is wrong as a whole."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {ENTRIES_MAX}. "
            f"You have sent {len(entries)}.",
        )
    ids = [entry.id for entry in entries]
    given = [each for each in ids if each is not None]
    if len(set(given)) < len(ids) or not all(map(_ID.fullmatch, given)):
        raise _wrong_id(ids, kind)
    return entries


def _wrong_id(ids: list[str | None], kind: str) -> SqsError:
    """What is wrong with the first of them that is."""
    seen: set[str] = set()
    for number, each in enumerate(ids, 1):
        if each is None:
            return missing(f"{kind}.{number}.Id")
        if not _ID.fullmatch(each):
            break
        if each in seen:
            return SqsError("BatchEntryIdsNotDistinct", f"Id {each} repeated.")
        seen.add(each)
    return SqsError(
        "InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It "
        "can be at most 80 letters long.",
    )


def failed(entry_id: str | None, error: SqsError) -> BatchResultErrorEntry:
    """An entry that could not be done, while others could."""
    return BatchResultErrorEntry(
        id=entry_id, sender_fault=error.is_sender, code=error.code, message=error.message
    )
