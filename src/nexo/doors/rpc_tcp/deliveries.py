"""Deliveries and readings as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nexo.wire import commands
from nexo.wire.columns import WirePart, encode_parts
from nexo.wire.frame import Kind, frame_parts

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery, Part


class WithParts(NamedTuple):
    """The result of a call whose answer is messages."""

    parts: list[Part]
    head: bytes = b""


def delivery_frame(
    actor: QueueActor, delivery: Delivery, correlation: int, subscription: int = 0
) -> list[bytes | memoryview]:
    """The reply to a pop, or with a subscription what it gets."""
    head = commands.pack_delivery(
        commands.DeliveryHead(
            delivery.lease,
            delivery.deadline_ms,
            delivery.state,
            actor.queue.incarnation,
            subscription,
            actor.now_ms(),
            actor.queue.settings.visibility_timeout_ms,
        )
    )
    kind = Kind.DELIVER if subscription else Kind.OK
    return frame_parts(kind, correlation, head, encode_parts(wire_parts(delivery.parts)))


def wire_parts(parts: list[Part]) -> list[WirePart]:
    return [
        WirePart(
            part.first,
            part.created_ms,
            part.history.first_delivered_ms,
            part.history.attempts,
            part.batch(),
        )
        for part in parts
    ]
