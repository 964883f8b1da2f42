"""A message in the hands of an asyncio consumer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from nexo.client import tracing
from nexo.client.message import HeldMessage, goes_on_after, reason_of
from nexo.client.receipts import refusal_with
from nexo.vocabulary.errors import NexoError, StaleReceipt, Timeout, Unreachable
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from types import TracebackType

    from nexo.client.aio.connection import Connection
    from nexo.client.delivery import Delivery
    from nexo.client.receipts import Settling
    from nexo.wire.columns import WirePart

_log = logging.getLogger("nexo.client")


class AsyncMessage(HeldMessage):
    """One message. Finish it with `ack` or `nack`, or work in `async with message:`, which acks
    at the end and nacks if an exception is raised, with its text as the reason. Any task may
    finish it. The exception is raised again, except for one case: in a loop over a subscription, a
    body that `json` cannot decode is nacked and logged, and the loop continues."""

    __slots__ = ("_connection", "_handling")

    def __init__(self, connection: Connection, delivery: Delivery, part: WirePart, at: int) -> None:
        self._connection = connection
        self._delivery = delivery
        self._part = part
        self._at = at

    async def received(self) -> None:
        """Confirm receipt. Only needed with `auto_received=False`. Calling it twice is not an
        error."""
        await self._settle(self._settling(Kind.RECEIVED))
        self._extended(self._connection.session.now_ms(), self._delivery.visibility_ms / 1000)

    async def ack(self) -> None:
        """Confirm that the message was processed. Returns when this is on disk; the message is not
        delivered again."""
        refused: Any = await self._connection.ack(self._acking())
        if refused:
            raise refusal_with(refused[0][3])

    async def nack(self, delay: float | None = None, reason: str = "") -> None:
        """Report a failure. The message is delivered again after `delay` seconds (0: at once), or
        after the queue's backoff. After its last attempt it moves to the dead-letter queue with the
        reason."""
        await self._settle(self._nacking(delay, reason))

    async def extend(self, seconds: float) -> None:
        """Ask for more time: the message is delivered again `seconds` from now at the earliest."""
        await self._settle(self._extending(seconds))
        self._extended(self._connection.session.now_ms(), seconds)

    async def __aenter__(self) -> Self:
        if not self._delivery.auto_received:
            await self.received()
        if tracing.tracer is not None:
            self._handling: tracing.Handling | None = tracing.Handling([self])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if tracing.tracer is not None:
            tracing.end_handling(self, error)
        if self._finished:
            return None
        if error is None:
            try:
                await self.ack()
            except (StaleReceipt, Unreachable, Timeout) as refused:
                # With its connection the broker took the message back. It is delivered again, and
                # a loop that goes on for ever must not end here.
                if self._delivery.connection == self._connection.session.connection:
                    raise
                _log.warning("the ack of message %s was lost: %s", self.id, refused)
            return None
        try:
            await self.nack(reason=reason_of(error))
        except NexoError as refused:
            _log.warning("the nack of message %s was lost: %s", self.id, refused)
        return goes_on_after(error, self)

    async def _settle(self, settling: Settling) -> None:
        refused: Any = await self._connection.run(settling)
        if refused:
            raise refusal_with(refused[0][3])
