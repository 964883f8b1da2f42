"""What each method of the twins asks of the broker: arguments in, an operation out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.client import info, tracing
from nexo.client.bodies import encoded
from nexo.client.message import PeekedMessage
from nexo.client.operation import Request
from nexo.client.pushes import Push, PushBatch
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, TopicNotFound
from nexo.vocabulary.limits import (
    DELAY_MS_MAX,
    LIST_PAGE_MAX,
    PEEK_MESSAGES_MAX,
    POP_BYTES_MAX,
    POP_MESSAGES_MAX,
    PRIORITY_MAX,
    TIMEOUT_MS_MAX,
    WAIT_MS_MAX,
)
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls, commands
from nexo.wire.frame import Frame, Kind, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.client.delivery import Delivery
    from nexo.client.operation import Pieces, Traffic
    from nexo.vocabulary.definitions import Definitions
    from nexo.vocabulary.errors import NexoError

Reply = TypeVar("Reply")


class Pop(Request):
    """A pop that is sent again waits only for the rest of its time. What the lost answer brought
    comes back by itself: its reception was never acked."""

    __slots__ = ("_auto_received", "_ends", "_pop", "wait_s")

    tries: int  # of Request; type checkers want it here too, where `pieces` counts

    def __init__(self, pop: commands.Pop, auto_received: bool) -> None:
        super().__init__(Kind.POP, b"", lambda _: None)
        self._pop = pop
        self._auto_received = auto_received
        self._ends = 0
        self.wait_s: float = pop.wait_ms / 1000

    def pieces(self, correlation: int, traffic: Traffic) -> Pieces:
        self.tries += 1
        pop = self._pop
        if pop.wait_ms:
            now_ms = traffic.local_ms()
            if self.tries == 1:
                self._ends = now_ms + pop.wait_ms
            else:
                pop = msgspec.structs.replace(pop, wait_ms=max(0, self._ends - now_ms))
        return frame_parts(Kind.POP, correlation, commands.pack_pop(pop), [])

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        delivery = traffic.delivery(
            self._pop.queue,
            answer,
            auto_received=self._auto_received,
            visibility_ms=self._pop.visibility_ms,
        )
        if delivery is None and traffic.is_leaving and traffic.local_ms() < self._ends:
            self.lost(traffic)  # it was answered early, because of the goodbye
            if not self.abandoned:
                return
        if delivery is not None:
            if self.abandoned:
                traffic.give_back(delivery)
                delivery = None
            elif self._auto_received:
                traffic.receive_quietly(delivery)
        self.finish(delivery)

    def abandon(self) -> Delivery | None:
        """The answer may have come when its caller had gone."""
        self.abandoned = True
        unseen: Delivery | None = self.take_result()
        return unseen


class _Deletion(Request):
    """When it is sent again and nothing is there any more, it was done the first time."""

    __slots__ = ()

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        if self.tries > 1 and isinstance(error, (QueueNotFound, TopicNotFound)):
            self.finish(None)
        else:
            self.fail(error)


class LongRequest(Request):
    """One that the broker may take up to `wait_ms` for, on purpose."""

    __slots__ = ("wait_s",)

    def __init__(
        self,
        kind: Kind,
        head: bytes,
        decode: Callable[[Frame], Any],
        body: Pieces | None = None,
        *,
        wait_ms: int,
    ) -> None:
        super().__init__(kind, head, decode, body)
        self.wait_s: float = wait_ms / 1000


def push(
    queue: str,
    body: Any,
    priority: int,
    delay: float | None,
    attributes: dict[str, str] | None,
    deduplication_id: str | None,
    group_id: str | None,
) -> Push:
    lane = (Kind.PUSH, queue)
    columns = (
        body if type(body) is bytes else encoded(body),
        check_priority(priority) if priority else 0,
        None if delay is None else milliseconds(delay, "delay", DELAY_MS_MAX),
        group_id,
        deduplication_id,
    )
    if tracing.tracer is not None:
        sending = tracing.Sending(queue, attributes)
        return tracing.TracedPush(sending, lane, *columns, attributes_of(sending.attributes))
    return Push(lane, *columns, attributes_of(attributes) if attributes else None)


def push_batch(
    queue: str,
    bodies: Iterable[Any],
    priority: int,
    delay: float | None,
    attributes: dict[str, str] | None,
    deduplication_ids: list[str | None] | None,
    group_id: str | list[str | None] | None,
) -> PushBatch | None:
    """None if there is nothing to push."""
    if isinstance(bodies, (str, bytes)):
        raise InvalidArgument(
            "push_batch() takes a list of bodies", "use push() for a single message"
        )
    listed = bodies if isinstance(bodies, list) else list(bodies)
    if {bytes}.issuperset(map(type, listed)):
        batch = batch_of(listed)
    else:
        batch = batch_of([encoded(body) for body in listed])
    if not batch.count:
        return None
    sending = None
    if tracing.tracer is not None:
        sending = tracing.Sending(queue, attributes, batch.count)
        attributes = sending.attributes
    priority = check_priority(priority) if priority else 0
    extras = (priority, delay, attributes, deduplication_ids, group_id)
    if any(each is not None and each != 0 for each in extras) or delay is not None:
        for name, column in (("deduplication_ids", deduplication_ids), ("group_id", group_id)):
            if isinstance(column, list) and len(column) != batch.count:
                raise InvalidArgument(f"{len(column)} values of {name} for {batch.count} messages")
        batch = msgspec.structs.replace(
            batch,
            priority=priority,
            delay_ms=None if delay is None else milliseconds(delay, "delay", DELAY_MS_MAX),
            groups=group_id,
            deduplication_ids=deduplication_ids,
            attributes=attributes_of(attributes),
        )
    if sending is not None:
        return tracing.TracedPushBatch(sending, (Kind.PUSH, queue), batch)
    return PushBatch((Kind.PUSH, queue), batch)


def pop(
    queue: str, count: int, wait: float, visibility_timeout: float | None, auto_received: bool
) -> Pop:
    if not 0 < count <= POP_MESSAGES_MAX:
        raise InvalidArgument(f"a pop takes 1 to {POP_MESSAGES_MAX} messages, not {count}")
    visibility_ms = (
        None
        if visibility_timeout is None
        else milliseconds(visibility_timeout, "visibility_timeout", TIMEOUT_MS_MAX)
    )
    wait_ms = milliseconds(wait, "wait", WAIT_MS_MAX) if wait else 0
    return Pop(commands.Pop(queue, count, POP_BYTES_MAX, wait_ms, visibility_ms), auto_received)


def call(wanted: calls.Request[Reply], read: Callable[[Reply], Any] | None = None) -> Request:
    """A named call. The result is what was answered, or what `read` makes of it."""
    kind = type(wanted)

    def decode(answer: Frame) -> Any:
        reply = calls.read(kind, answer)
        return reply if read is None else read(reply)

    return Request(Kind.CALL, b"", decode, [calls.encode(wanted)])


def queues_behind(found: list[info.QueueInfo]) -> Request:
    """Those that come behind what is found, as many as one answer has; fewer are the last."""
    wanted = calls.ListQueues(found[-1].name if found else "", LIST_PAGE_MAX)
    return call(wanted, lambda page: [info.read_queue(each) for each in page])


def topics_behind(found: list[info.TopicInfo]) -> Request:
    wanted = calls.ListTopics(found[-1].name if found else "", LIST_PAGE_MAX)
    return call(wanted, lambda page: [info.read_topic(each) for each in page])


def delete(wanted: calls.DeleteQueue | calls.DeleteTopic) -> Request:
    return _Deletion(Kind.CALL, b"", lambda _: None, [calls.encode(wanted)])


def peek(queue: str, limit: int) -> Request:
    if not 0 < limit <= PEEK_MESSAGES_MAX:
        raise InvalidArgument(f"a peek shows 1 to {PEEK_MESSAGES_MAX} messages, not {limit}")
    return call(
        calls.Peek(queue, limit), lambda seen: [PeekedMessage(queue, each) for each in seen]
    )


def redrive_progress(task: int, wait_ms: int) -> Request:
    def decode(answer: Frame) -> info.Progress:
        return info.read_progress(calls.read(calls.AwaitRedrive, answer))

    body: Pieces = [calls.encode(calls.AwaitRedrive(task, wait_ms))]
    return LongRequest(Kind.CALL, b"", decode, body, wait_ms=wait_ms)


def export_definitions() -> Request:
    return call(calls.ExportDefinitions())


def import_definitions(definitions: Definitions | dict[str, Any], dry_run: bool) -> Request:
    document: Any = definitions  # also one that was read from a file: the broker checks it
    return call(calls.ImportDefinitions(document, dry_run))


def attributes_of(attributes: dict[str, str] | None) -> bytes | None:
    if not attributes:
        return None
    for name, value in attributes.items():
        if {type(name), type(value)} != {str}:
            raise InvalidArgument(
                f"attribute {name!r:.40} is {value!r:.40}",
                "attribute names and values must be strings",
            )
    return encode_attributes(attributes)


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidArgument(f"priority is {priority!r:.40}, allowed is 0 to {PRIORITY_MAX}")
    return priority
