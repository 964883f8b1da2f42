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
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.id is None:
            raise missing(f"{kind}.{number}.Id")
        if not _ID.fullmatch(entry.id):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry.id in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        seen.add(entry.id)
    return entries


def failed(entry_id: str | None, error: SqsError) -> BatchResultErrorEntry:
    """An entry that could not be done, while others could."""
    return BatchResultErrorEntry(
        id=entry_id, sender_fault=error.is_sender, code=error.code, message=error.message
    )
