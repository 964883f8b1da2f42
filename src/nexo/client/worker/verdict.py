"""What a handler's answer means for the messages it was given, by the rules of Lambda.

| answer | meaning |
|---|---|
| anything without `batchItemFailures` | all done |
| `batchItemFailures` is an empty list or None | all done |
| `batchItemFailures` names some of the messages | those failed, the others are done |
| `batchItemFailures` is malformed, or names a message that was not in the batch | all failed |

Beyond Lambda, a failed item may carry a `reason`, which its dead letter then tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.message import reason_of

if TYPE_CHECKING:
    from collections.abc import Collection

LISTED = "the handler listed it in batchItemFailures"
_KEY, _ITEM = "batchItemFailures", "itemIdentifier"


class Verdict(msgspec.Struct, frozen=True):
    """`error` is why all of the batch failed; else `failed` has the reason of each that did."""

    failed: dict[str, str] = {}
    error: str | None = None


DONE = Verdict()


def failure(error: BaseException) -> Verdict:
    """The verdict of a handler that raised."""
    return Verdict(error=reason_of(error))


def read_answer(answer: Any, ids: Collection[str]) -> Verdict:
    """The verdict of a handler that returned, on the messages with these ids."""
    if not isinstance(answer, Mapping) or answer.get(_KEY) is None:
        return DONE
    items = answer[_KEY]
    if not isinstance(items, (list, tuple)):
        return _malformed(f"it is {items!r:.60}, not a list")
    failed: dict[str, str] = {}
    for item in items:
        found = item.get(_ITEM) if isinstance(item, Mapping) else None
        if not isinstance(found, str) or not found:
            return _malformed(f"{item!r:.80} has no {_ITEM}")
        if found not in ids:
            return _malformed(f"{found!r:.80} is not in the batch")
        failed[found] = str(item.get("reason") or LISTED)
    return Verdict(failed) if failed else DONE


def _malformed(what: str) -> Verdict:
    return Verdict(error=f"the handler's {_KEY} is malformed: {what}")
