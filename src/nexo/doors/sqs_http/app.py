"""The SQS API as an ASGI app: it finds the action, calls it, and answers in the same protocol."""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.guard import Guard
from nexo.access.signature import SignatureRefused
from nexo.doors.http.body import Gone, check_values
from nexo.doors.sqs_http import replies
from nexo.doors.sqs_http.actions import ACTIONS, STS_ACTIONS, Action
from nexo.doors.sqs_http.addresses import DEFAULT_ACCOUNT, DEFAULT_REGION, Addresses
from nexo.doors.sqs_http.call import Call
from nexo.doors.sqs_http.callers import DOOR, Callers
from nexo.doors.sqs_http.errors import SqsError
from nexo.doors.sqs_http.form import read_fields, request_of
from nexo.doors.sqs_http.identity import STS_NAMESPACE
from nexo.doors.sqs_http.pauses import Pauses
from nexo.doors.sqs_http.refusals import sqs_error
from nexo.doors.sqs_http.request import Request
from nexo.vocabulary.errors import InvalidArgument, NexoError
from nexo.vocabulary.limits import SQS_BODY_BYTES_MAX, SQS_FORM_BYTES_MAX, SQS_JSON_VALUES_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from nexo.doors.http.body import Receive
    from nexo.doors.sqs_http.callers import Caller
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


class SqsApp:
    def __init__(
        self,
        engine: Engine,
        *,
        account: str = DEFAULT_ACCOUNT,
        region: str = DEFAULT_REGION,
        has_pauses: bool = False,
        guard: Guard | None = None,
    ) -> None:
        """Without a guard anyone may do everything."""
        self._engine = engine
        self._guard = guard or Guard(engine.wall_ms)
        self._addresses = Addresses(account, region)
        self._callers = Callers(self._addresses.default, self._guard)
        self._pauses = Pauses(has_pauses)
        self._waits: set[asyncio.Task[Delivery]] = set()
        self._life = f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-4{secrets.token_hex(2)[1:]}-8"
        self._numbers = count(secrets.randbits(32))
        self._targets = {(_TARGET + name.encode()): name for name in ACTIONS}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            target = request.target
            if target or request.content_type.startswith(_JSON_PREFIX):
                await self._answer_json(request, send, target)
            else:
                await self._answer_query(request, send)
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

    async def _answer_json(self, request: Request, send: Send, target: bytes) -> None:
        request_id = self._request_id()
        try:
            announced = self._callers.announce(request)
            await request.read_body(SQS_BODY_BYTES_MAX)
            caller = self._callers.prove(request, announced)
            action = self._json_action(target)
            wanted = _decode(action, request.body)
            result = await self._run(action, wanted, caller, request, is_query=False)
        except SqsError as error:
            await self._refuse_json(request, send, error, request_id)
            return
        except SignatureRefused as error:
            refused = SqsError(error.aws_code, error.message, status=error.http_status)
            await self._refuse_json(request, send, refused, request_id)
            return
        except NexoError as error:
            await self._refuse_json(request, send, sqs_error(error), request_id)
            return
        body = b"{}" if result is None else replies.encode_json(result)
        await _send(request, send, 200, _JSON, body, request_id)

    def _json_action(self, target: bytes) -> Action:
        name = self._targets.get(target)
        if name is not None:
            return ACTIONS[name]
        if target.startswith(_STS_TARGET):
            sts = STS_ACTIONS.get(target[len(_STS_TARGET) :].decode("latin-1"))
            if sts is not None:
                return sts
        raise SqsError("UnknownOperationException", "The operation is not known.")

    async def _refuse_json(
        self, request: Request, send: Send, error: SqsError, request_id: str
    ) -> None:
        told = f"{error.code};{error.fault}"
        await _send(request, send, error.status, _JSON, replies.json_error(error), request_id, told)

    # -- The query protocol -------------------------------------------------------------------

    async def _answer_query(self, request: Request, send: Send) -> None:
        request_id = self._request_id()
        wants_json = b"application/json" in request.accept
        kind = _PLAIN_JSON if wants_json else _XML
        try:
            if request.method != "POST" and not request.query:
                await _send(request, send, 404, _XML, b"<UnknownOperationException/>\n", request_id)
                return
            announced = self._callers.announce(request)
            await request.read_body(SQS_FORM_BYTES_MAX)
            caller = self._callers.prove(request, announced)
            # Only now, when it is known whose it is, something is made of it.
            fields = read_fields(request.query)
            fields.update(read_fields(request.body))
            name = fields.get("Action")
            if not name:
                raise SqsError("MissingAction", "The request must contain the parameter Action.")
            action = _query_action(name, fields, request.path)
            self._check_method(request, action)
            wanted = request_of(fields, action.request)
            result = await self._run(action, wanted, caller, request, is_query=True)
        except SqsError as error:
            await self._refuse_query(request, send, error, kind, request_id)
            return
        except SignatureRefused as error:
            refused = SqsError(error.aws_code, error.message, status=error.http_status)
            await self._refuse_query(request, send, refused, kind, request_id)
            return
        except NexoError as error:
            await self._refuse_query(request, send, sqs_error(error), kind, request_id)
            return
        if wants_json:
            body = replies.json_result(name, result, request_id)
        else:
            space = STS_NAMESPACE if name in STS_ACTIONS else replies.NAMESPACE
            body = replies.xml_result(name, result, request_id, space)
        await _send(request, send, 200, kind, body, request_id)

    async def _refuse_query(
        self, request: Request, send: Send, error: SqsError, kind: bytes, request_id: str
    ) -> None:
        render = replies.json_query_error if kind is _PLAIN_JSON else replies.xml_error
        await _send(request, send, error.status, kind, render(error, request_id), request_id)

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
            action.needs,
        )
        if not (action.is_management and self._guard.is_required):
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


async def _send(
    request: Request,
    send: Send,
    status: int,
    kind: bytes,
    body: bytes,
    request_id: str,
    refusal: str = "",
) -> None:
    """Answer in one write where the server has a way for that, else as ASGI says."""
    told = f"x-amzn-query-error: {refusal}\r\n" if refusal else ""
    head = f"x-amzn-requestid: {request_id}\r\ncontent-length: {len(body)}\r\n{told}".encode()
    if request.reply is not None and request.reply(status, kind + head, body):
        return
    lines = (line.split(b": ", 1) for line in (kind + head).split(b"\r\n") if line)
    headers = [(name, value) for name, value in lines]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
