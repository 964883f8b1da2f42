"""The way from a Spark process to the broker: the client's connection, with raw answers.

Every Python process of Spark keeps one connection to a broker for all that it does there: workers
are used again, and a task must not pay for a greeting. What is asked may be asked again after a
lost connection: claims, seals and reads give the same each time, and pushes are numbered.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.client.address import address_of
from nexo.client.blocking.connection import Connection
from nexo.client.operation import Request
from nexo.wire import calls, commands
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from nexo.client.operation import Operation
    from nexo.spark.options import Options
    from nexo.vocabulary.batch import Batch
    from nexo.wire.frame import Frame

Reply = TypeVar("Reply")

TIMEOUT_S = 60.0  # a broker that restarts, recovery included, is waited for …
STREAM_TIMEOUT_S = 600.0  # … and by a query that runs for weeks through an upgrade too
HEARTBEAT_S = 5.0
_decode = msgspec.msgpack.decode


class Link:
    def __init__(self, options: Options) -> None:
        address = address_of(options.endpoint, options.tls_ca, options.tls_verify)
        name = f"spark-{os.getpid()}"
        self._connection = Connection(
            address, options.token, options.timeout_s or TIMEOUT_S, HEARTBEAT_S, name
        )

    def call(self, wanted: calls.Request[Reply]) -> Reply:
        """A named call and its answer."""
        answer: Frame = self._connection.run(raw_call(wanted))
        return calls.read(type(wanted), answer)

    def begin(self, request: Operation) -> Operation:
        """Send a request; `wait` for its answer later."""
        with self._connection.lock:
            self._connection.session.submit(request)
        self._connection.write()
        return request

    def wait(self, request: Operation) -> Any:
        return self._connection.wait_for(request)

    def close(self) -> None:
        self._connection.close()


def for_streams(options: Options) -> Options:
    """The same, with as much patience as a stream has."""
    return msgspec.structs.replace(options, timeout_s=options.timeout_s or STREAM_TIMEOUT_S)


def raw_call(wanted: calls.Request[Any]) -> Request:
    """A named call whose answer stays as it came: the frame."""
    return Request(Kind.CALL, b"", _frame, [calls.encode(wanted)])


def raw_read(topic: str, offset: int, count: int, bytes_max: int, strict: bool) -> Request:
    """Messages of a topic; the answer is the frame."""
    head = commands.pack(commands.Read(topic, offset, count, bytes_max, strict))
    return Request(Kind.READ, head, _frame)


def numbered_push(
    queue: str, batch: Batch, producer: str, number: int, checksum: int = 0
) -> Request:
    """A push that counts once, however often it is sent; the answer is how many messages it
    brought, None if that was too long ago to know. With a checksum, other messages under the same
    number are refused."""
    head = commands.pack_push(commands.Push(queue, producer, number, checksum))
    return Request(Kind.PUSH, head, _accepted, encode_batch(batch))


def numbered_publish(
    topic: str, batch: Batch, producer: str, number: int, checksum: int = 0
) -> Request:
    """The same for a topic."""
    head = commands.pack(commands.Publish(topic, producer, number, checksum))
    return Request(Kind.PUBLISH, head, _published, encode_batch(batch))


def _frame(answer: Frame) -> Frame:
    return answer


def _accepted(answer: Frame) -> int | None:
    ranges = commands.unpack_accepted(answer.head).ranges
    return sum(ranges[1::2]) - sum(ranges[::2]) if ranges else None


def _published(answer: Frame) -> int | None:
    first, end = _decode(answer.head)
    return end - first if end else None


_links: dict[tuple[Any, ...], Link] = {}


def link_to(options: Options) -> Link:
    """The connection of this process to the broker that the options name."""
    way = (options.endpoint, options.token, options.tls_ca, options.tls_verify)
    key = (*way, options.timeout_s, os.getpid())  # a fork must not share its parent's
    link = _links.get(key)
    if link is None:
        link = _links[key] = Link(options)
    return link
