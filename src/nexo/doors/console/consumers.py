"""Consumers: who is connected, who consumes what, and who stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.request import at, whole_number
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.engine.connections import ConnectionFigures, ConsumerFigures, connections_behind
from nexo.vocabulary.limits import CONSOLE_CONSUMERS_SHOWN

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call

_TROUBLED = ("stuck", "not reading")


class Consuming(msgspec.Struct, frozen=True):
    """A row of the table: a connection, and one queue that it consumes, if it does."""

    connection: ConnectionFigures
    consumer: ConsumerFigures | None
    now_ms: int

    @property
    def is_troubled(self) -> bool:
        return self.consumer is not None and self.consumer.state in _TROUBLED

    @property
    def key(self) -> str:
        queue = self.consumer.queue if self.consumer is not None else ""
        return f"c.{self.connection.number}.{queue}."

    def live(self) -> dict[str, str]:
        """What changes, by the keys that the page gives it."""
        one = self.consumer
        if one is None:
            return {}
        ago = formatting.span(self.now_ms - one.last_ack_ms) if one.last_ack_ms else None
        return {
            self.key + "state": one.state,
            self.key + "unacked": (
                formatting.number(one.unacked) if one.prefetch else formatting.NOTHING
            ),
            self.key + "rate": formatting.rate(one.rate),
            self.key + "last": f"{ago} ago" if ago is not None else formatting.NOTHING,
        }


async def _rows(call: Call) -> list[Consuming]:
    """Those that need a look come first."""
    now_ms = call.engine.wall_ms()
    after = whole_number(call.query("after"), 0, 0, 2**53)
    found = await connections_behind(call.engine.connections, after)
    queue = call.query("queue")
    rows = []
    for each in found:
        consuming: list[ConsumerFigures | None] = [*each.consumers] or [None]
        rows += [
            Consuming(each, one, now_ms)
            for one in consuming
            if not queue or (one is not None and one.queue == queue)
        ]
    rows.sort(key=lambda row: not row.is_troubled)
    return rows


def _made_of(rows: list[Consuming]) -> str:
    return made_of(*[(row.key, row.is_troubled) for row in rows])


async def consumers(call: Call) -> Response:
    found = await _rows(call)
    rows = found[:CONSOLE_CONSUMERS_SHOWN]
    return await call.page(
        "consumers.html",
        {"consumers": "consumers_rows.html"},
        rows=rows,
        found=len(found),
        queue=call.query("queue"),
        troubled=sum(row.is_troubled for row in found),
        rows_made_of=_made_of(rows),
        live=f"{at('live', 'consumers')}?{call.query_string}",
    )


async def live_consumers(call: Call) -> Response:
    async def frame() -> Frame:
        rows, values = (await _rows(call))[:CONSOLE_CONSUMERS_SHOWN], badges(call)
        for row in rows:
            values |= row.live()
        return Frame(values, {"consumers": _made_of(rows)})

    return streamed(call.shared.pulse.stream(call.caller, frame))


async def close(call: Call) -> Response:
    number = whole_number(call.field("number"), 0, 0, 2**53)
    with call.told():
        call.engine.connections.close(number)
    return call.back(at("consumers"), f"Closed connection {number}. Its client may reconnect.")
