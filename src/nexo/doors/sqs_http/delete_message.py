"""DeleteMessage and ChangeMessageVisibility, one by one and in batches.

A standard queue forgives: the handle of an earlier delivery still speaks for the message. A FIFO
queue does not. What the engine calls a stale receipt is looked at once more for that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from nexo.doors.sqs_http.batches import check_entries, failed
from nexo.doors.sqs_http.call import TAKEN, Later
from nexo.doors.sqs_http.errors import SqsError, invalid_value, missing
from nexo.doors.sqs_http.receive_message import VISIBILITY_S_MAX
from nexo.doors.sqs_http.shapes import (
    ChangeMessageVisibilityBatchResult,
    ChangeMessageVisibilityBatchResultEntry,
    DeleteMessageBatchResult,
    DeleteMessageBatchResultEntry,
)
from nexo.engine.committer import call_back
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.errors import StaleReceipt, WrongState
from nexo.vocabulary.limits import SQS_TOLD_CHARS_MAX
from nexo.vocabulary.sqs import read_handle

if TYPE_CHECKING:
    from typing import Any

    from nexo.doors.sqs_http.call import Call, Taken
    from nexo.doors.sqs_http.shapes import (
        ChangeMessageVisibilityBatchRequest,
        ChangeMessageVisibilityRequest,
        DeleteMessageBatchRequest,
        DeleteMessageRequest,
    )
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.receipts import Refused
    from nexo.vocabulary.sqs import Receipt


def delete_message(call: Call, request: DeleteMessageRequest) -> Taken:
    actor = call.queue(request.queue_url)
    text = request.receipt_handle or ""
    call.door.deletes.add(actor, _receipt(actor, text), text, call)
    call.door.clients.deleted(call, actor.queue.name, 1)
    return TAKEN


class Deletes:
    """Those that come in one turn of the event loop, each by a request of its own: what has to be
    done before the disk has them is done once for all of a queue."""

    def __init__(self) -> None:
        self._gathered: dict[QueueActor, list[tuple[Receipt, str, Call]]] = {}

    def add(self, actor: QueueActor, receipt: Receipt, text: str, call: Call) -> None:
        """Delete it with the others of this turn, and answer the call then."""
        deletes = self._gathered.get(actor)
        if deletes is None:
            if not self._gathered:
                asyncio.get_running_loop().call_soon(self._ack_all)
            deletes = self._gathered[actor] = []
        deletes.append((receipt, text, call))

    def _ack_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for actor, deletes in gathered.items():
            future, failure = outcome_of(_ack, actor, deletes)
            if failure is None:
                call_back(future, partial(_acked, actor, deletes))
            else:
                _acked(actor, deletes, None, failure)


def _ack(actor: QueueActor, deletes: list[tuple[Receipt, str, Call]]) -> asyncio.Future[Refused]:
    actor.check_in_service()
    return actor.ack_ranges([(lease, seq, seq + 1) for (_, lease, seq), _, _ in deletes])


def _acked(
    actor: QueueActor,
    deletes: list[tuple[Receipt, str, Call]],
    refused: Refused | None,
    error: BaseException | None,
) -> None:
    if error is not None:
        for _, _, call in deletes:
            call.told(None, error)
        return
    if not refused:
        for _, _, call in deletes:
            call.done(None)
        return
    stale = {(lease, seq) for lease, seq, _, _ in refused}
    for receipt, text, call in deletes:
        if receipt[1:] not in stale:
            call.told(None, None)
            continue
        late, failure = outcome_of(_delete_late, actor, receipt, text)
        if failure is None and late is not None:
            call_back(late, call.told)
        else:
            call.told(None, failure)


async def delete_message_batch(
    call: Call, request: DeleteMessageBatchRequest
) -> DeleteMessageBatchResult:
    actor = call.queue(request.queue_url)
    kind = "DeleteMessageBatchRequestEntry"
    entries = check_entries(request.entries, kind)
    good, bad = [], []
    for number, entry in enumerate(entries, 1):
        if entry.receipt_handle is None:
            raise missing(f"{kind}.{number}.ReceiptHandle")
        try:
            receipt = _receipt(actor, entry.receipt_handle)
        except SqsError as error:
            bad.append(failed(entry.id, error))
            continue
        good.append((entry, receipt))
    call.door.clients.deleted(call, actor.name, len(good))
    # All of them at once: neighbours of one delivery need not be told one by one.
    refused = await actor.ack_ranges([(lease, seq, seq + 1) for _, (_, lease, seq) in good])
    stale = {(lease, first) for lease, first, _, _ in refused}
    done = []
    for entry, receipt in good:
        try:
            if receipt[1:] in stale:
                late = _delete_late(actor, receipt, entry.receipt_handle or "")
                if late is not None:
                    await late
            done.append(DeleteMessageBatchResultEntry(id=entry.id))
        except SqsError as error:
            bad.append(failed(entry.id, error))
    return DeleteMessageBatchResult(successful=done or None, failed=bad or None)


def change_message_visibility(call: Call, request: ChangeMessageVisibilityRequest) -> Later | None:
    actor = call.queue(request.queue_url)
    wait = _change(actor, request.receipt_handle or "", request.visibility_timeout or 0)
    return None if wait is None else Later(wait)


async def change_message_visibility_batch(
    call: Call, request: ChangeMessageVisibilityBatchRequest
) -> ChangeMessageVisibilityBatchResult:
    actor = call.queue(request.queue_url)
    kind = "ChangeMessageVisibilityBatchRequestEntry"
    done, bad, waits = [], [], []
    for number, entry in enumerate(check_entries(request.entries, kind), 1):
        if entry.receipt_handle is None:
            raise missing(f"{kind}.{number}.ReceiptHandle")
        try:
            waits.append(_change(actor, entry.receipt_handle, entry.visibility_timeout or 0))
            done.append(ChangeMessageVisibilityBatchResultEntry(id=entry.id))
        except SqsError as error:
            bad.append(failed(entry.id, error))
    for wait in waits:
        if wait is not None:
            await wait
    return ChangeMessageVisibilityBatchResult(successful=done or None, failed=bad or None)


def _delete_late(actor: QueueActor, receipt: Receipt, text: str) -> asyncio.Future[Any] | None:
    """What was received again meanwhile, or is back in line; None if it is gone already."""
    _, _, seq = receipt
    if not actor.settings.fifo:
        return actor.discard(seq)
    if actor.holds(seq):
        raise invalid_value(text, "ReceiptHandle", "The receipt handle has expired.")
    return None


def _change(actor: QueueActor, text: str, timeout_s: int) -> asyncio.Future[Any] | None:
    if not 0 <= timeout_s <= VISIBILITY_S_MAX:
        raise invalid_value(
            timeout_s,
            "VisibilityTimeout",
            f"Must be >= 0 and <= {VISIBILITY_S_MAX}, if provided.",
        )
    _, lease, seq = _receipt(actor, text)
    try:
        return _apply(actor, lease, seq, timeout_s)
    except (StaleReceipt, WrongState):
        pass
    if not actor.holds(seq) or actor.settings.fifo:
        raise invalid_value(
            text,
            "ReceiptHandle",
            "Message does not exist or is not available for visibility timeout change.",
        )
    current = actor.lease_of(seq)
    if current is not None:
        return _apply(actor, current, seq, timeout_s)
    if actor.has_timed_out(lease, seq):
        return None  # AWS says yes, and leaves the message where it is
    raise SqsError("MessageNotInflight", "The message referred to isn't in flight.")


def _apply(actor: QueueActor, lease: int, seq: int, timeout_s: int) -> asyncio.Future[Any]:
    received_ms = actor.delivered_ms(lease, seq)
    held_s = 0 if received_ms is None else (actor.now_ms() - received_ms) // 1000
    if held_s + timeout_s > VISIBILITY_S_MAX:
        raise invalid_value(
            timeout_s,
            "VisibilityTimeout",
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{VISIBILITY_S_MAX} seconds].",
        )
    if timeout_s == 0:
        return actor.nack(lease, seq, seq + 1, delay_ms=0, reason="visibility timeout set to 0")
    return actor.extend(lease, seq, seq + 1, timeout_s * 1000)


def _receipt(actor: QueueActor, text: str) -> Receipt:
    """The delivery that a handle stands for, if it is one of this queue."""
    found = read_handle(text)
    if found is None or found[0] != actor.incarnation:
        raise SqsError(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{text:.{SQS_TOLD_CHARS_MAX}}" is not a valid receipt '
            "handle.",
        )
    return found
