"""The SQS API as an ASGI app: it reads a request, finds the action, calls it, and answers in the
protocol of the request.

A SendMessage comes from `http.server` through `http.front` to here; `accounts` says who calls and
which queue is meant, `actions` what is to be done, and `send_message` hands it to the actor of the
queue. The answer goes from here to the server in one write.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.guard import Guard
from nexo.doors.http.body import Gone, TooSlow, check_values, read_body
from nexo.doors.http.query import Asked, signed_service
from nexo.doors.sqs_http import query
from nexo.doors.sqs_http.accounts import (
    DOOR,
    STS_NAMESPACE,
    Addresses,
    Callers,
)
from nexo.doors.sqs_http.actions import ACTIONS, STS_ACTIONS, Action, Call
from nexo.doors.sqs_http.errors import SqsError, sqs_error
from nexo.doors.sqs_http.queues import Pauses
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NexoError
from nexo.vocabulary.limits import (
    SQS_BODY_BYTES_MAX,
    SQS_BODY_S,
    SQS_FORM_BYTES_MAX,
    SQS_JSON_VALUES_MAX,
    SQS_TRACE_CHARS_MAX,
)
from nexo.vocabulary.sqs import DEFAULT_ACCOUNT, DEFAULT_REGION

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from nexo.doors.http.body import Receive
    from nexo.doors.http.query import QueryApi
    from nexo.doors.http.server import Reply
    from nexo.doors.sqs_http.accounts import Caller
    from nexo.doors.sqs_http.shapes import Shape
    from nexo.engine.engine import Engine
    from nexo.engine.types import Delivery

    Send = Callable[[dict[str, Any]], Awaitable[None]]

_JSON = b"content-type: application/x-amz-json-1.0\r\n"
_XML = b"content-type: text/xml\r\n"
_PLAIN_JSON = b"content-type: application/json\r\n"
_JSON_PREFIX = b"application/x-amz-json"
_TARGET = b"AmazonSQS."
_STS_TARGET = b"AWSSecurityTokenServiceV20110615."
# Actions that name no queue: they are not for the URL of one.
_ROOT_ONLY = frozenset({"CreateQueue", "ListQueues"})
_encode_json = msgspec.json.Encoder().encode


class Request:
    """An HTTP request as the actions need it, read from ASGI, and the way to answer it."""

    __slots__ = (
        "_origin_host",
        "_receive",
        "_reply",
        "_scheme",
        "_send",
        "accept",
        "authorization",
        "body",
        "content_type",
        "headers",
        "id",
        "method",
        "path",
        "peer",
        "query",
        "raw_path",
        "target",
        "trace",
    )

    def __init__(
        self, scope: dict[str, Any], receive: Receive, send: Send, request_id: str
    ) -> None:
        self.id = request_id
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.body = b""
        self.target = self.content_type = self.accept = b""
        self.authorization: bytes | None = None
        self.trace: str | None = None
        self._receive = receive
        self._send = send
        self._reply: Reply | None = scope.get("nexo.reply")
        self._scheme: str = scope["scheme"]
        self._origin_host = b"localhost"
        for name, value in self.headers:
            if name == b"x-amz-target":
                self.target = value
            elif name == b"authorization":
                self.authorization = value
            elif name == b"host":
                self._origin_host = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"accept":
                self.accept = value
            elif name == b"x-amzn-trace-id" and len(value) <= SQS_TRACE_CHARS_MAX:
                self.trace = value.decode("latin-1")

    @property
    def origin(self) -> str:
        """Where the client found us: what it is told of queues must lead there again."""
        return f"{self._scheme}://{self._origin_host.decode('latin-1')}"

    async def read_body(self, bytes_max: int) -> None:
        is_whole = self._reply is not None and self._reply.is_whole
        try:
            self.body = await read_body(
                self._receive, self.headers, bytes_max, SQS_BODY_S, is_whole=is_whole
            )
        except MessageTooLarge:
            raise SqsError(
                "RequestEntityTooLarge",
                f"A request must be shorter than {bytes_max} bytes.",
                status=413,
            ) from None
        except TooSlow:
            raise SqsError(
                "RequestTimeout", "The request body took too long to arrive.", status=408
            ) from None

    async def hung_up(self) -> None:
        """Wait until the client is gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, kind: bytes, body: bytes, refusal: str = "") -> None:
        """In one write where the server has a way for that, else as ASGI says."""
        told = f"x-amzn-query-error: {refusal}\r\n" if refusal else ""
        head = f"x-amzn-requestid: {self.id}\r\ncontent-length: {len(body)}\r\n{told}".encode()
        if self._reply is not None and self._reply(status, kind + head, body):
            return
        lines = (line.split(b": ", 1) for line in (kind + head).split(b"\r\n") if line)
        headers = [(name, value) for name, value in lines]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class SqsApp:
    def __init__(
        self,
        engine: Engine,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
        has_pauses: bool = False,
        guard: Guard | None = None,
        others: Sequence[QueryApi] = (),
    ) -> None:
        """Without a guard anyone may do everything. `others` are services at the same address."""
        self._engine = engine
        self._guard = guard or Guard(engine.wall_ms)
        self._addresses = Addresses(account, region)
        self._callers = Callers(self._addresses.default, self._guard)
        self._others = others
        self._pauses = Pauses(has_pauses)
        self._waits: set[asyncio.Task[Delivery]] = set()
        self._life = f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-4{secrets.token_hex(2)[1:]}-8"
        self._numbers = count(secrets.randbits(32))
        self._targets = {(_TARGET + name.encode()): name for name in ACTIONS}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send, self._request_id())
        try:
            if request.target or request.content_type.startswith(_JSON_PREFIX):
                await self._answer_json(request)
            else:
                await self._answer_query(request)
        except Gone:
            return

    def close(self) -> None:
        """Answer those who wait: the broker stops."""
        for wait in self._waits:
            wait.cancel()

    def _request_id(self) -> str:
        """Unlike any other, and cheap: this life of the door, and a number."""
        number = next(self._numbers)
        return f"{self._life}{number >> 48 & 0xFFF:03x}-{number & 0xFFFFFFFFFFFF:012x}"

    # -- The JSON protocol --------------------------------------------------------------------

    async def _answer_json(self, request: Request) -> None:
        try:
            announced = self._callers.announce(request)
            await request.read_body(SQS_BODY_BYTES_MAX)
            caller = self._callers.prove(request, announced)
            action = self._json_action(request.target)
            wanted = _decode(action, request.body)
            result = await self._run(action, wanted, caller, request, is_query=False)
        except (SqsError, NexoError) as error:
            refused = sqs_error(error)
            told = _encode_json({"__type": refused.type_name, "message": refused.message})
            code = f"{refused.code};{refused.fault}"
            await request.answer(refused.status, _JSON, told, code)
            return
        await request.answer(200, _JSON, b"{}" if result is None else _encode_json(result))

    def _json_action(self, target: bytes) -> Action:
        name = self._targets.get(target)
        if name is not None:
            return ACTIONS[name]
        if target.startswith(_STS_TARGET):
            sts = STS_ACTIONS.get(target[len(_STS_TARGET) :].decode("latin-1"))
            if sts is not None:
                return sts
        raise SqsError("UnknownOperationException", "The operation is not known.")

    # -- The query protocol -------------------------------------------------------------------

    async def _answer_query(self, request: Request) -> None:
        wants_json = b"application/json" in request.accept
        kind = _PLAIN_JSON if wants_json else _XML
        if request.method != "POST" and not request.query:
            await request.answer(404, _XML, b"<UnknownOperationException/>\n")
            return
        try:
            announced = self._callers.announce(request)
            await request.read_body(SQS_FORM_BYTES_MAX)
            caller = self._callers.prove(request, announced)
            # Only now, when it is known whose it is, something is made of it.
            fields = query.read_fields(request.query)
            fields.update(query.read_fields(request.body))
            if (other := self._other_api(request, fields)) is not None:
                asked = _asked(request, caller, fields)
                status, told = await other.answer(asked)
                await request.answer(status, _XML, told)
                return
            name = fields.get("Action")
            if not name:
                raise SqsError("MissingAction", "The request must contain the parameter Action.")
            action = _query_action(name, fields, request.path)
            self._check_method(request, action)
            wanted = query.request_of(fields, action.request)
            result = await self._run(action, wanted, caller, request, is_query=True)
        except (SqsError, NexoError) as error:
            refused = sqs_error(error)
            render = query.json_error if wants_json else query.xml_error
            await request.answer(refused.status, kind, render(refused, request.id))
            return
        if wants_json:
            body = query.json_result(name, result, request.id)
        else:
            space = STS_NAMESPACE if name in STS_ACTIONS else query.NAMESPACE
            body = query.xml_result(name, result, request.id, space)
        await request.answer(200, kind, body)

    def _other_api(self, request: Request, fields: dict[str, str]) -> QueryApi | None:
        """The service that a request is for, if it is not for this one."""
        service = signed_service(request.authorization, fields)
        return next((api for api in self._others if api.takes(service, fields)), None)

    def _check_method(self, request: Request, action: Action) -> None:
        """Where anyone may do everything, an image in a web page could be `/?Action=PurgeQueue`:
        browsers fetch it without asking, and old ones do not say for whom. No page can make them
        send a header of its choice, nor POST without saying where it comes from."""
        if request.method == "POST" or not action.is_change or self._guard.is_required:
            return
        if request.authorization is None:
            raise SqsError(
                "AccessDenied",
                f"{action.name} by {request.method} needs an Authorization header, because a link "
                "in a web page could do it as well. Use POST, or sign the request.",
                status=403,
            )

    # -- Both ---------------------------------------------------------------------------------

    async def _run(
        self, action: Action, wanted: Shape, caller: Caller, request: Request, *, is_query: bool
    ) -> Shape | None:
        action.check(wanted)
        call = Call(
            self._engine,
            self._addresses,
            self._pauses,
            self._waits,
            caller,
            request,
            is_query,
            action.operation,
        )
        if not (action.operation.is_audited and self._guard.is_required):
            return await action.handler(call, wanted)
        resource = str(getattr(wanted, "queue_url", None) or getattr(wanted, "queue_name", ""))
        with self._guard.tell(caller.rights, request.peer, DOOR, action.name, resource):
            return await action.handler(call, wanted)


def _query_action(name: str, fields: dict[str, str], path: str) -> Action:
    action = ACTIONS.get(name) or STS_ACTIONS.get(name)
    at_queue = path.count("/") >= 2
    if action is None or (at_queue and name in _ROOT_ONLY):
        raise SqsError("InvalidAction", f"The action {name:.200} is not valid for this endpoint.")
    if at_queue:
        fields.setdefault("QueueUrl", path)
    return action


def _asked(request: Request, caller: Caller, fields: dict[str, str]) -> Asked:
    return Asked(
        fields=fields,
        account=caller.place.account,
        region=caller.place.region,
        rights=caller.rights,
        request_id=request.id,
        origin=request.origin,
        peer=request.peer,
        is_link=request.method != "POST" and request.authorization is None,
        trace=request.trace,
    )


def _decode(action: Action, body: bytes) -> Shape:
    try:
        if not body.isascii():  # what the action does not know is not looked into, but must be text
            body.decode()
        check_values(body, SQS_JSON_VALUES_MAX)
        return action.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidArgument) as error:
        raise SqsError("SerializationException", str(error)) from None
    except RecursionError:
        raise SqsError("SerializationException", "The request is nested too deep.") from None
