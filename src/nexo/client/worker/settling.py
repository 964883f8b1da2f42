"""What happens to a batch once its verdict is known: acks, nacks, and order in FIFO groups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from nexo.client.blocking.message import Message
    from nexo.client.blocking.queue import Queue
    from nexo.client.worker.verdict import Verdict

_log = logging.getLogger("nexo.worker")


class Settled(msgspec.Struct, frozen=True):
    """How many messages of a batch were done, failed, went back untried, or were too late: their
    lease was over, and they are somebody else's now."""

    handled: int = 0
    failed: int = 0
    returned: int = 0
    lost: int = 0


class Sorted(NamedTuple):
    """The messages of a batch by what is to be done with them."""

    done: list[Message]
    failed: dict[str, list[Message]]  # by reason
    behind: list[Message]  # of a group in which an earlier one failed


def sort(batch: list[Message], verdict: Verdict, fifo: bool) -> Sorted:
    """After the first failure of a FIFO group nothing of it counts as tried: were the later ones
    done, they would have overtaken it."""
    if verdict.error is not None:
        return Sorted([], {verdict.error: batch}, [])
    found = Sorted([], {}, [])
    broken: set[str | None] = set()
    for message in batch:
        if fifo and message.group_id in broken:
            found.behind.append(message)
        elif (reason := verdict.failed.get(message.id)) is not None:
            found.failed.setdefault(reason, []).append(message)
            broken.add(message.group_id)
        else:
            found.done.append(message)
    return found


def settle(queue: Queue, batch: list[Message], verdict: Verdict, fifo: bool) -> Settled:
    """Tell the broker. What it cannot be told now comes again, so the worker goes on."""
    found = sort(batch, verdict, fifo)
    handled = failed = returned = 0
    try:
        handled = len(found.done) - len(queue.ack_batch(found.done))
        for reason, messages in found.failed.items():
            failed += len(messages) - len(queue.nack_batch(messages, reason=reason))
            if verdict.error is None:  # else it was said where the handler was called
                told = {"messages": len(messages), "reason": reason, "queue": queue.name}
                _log.warning("messages failed", extra=told)
        returned = len(found.behind) - len(queue.give_back(found.behind))
    except NexoError as error:
        _log.warning("the broker could not be told of a batch", extra={"reason": str(error)})
    lost = len(batch) - handled - failed - returned
    if lost:
        told = {"messages": lost, "queue": queue.name}
        _log.warning("messages were too late and come again", extra=told)
    return Settled(handled, failed, returned, lost)
