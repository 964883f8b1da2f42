"""The SQS API: it reads a request, finds the action, calls it, and answers in the protocol of the
request.

A SendMessage comes from `http.connection` through `http.front` to here; `accounts` says who calls
and which queue is meant, `actions` what is to be done, and `send_message` hands it to the actor of
the queue. All of that is one step of the event loop; the answer is written when the commit ends.
Actions that wait for more than one commit go on in a task.
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from nexo.access.guard import Guard
from nexo.access.sigv4 import Claim
from nexo.doors.http.body import Gone, TooSlow, check_values, read_body
from nexo.doors.http.query import Asked, signed_service
from nexo.doors.sqs_http import query
from nexo.doors.sqs_http.accounts import (
    DOOR,
    Addresses,
    Callers,
)
from nexo.doors.sqs_http.actions import ACTIONS, STS_ACTIONS, Action
from nexo.doors.sqs_http.call import TAKEN, Call, Door, Later
from nexo.doors.sqs_http.clients import Clients
from nexo.doors.sqs_http.delete_message import Deletes
from nexo.doors.sqs_http.errors import SqsError
from nexo.doors.sqs_http.move_tasks import source_of
from nexo.doors.sqs_http.queues import Pauses
from nexo.doors.sqs_http.receive_message import Receives
from nexo.doors.sqs_http.sends import Sends
from nexo.doors.sqs_http.shapes import Shape
from nexo.engine.committer import call_back
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NexoError
from nexo.vocabulary.limits import (
    HTTP_JSON_PLAIN_BYTES,
    SQS_BODY_BYTES_MAX,
    SQS_BODY_S,
    SQS_FORM_BYTES_MAX,
    SQS_JSON_VALUES_MAX,
)
from nexo.vocabulary.sqs import DEFAULT_ACCOUNT, DEFAULT_REGION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.doors.http.exchange import Exchange
    from nexo.doors.http.query import QueryApi
    from nexo.doors.sqs_http.accounts import Caller
    from nexo.engine.engine import Engine

_JSON_PREFIX = b"application/x-amz-json"
_TARGET = b"AmazonSQS."
_STS_TARGET = b"AWSSecurityTokenServiceV20110615."
# Actions that name no queue: they are not for the URL of one.
_ROOT_ONLY = frozenset({"CreateQueue", "ListQueues"})
_NUMBER_FIRST = 1 << 47  # all that follow have twelve hexadecimal digits, too


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
        self._others = others
        self._guard = guard or Guard(engine.wall_ms)
        addresses = Addresses(account, region)
        self._callers = Callers(addresses.default, self._guard)
        self._door = Door(
            engine,
            addresses,
            Pauses(has_pauses),
            Sends(),
            Receives(),
            Deletes(),
            Clients(engine),
            _new_life(),
        )
        # The id of a request is unlike any other, and cheap: this life of the door, and a number.
        self._numbers = count(_NUMBER_FIRST + secrets.randbits(32))
        self._targets = {(_TARGET + name.encode()): action for name, action in ACTIONS.items()}

    def begin(self, exchange: Exchange) -> None:
        fields = exchange.fields
        is_query = b"x-amz-target" not in fields and not fields.get(
            b"content-type", b""
        ).startswith(_JSON_PREFIX)
        call = Call(self._door, exchange, next(self._numbers), is_query)
        if is_query and exchange.method != "POST" and not _has_action(exchange.query):
            call.answer_nowhere()
            return
        try:
            announced = self._callers.announce(exchange)
            if not exchange.is_whole:
                exchange.spawn(self._when_whole(call, announced))
            elif exchange.size > (SQS_FORM_BYTES_MAX if is_query else SQS_BODY_BYTES_MAX):
                call.refuse(_too_large(is_query))
            else:
                self._go_on(call, announced, exchange.take_body())
        except (SqsError, NexoError) as error:
            call.refuse(error)

    def close(self) -> None:
        """Answer those who wait: the broker stops."""
        for wait in self._door.waits:
            wait.cancel()
        self._door.clients.close()

    async def _when_whole(self, call: Call, announced: Caller | Claim) -> None:
        exchange = call.exchange
        bytes_max = SQS_FORM_BYTES_MAX if call.is_query else SQS_BODY_BYTES_MAX
        try:
            body = await read_body(exchange.receive, exchange.headers, bytes_max, SQS_BODY_S)
        except Gone:
            return
        except MessageTooLarge:
            call.refuse(_too_large(call.is_query))
            return
        except TooSlow:
            told = "The request body took too long to arrive."
            call.refuse(SqsError("RequestTimeout", told, status=408))
            return
        except NexoError as error:
            call.refuse(error)
            return
        try:
            self._go_on(call, announced, body)
        except (SqsError, NexoError) as error:
            call.refuse(error)

    def _go_on(self, call: Call, announced: Caller | Claim, body: bytes) -> None:
        """The request is whole. Only when it is known whose it is, something is made of it."""
        if isinstance(announced, Claim):
            call.caller = self._callers.prove(call.exchange, announced, body)
        else:
            call.caller = announced
        if call.is_query:
            fields = query.read_fields(call.exchange.query)
            fields.update(query.read_fields(body))
            if (other := self._other_api(call, fields)) is not None:
                call.exchange.spawn(_handed_on(call, other, fields))
                return
            action, wanted = self._read_query(call, fields)
        else:
            target = call.exchange.fields.get(b"x-amz-target", b"")
            action = self._targets.get(target) or _other_action(target)
            wanted = _decode(action, body)
        call.action = action
        if None in action.required(wanted):
            raise action.lack(wanted)
        if action.is_audited and self._guard.is_required:
            call.answer_later(self._audited(call, action, wanted))
            return
        result = action.handler(call, wanted)
        if result is TAKEN:
            return
        if result is None or isinstance(result, Shape):
            call.answer(result)
        elif isinstance(result, Later):
            call.then = result.then
            call_back(result.future, call.told)
        else:
            call.answer_later(result)

    async def _audited(self, call: Call, action: Action, wanted: Shape) -> Shape | None:
        resource = _resource_of(wanted)
        peer = call.exchange.peer
        with self._guard.tell(call.caller.rights, peer, DOOR, action.name, resource):
            result = action.handler(call, wanted)
            assert isinstance(result, Coroutine)  # so are all that change definitions
            done: Shape | None = await result
            return done

    def _other_api(self, call: Call, fields: dict[str, str]) -> QueryApi | None:
        """The service that a request is for, if it is not for this one."""
        service = signed_service(call.exchange.fields.get(b"authorization"), fields)
        return next((api for api in self._others if api.takes(service, fields)), None)

    def _read_query(self, call: Call, fields: dict[str, str]) -> tuple[Action, Shape]:
        exchange = call.exchange
        name = fields.get("Action")
        if not name:
            raise SqsError("MissingAction", "The request must contain the parameter Action.")
        action = _query_action(name, fields, exchange.path)
        self._check_method(exchange, action)
        return action, query.request_of(fields, action.request)

    def _check_method(self, exchange: Exchange, action: Action) -> None:
        """Where anyone may do everything, an image in a web page could be `/?Action=PurgeQueue`:
        browsers fetch it without asking, and old ones do not say for whom. No page can make them
        send a header of its choice, nor POST without saying where it comes from."""
        if exchange.method == "POST" or not action.is_change or self._guard.is_required:
            return
        if b"authorization" not in exchange.fields:
            raise SqsError(
                "AccessDenied",
                f"{action.name} by {exchange.method} needs an Authorization header, because a link "
                "in a web page could do it as well. Use POST, or sign the request.",
                status=403,
            )


def _new_life() -> bytes:
    drawn = secrets.token_hex(10)
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[12:15]}-8{drawn[15:18]}-".encode()


def _other_action(target: bytes) -> Action:
    """What is asked for in JSON, and is none of SQS's own actions."""
    if target.startswith(_STS_TARGET):
        sts = STS_ACTIONS.get(target[len(_STS_TARGET) :].decode("latin-1"))
        if sts is not None:
            return sts
    raise SqsError("UnknownOperationException", "The operation is not known.")


