"""Traces through the broker, for programs that use OpenTelemetry.

A push is a span, and its context travels in the attributes of the message (`traceparent`, as the
W3C has it; AWSTraceHeader, as SQS has it). Whoever handles the message continues that trace: a
span for the way through the broker, from push to delivery, and one for the work.

Without OpenTelemetry nothing of this is loaded: a program that wants traces has imported it before
it makes its first client, and that is when this module looks.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from nexo.client.pushes import Push, PushBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.errors import NexoError
    from nexo.wire.frame import Kind

PARENT = "traceparent"
AWS_HEADER = "AWS.TraceHeader"  # as the SQS door keeps AWSTraceHeader

tracer: Any = None  # of OpenTelemetry, once a program uses it


def look() -> None:
    """Begin to trace if this program uses OpenTelemetry. Each client looks when it is made."""
    global tracer
    if tracer is None and "opentelemetry.trace" in sys.modules:
        from opentelemetry import trace

        tracer = trace.get_tracer("nexo")


class Sending:
    """The span of a push: begun before it is encoded, ended with its answer."""

    __slots__ = ("_span", "attributes")

    def __init__(
        self, destination: str, attributes: dict[str, str] | None, count: int | None = None
    ) -> None:
        from opentelemetry import propagate, trace

        facts: dict[str, Any] = _facts(destination, "send")
        if count is not None:
            facts["messaging.batch.message_count"] = count
        kind = trace.SpanKind.PRODUCER
        self._span = tracer.start_span(f"send {destination}", kind=kind, attributes=facts)
        carried = dict(attributes or {})
        propagate.inject(carried, context=trace.set_span_in_context(self._span))
        if PARENT in carried and AWS_HEADER not in carried:
            carried[AWS_HEADER] = aws_header(carried[PARENT])
        self.attributes: dict[str, str] = carried

    def end(self, error: NexoError | None) -> None:
        _end(self._span, error)


class TracedPush(Push):
    __slots__ = ("_sending",)

    def __init__(
        self,
        sending: Sending,
        lane: tuple[Kind, str],
        body: bytes,
        priority: int,
        delay_ms: int | None,
        group: str | None,
        deduplication_id: str | None,
        attributes: bytes | None,
    ) -> None:
        super().__init__(lane, body, priority, delay_ms, group, deduplication_id, attributes)
        self._sending: Sending = sending

    def finish(self, result: Any) -> None:
        super().finish(result)
        self._sending.end(None)

    def fail(self, error: NexoError) -> None:
        super().fail(error)
        self._sending.end(error)


class TracedPushBatch(PushBatch):
    __slots__ = ("_sending",)

    def __init__(self, sending: Sending, lane: tuple[Kind, str], batch: Batch) -> None:
        super().__init__(lane, batch)
        self._sending: Sending = sending

    def finish(self, result: Any) -> None:
        super().finish(result)
        self._sending.end(None)

    def fail(self, error: NexoError) -> None:
        super().fail(error)
        self._sending.end(error)


class Handled(Protocol):
    """What is asked of a message."""

    @property
    def queue(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def attempts(self) -> int: ...

    @property
    def created_at(self) -> datetime: ...

    @property
    def attributes(self) -> dict[str, str]: ...


class Record:
    """A message in the form that Lambda gives to handlers."""

    def __init__(self, record: dict[str, Any]) -> None:
        system = record["attributes"]
        self.queue: str = record["eventSourceARN"].rpartition(":")[2]
        self.id: str = record["messageId"]
        self.attempts: int = int(system["ApproximateReceiveCount"])
        self.created_at: datetime = datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC)
        self.attributes: dict[str, str] = {
            name: each["stringValue"]
            for name, each in record["messageAttributes"].items()
            if "stringValue" in each
        }
        if "AWSTraceHeader" in system:
            self.attributes[AWS_HEADER] = system["AWSTraceHeader"]


class Handling:
    """The span of the work on one or more messages, current while it lasts."""

    __slots__ = ("_span", "_token")

    def __init__(self, messages: Sequence[Handled]) -> None:
        from opentelemetry import context, trace

        first = messages[0]
        parents = list(_contexts(messages))
        parent = _deliver(first, parents[0]) if parents else None
        links = [trace.Link(trace.get_current_span(each).get_span_context()) for each in parents]
        facts = _facts(first.queue, "process")
        facts["messaging.message.id"] = first.id
        facts["messaging.batch.message_count"] = len(messages)
        facts["nexo.attempts"] = first.attempts
        self._span = tracer.start_span(
            f"process {first.queue}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=facts,
            links=links[1:],
        )
        self._token = context.attach(trace.set_span_in_context(self._span))

    def end(self, error: BaseException | None) -> None:
        from opentelemetry import context

        context.detach(self._token)
        _end(self._span, error)


def begin_invocation(event: dict[str, Any]) -> Handling | None:
    """A handler is called with these records."""
    look()  # a child process has made no client
    return None if tracer is None else Handling([Record(each) for each in event["Records"]])


def end_handling(message: Any, error: BaseException | None) -> None:
    """Of a message whose `with` block is left. It may have been entered before tracing began."""
    handling: Handling | None = getattr(message, "_handling", None)
    if handling is not None:
        message._handling = None
        handling.end(error)


def aws_header(parent: str) -> str:
    """A `traceparent` in the words of AWS."""
    _, trace_id, span_id, flags = parent.split("-")[:4]
    return f"Root=1-{trace_id[:8]}-{trace_id[8:]};Parent={span_id};Sampled={int(flags, 16) & 1}"


def parent_of(header: str) -> str | None:
    """The `traceparent` that a header of AWS stands for: `Root=1-…-…;Parent=…;Sampled=1`."""
    fields = dict(each.strip().partition("=")[::2] for each in header.split(";"))
    version, start, rest = (*fields.get("Root", "").split("-", 2), "", "")[:3]
    ids, sampled = f"{start}{rest}-{fields.get('Parent', '')}", fields.get("Sampled", "0")
    is_whole = version == "1" and len(start) == 8 and len(ids) == 49 and sampled in ("0", "1")
    if not is_whole or set(ids) - set("0123456789abcdef-"):
        return None
    return f"00-{ids}-0{sampled}"


def _contexts(messages: Sequence[Handled]) -> Iterator[Any]:
    """The contexts that the messages were pushed in, where they say so."""
    from opentelemetry import propagate

    for message in messages:
        attributes = message.attributes
        if PARENT not in attributes and AWS_HEADER in attributes:
            parent = parent_of(attributes[AWS_HEADER])
            if parent is not None:
                attributes[PARENT] = parent
        if PARENT in attributes:
            yield propagate.extract(attributes)


def _deliver(message: Handled, parent: Any) -> Any:
    """The way through the broker as a span: it is known only now that it has an end."""
    from opentelemetry import trace

    span = tracer.start_span(
        f"deliver {message.queue}",
        context=parent,
        kind=trace.SpanKind.CONSUMER,
        attributes=_facts(message.queue, "receive"),
        start_time=int(message.created_at.timestamp() * 1e9),
    )
    span.end(time.time_ns())
    return trace.set_span_in_context(span)


def _facts(destination: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "nexo",
        "messaging.destination.name": destination,
        "messaging.operation.type": operation,
    }


def _end(span: Any, error: BaseException | None) -> None:
    if error is not None:
        from opentelemetry.trace import Status, StatusCode

        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
