"""Connections: who is connected, who consumes what; and close one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import Count, Moment, moment, moment_or_none
from nexo.engine.connections import ConnectionFigures, connections_behind
from nexo.vocabulary.limits import LIST_PAGE_MAX

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call

_ALL = "/api/v1/connections"
_ONE = f"{_ALL}/{{number}}"
Number = Annotated[int, Meta(ge=0, le=2**53)]


class Consumer(msgspec.Struct, frozen=True):
    """A consumer of one queue on one connection. `rate` is acks a second, lately. `state` is
    `working`, `idle`, `stuck` (it holds messages and has acked none for a minute) or `not
    reading`. Of one that pops instead of subscribing `prefetch` is 0, and what it holds is not
    counted."""

    queue: str
    prefetch: Count
    unacked: Count
    acked: Count
    rate: float
    last_ack_at: Moment | None
    state: str


class Connection(msgspec.Struct, frozen=True):
    """`software` is the client library with its version, `token` the name of the token that it
    showed; both may be empty. `protocol` is `rpc` or `sqs`. A client over SQS is what calls from
    one address with one access key. It is listed for five minutes after its last call, and cannot
    be closed."""

    number: Count
    name: str
    address: str
    software: str
    token: str
    since: Moment
    consumers: list[Consumer]
    protocol: str


class ConnectionPage(msgspec.Struct, frozen=True):
    """Pass `next` as `after` to get the following page; it is null on the last page."""

    connections: list[Connection]
    next: int | None


class ConnectionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Number = 0


class AtConnection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Annotated[int, Meta(ge=1, le=2**53, description="The number of a connection.")]


async def _list(call: Call) -> ConnectionPage:
    found = await connections_behind(call.engine.connections, call.query.after)
    following = found[-1].number if len(found) == LIST_PAGE_MAX else None
    return ConnectionPage([_shown(each) for each in found], following)


def _shown(told: ConnectionFigures) -> Connection:
    consumers = [
        Consumer(
            each.queue,
            each.prefetch,
            each.unacked,
            each.acked,
            each.rate,
            moment_or_none(each.last_ack_ms),
            each.state,
        )
        for each in told.consumers
    ]
    return Connection(
        number=told.number,
        name=told.name,
        address=told.address,
        software=told.software,
        token=told.token,
        since=moment(told.since_ms),
        consumers=consumers,
        protocol=told.door,
    )


async def _close(call: Call) -> None:
    call.engine.connections.close(call.path.number)


CONNECTIONS = (
    Operation(
        "list_connections",
        "GET",
        _ALL,
        "Connected clients and their consumers",
        _list,
        ConnectionPage,
        query=ConnectionsQuery,
    ),
    Operation(
        "close_connection",
        "DELETE",
        _ONE,
        "Close a connection; the messages of its consumers return at once",
        _close,
        status=204,
        parameters=AtConnection,
        refusals=(404,),
    ),
)
