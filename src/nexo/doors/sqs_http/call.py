"""One call of an action: who calls, from where, the way to the queue that is meant, and the way to
answer it, in the protocol of the request."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from nexo.access.operations import On
from nexo.doors.http.body import Gone
from nexo.doors.sqs_http import query
from nexo.doors.sqs_http.accounts import STS_NAMESPACE
from nexo.doors.sqs_http.errors import SqsError, missing, no_such_queue, sqs_error
from nexo.engine.outcome import outcome_of
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import HTTP_ONE_PART_BYTES, SQS_TRACE_CHARS_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from nexo.doors.http.exchange import Exchange
    from nexo.doors.sqs_http.accounts import Addresses, Caller
    from nexo.doors.sqs_http.actions import Action
    from nexo.doors.sqs_http.clients import Clients
    from nexo.doors.sqs_http.delete_message import Deletes
    from nexo.doors.sqs_http.queues import Pauses
    from nexo.doors.sqs_http.receive_message import Receives
    from nexo.doors.sqs_http.sends import Sends
    from nexo.doors.sqs_http.shapes import Shape
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery
    from nexo.vocabulary.settings import QueueSettings

_JSON_HEAD = b"content-type: application/x-amz-json-1.0\r\nx-amzn-requestid: "
_XML_HEAD = b"content-type: text/xml\r\nx-amzn-requestid: "
_PLAIN_JSON_HEAD = b"content-type: application/json\r\nx-amzn-requestid: "
_encode_json = msgspec.json.Encoder().encode


class Later:
    """An answer that waits for the disk: `then` makes it of what the future brings, as a shape or
    already as JSON. Without it there is nothing to say but that it is done."""

    __slots__ = ("future", "then")

    def __init__(
        self,
        future: asyncio.Future[Any],
        then: Callable[[Any], Shape | bytes | None] | None = None,
    ) -> None:
        self.future = future
        self.then = then


class Taken(Enum):
    """Somebody else has taken the call, and will answer it."""

    TAKEN = 0


TAKEN: Final = Taken.TAKEN


class Door:
    """What all calls share."""

    def __init__(
        self,
        engine: Engine,
        addresses: Addresses,
        pauses: Pauses,
        sends: Sends,
        receives: Receives,
        deletes: Deletes,
        clients: Clients,
        life: bytes,
    ) -> None:
        """`life` is what the ids of all requests begin with."""
        self.engine = engine
        self.addresses = addresses
        self.pauses = pauses
        self.sends = sends
        self.receives = receives
        self.deletes = deletes
        self.clients = clients
        self.life = life
        self.json_head = _JSON_HEAD + life
        self.waits: set[asyncio.Task[Delivery]] = set()  # long polls, which end when it closes


class Call:
    __slots__ = (
        "action",
        "caller",
        "door",
        "elsewhere",
        "exchange",
        "is_query",
        "number",
        "then",
    )

    action: Action  # once it is known
    caller: Caller

    def __init__(self, door: Door, exchange: Exchange, number: int, is_query: bool) -> None:
        self.door = door
        self.exchange = exchange
        self.number = number
        self.is_query = is_query
        # Queues of other shards that it names, if it names any.
        self.elsewhere: dict[str, QueueSettings | None] | None = None
        # Of an answer that waits for the disk.
        self.then: Callable[[Any], Shape | bytes | None] | None = None

    # -- What is meant ------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        return self.door.engine

    @property
    def addresses(self) -> Addresses:
        return self.door.addresses

    @property
    def request_id(self) -> bytes:
        return b"%b%x" % (self.door.life, self.number)

    @property
    def trace(self) -> str | None:
        """The trace that a request belongs to, by its head."""
        value = self.exchange.fields.get(b"x-amzn-trace-id")
        is_one = value is not None and len(value) <= SQS_TRACE_CHARS_MAX
        return value.decode("latin-1") if is_one and value is not None else None

    def queue(self, queue_url: str | None) -> QueueActor:
        """The queue that a request names."""
        if not queue_url:
            raise missing("QueueUrl")
        door, caller = self.door, self.caller
        addresses, place = door.addresses, caller.place
        name = addresses.resolved.get((queue_url, place)) or addresses.name_of(queue_url, place)
        if caller.rights.is_bound:
            self.check(name)
        found = door.engine.queues.get(name)
        if found is None:
            raise no_such_queue()
        return found

    def named(self, name: str) -> QueueActor:
        """The queue of this name, if the caller may do with it what the action does."""
        self.check(name)
        found = self.engine.queues.get(name)
        if found is None:
            raise no_such_queue()
        return found

    async def learn(self, name: str) -> None:
        """Look at a queue that the request names, if that is in another shard of a cluster."""
        if self.engine.transfers.is_elsewhere(name):
            if self.elsewhere is None:
                self.elsewhere = {}
            self.elsewhere[name] = await self.engine.settings_of(name)

    def settings_of(self, name: str) -> QueueSettings | None:
        """Those of a queue of this shard, or of one that was learned of."""
        found = self.engine.queues.get(name)
        if found is not None:
            return found.settings
        return None if self.elsewhere is None else self.elsewhere.get(name)

    def check(self, name: str, on: On = On.QUEUE) -> None:
        """Raise unless the caller may do what the action does with the queue of this name; `on`
        says what it is to the action, which may name a second one."""
        rights = self.caller.rights
        if rights.is_bound:
            rights.check_any(self.action.operation.actions_on(on), name)

    def url_of(self, name: str) -> str:
        return self.addresses.url_of(name, self.exchange.origin)

    # -- What is answered ---------------------------------------------------------------------

    def done(self, result: bytes | None) -> None:
        """The action is done, and this is its answer. Whatever goes wrong here concerns this call
        alone, not those who are answered after it."""
        _, failure = outcome_of(self.answer, result)
        if failure is not None:
            self.exchange.fail(failure)

    def told(self, result: Any, error: BaseException | None) -> None:
        """What the action waited for has come; the same for what goes wrong here."""
        _, failure = outcome_of(self._finish, result, error)
        if failure is not None:
            self.exchange.fail(failure)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self.answer(None if self.then is None else self.then(result))
        elif isinstance(error, SqsError | NexoError):
            self.refuse(error)
        else:
            raise error

    def answer_later(self, work: Coroutine[Any, Any, Shape | None]) -> None:
        """Go on in a task, and answer with what it brings."""
        self.exchange.spawn(self._finished(work))

    async def _finished(self, work: Coroutine[Any, Any, Shape | None]) -> None:
        try:
            result = await work
        except Gone:
            return
        except (SqsError, NexoError) as error:
            self.refuse(error)
        else:
            self.answer(result)

    def answer(self, result: Shape | bytes | None) -> None:
        if self.is_query:
            assert not isinstance(result, bytes)
            self._answer_query(result)
            return
        if result is None:
            body = b"{}"
        else:
            body = result if isinstance(result, bytes) else _encode_json(result)
        exchange, size = self.exchange, len(body)
        if size < HTTP_ONE_PART_BYTES and exchange.method == "POST":  # nearly all
            told = self.door.json_head, self.number, size, body
            exchange.reply_ok(b"%b%x\r\ncontent-length: %d\r\n\r\n%b" % told)
        else:
            exchange.reply(200, self._head(_JSON_HEAD, size), body)

    def refuse(self, error: NexoError | SqsError) -> None:
        refused = sqs_error(error)
        if self.is_query:
            render = query.json_error if self._wants_json else query.xml_error
            self._tell(refused.status, render(refused, self.request_id.decode()))
            return
        told = _encode_json({"__type": refused.type_name, "message": refused.message})
        code = f"x-amzn-query-error: {refused.code};{refused.fault}\r\n".encode()
        self.exchange.reply(refused.status, self._head(_JSON_HEAD, len(told)) + code, told)

    def answer_nowhere(self) -> None:
        """There is no action, and no protocol to say so in."""
        self.answer_xml(404, b"<UnknownOperationException/>\n")

    def answer_xml(self, status: int, body: bytes) -> None:
        self.exchange.reply(status, self._head(_XML_HEAD, len(body)), body)

    @property
    def _wants_json(self) -> bool:
        return b"application/json" in self.exchange.fields.get(b"accept", b"")

    def _answer_query(self, result: Shape | None) -> None:
        request_id = self.request_id.decode()
        if self._wants_json:
            body = query.json_result(self.action.name, result, request_id)
        else:
            space = STS_NAMESPACE if self.action.name == "GetCallerIdentity" else query.NAMESPACE
            body = query.xml_result(self.action.name, result, request_id, space)
        self._tell(200, body)

    def _tell(self, status: int, body: bytes) -> None:
        kind = _PLAIN_JSON_HEAD if self._wants_json else _XML_HEAD
        self.exchange.reply(status, self._head(kind, len(body)), body)

    def _head(self, kind: bytes, size: int) -> bytes:
        return b"%b%b\r\ncontent-length: %d\r\n" % (kind, self.request_id, size)
