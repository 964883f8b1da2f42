"""The waiting room of a queue: blocking pops and standing subscriptions, served in turn.

A subscription stays for ever. Whoever has room takes part; each turn gives a consumer its share of
what is ready by its free prefetch, so nobody starves and a slow one gets less.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

from nexo.engine.outcome import outcome_of, report
from nexo.vocabulary import limits
from nexo.vocabulary.errors import RateLimited
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.limits import POP_BYTES_MAX, POP_MESSAGES_MAX, TIMEOUT_MS_MAX, WAITERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from nexo.machine.pop import Delivery
    from nexo.vocabulary.errors import NexoError


class Waiter:
    """One who waits. `deliver` takes what came; a pop leaves then, a subscription stays."""

    __slots__ = (
        "_kept_leases",
        "bytes_max",
        "consumer",
        "deliver",
        "fail",
        "free",
        "leases",
        "one_ack",
        "queued",
        "resting",
        "standing",
        "visibility_ms",
    )

    def __init__(
        self,
        free: int,
        deliver: Callable[[Delivery], None],
        fail: Callable[[NexoError], None],
        *,
        standing: bool,
        consumer: str = "",
        bytes_max: int = POP_BYTES_MAX,
        visibility_ms: int | None = None,
        one_ack: bool = False,
    ) -> None:
        if visibility_ms is not None:  # here: it is served within the step of somebody else
            check_allowed("visibility_ms", visibility_ms, 0, TIMEOUT_MS_MAX)
        self.free = free
        self.deliver = deliver
        self.fail = fail  # called once, if the queue is deleted
        self.standing = standing
        self.consumer = consumer
        self.bytes_max = bytes_max
        self.visibility_ms = visibility_ms
        self.one_ack = one_ack
        self.queued = False
        self.resting = False
        self.leases: set[int] = set()  # what a subscription may have to give back
        self._kept_leases = 0  # how many were left when those that have ended were forgotten

    def hold(self, lease: int, living: Container[int]) -> None:
        """Note a lease; those that have ended are forgotten before they are many."""
        self.leases.add(lease)
        if len(self.leases) > 64 + 2 * self._kept_leases:
            self.leases = {each for each in self.leases if each in living}
            self._kept_leases = len(self.leases)


class PendingPop:
    """A pop that waits. Its time may be over, or its caller gone, in the very turn of the loop in
    which it is served: what nobody will see goes back at once."""

    def __init__(self, return_unseen: Callable[[Delivery], None]) -> None:
        self._return_unseen = return_unseen
        self._future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()

    def deliver(self, delivery: Delivery) -> None:
        if self._future.done():
            self._return_unseen(delivery)
        else:
            self._future.set_result(delivery)

    def fail(self, error: NexoError) -> None:
        if not self._future.done():
            self._future.set_exception(error.anew())

    async def wait(self, wait_ms: int) -> Delivery | None:
        """What came within that time."""
        future = self._future
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await future
        except TimeoutError:
            return None if future.cancelled() else future.result()
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._return_unseen(future.result())
            raise


class WaitingRoom:
    def __init__(self) -> None:
        # Those with room, in the order of their turns. Any of them may leave at any time.
        self._turns: OrderedDict[Waiter, None] = OrderedDict()
        self._free = 0
        self._closed: NexoError | None = None
        self.subscriptions: set[Waiter] = set()

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def consumers(self) -> int:
        """Subscriptions, and pops that wait."""
        return len(self.subscriptions) + sum(not waiter.standing for waiter in self._turns)

    def enter(self, waiter: Waiter) -> None:
        if self._closed is not None:
            raise self._closed.anew()
        if len(self._turns) + len(self.subscriptions) >= WAITERS_MAX:
            raise RateLimited(
                f"the limit of {WAITERS_MAX} waiting consumers on this queue is reached",
                "use fewer connections",
            )
        if waiter.standing:
            self.subscriptions.add(waiter)
        self._queue(waiter)

    def leave(self, waiter: Waiter) -> None:
        self.subscriptions.discard(waiter)
        if waiter.queued:
            del self._turns[waiter]
            waiter.queued = False
            self._free -= waiter.free

    def rest(self, waiter: Waiter) -> None:
        """A subscription takes no part for a while; it keeps what it has."""
        if waiter.queued:
            del self._turns[waiter]
            waiter.queued = False
            self._free -= waiter.free
        waiter.resting = True

    def wake(self, waiter: Waiter) -> None:
        waiter.resting = False
        self._queue(waiter)

    def close(self, reason: NexoError) -> None:
        """Everybody leaves and is told why; nobody enters any more."""
        self._closed = reason
        waiters = {*self._turns, *self.subscriptions}
        self._turns.clear()
        self.subscriptions.clear()
        self._free = 0
        for waiter in waiters:
            waiter.queued = False
        _tell_gone(iter(waiters), reason)

    def reopen(self) -> None:
        """Consumers may come again."""
        self._closed = None

    def grant(self, waiter: Waiter, more: int) -> None:
        """A subscription has room for more."""
        if waiter.queued:
            self._free += more
        waiter.free += more
        self._queue(waiter)

    def next(self, ready: int) -> tuple[Waiter, int] | None:
        """Whose turn it is, and how many messages that is."""
        if not self._turns:
            return None
        waiter = next(iter(self._turns))
        share = waiter.free
        if self._free > ready:
            share = max(1, -(-ready * waiter.free // self._free))
        return waiter, min(share, waiter.free, POP_MESSAGES_MAX)

    def served(self, waiter: Waiter, count: int) -> None:
        """The turn is over."""
        self._turns.popitem(last=False)
        waiter.queued = False
        self._free -= waiter.free
        waiter.free -= count
        if waiter.standing:
            self._queue(waiter)

    def _queue(self, waiter: Waiter) -> None:
        if not waiter.queued and waiter.free > 0 and not waiter.resting:
            waiter.queued = True
            self._free += waiter.free
            self._turns[waiter] = None


def _tell_gone(waiters: Iterator[Waiter], reason: NexoError) -> None:
    """Tell some, and the others in the next turns of the event loop."""
    some = list(islice(waiters, limits.WAITERS_TOLD))
    for waiter in some:
        _, failure = outcome_of(waiter.fail, reason)
        if failure is not None:
            report("a consumer could not be told that its queue is gone", failure)
    if len(some) == limits.WAITERS_TOLD:
        asyncio.get_running_loop().call_soon(_tell_gone, waiters, reason)