async def _handed_on(call: Call, other: QueryApi, fields: dict[str, str]) -> None:
    exchange = call.exchange
    asked = Asked(
        fields=fields,
        account=call.caller.place.account,
        region=call.caller.place.region,
        rights=call.caller.rights,
        request_id=call.request_id.decode(),
        origin=exchange.origin,
        peer=exchange.peer,
        is_link=exchange.method != "POST" and b"authorization" not in exchange.fields,
        trace=call.trace,
    )
    status, told = await other.answer(asked)
    call.answer_xml(status, told)


def _too_large(is_query: bool) -> SqsError:
    bytes_max = SQS_FORM_BYTES_MAX if is_query else SQS_BODY_BYTES_MAX
    told = f"A request must be shorter than {bytes_max} bytes."
    return SqsError("RequestEntityTooLarge", told, status=413)


def _has_action(text: bytes) -> bool:
    """Whether a query names an action: a signature alone does not."""
    return text.startswith(b"Action=") or b"&Action=" in text


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
        if len(body) > HTTP_JSON_PLAIN_BYTES:
            check_values(body, SQS_JSON_VALUES_MAX)
        return action.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidArgument) as error:
        raise SqsError("SerializationException", str(error)) from None
    except RecursionError:
        raise SqsError("SerializationException", "The request is nested too deep.") from None


def _resource_of(wanted: Shape) -> str:
    """What an action is done to, as the request names it."""
    handle = getattr(wanted, "task_handle", None)
    if handle is not None:
        return source_of(handle)
    named = (getattr(wanted, field, None) for field in ("queue_url", "queue_name", "source_arn"))
    return next((str(name) for name in named if name), "")
