"""The admin API as an ASGI app: finds the operation, checks who asks, and answers in JSON.

What has no row in `OPERATIONS` does not exist: routes, decoding, access, the audit log, the OpenAPI
document and its page all come from this table. The app expects the caller in `scope["state"]`;
whoever serves it has asked for the token. There may be an engine too, for this request alone.
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from nexo.access.operations import check, operation_of
from nexo.doors.admin_http.chosen import CHOSEN
from nexo.doors.admin_http.cluster import CLUSTER
from nexo.doors.admin_http.connections import CONNECTIONS
from nexo.doors.admin_http.definitions import DEFINITIONS
from nexo.doors.admin_http.messages import QUEUE_MESSAGES, TOPIC_MESSAGES
from nexo.doors.admin_http.openapi import OPENAPI_PATH, openapi_document
from nexo.doors.admin_http.operation import Answer, Call, NoSuchResource, WrongMethod
from nexo.doors.admin_http.overview import OVERVIEW
from nexo.doors.admin_http.queues import QUEUES
from nexo.doors.admin_http.redrives import REDRIVES
from nexo.doors.admin_http.request import (
    JSON,
    Refused,
    check_origin,
    read_content,
    read_path,
    read_query,
    refusal_of,
)
from nexo.doors.admin_http.tokens import TOKENS
from nexo.doors.admin_http.topics import TOPICS
from nexo.doors.http.body import Gone
from nexo.engine.definitions import Packed
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import ADMIN_JSON_VALUES_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from nexo.access import operations
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.doors.admin_http.operation import Operation, Surroundings
    from nexo.engine.engine import Engine

OPERATIONS: tuple[Operation, ...] = (
    *OVERVIEW,
    *QUEUES,
    *QUEUE_MESSAGES,
    *CHOSEN,
    *REDRIVES,
    *TOPICS,
    *TOPIC_MESSAGES,
    *CONNECTIONS,
    *TOKENS,
    *DEFINITIONS,
    *CLUSTER,
)

DOOR = "admin"
_NO_STORE = {"cache-control": "no-store"}  # figures age, and a new token is shown once

encode = msgspec.json.Encoder().encode


class AdminApp:
    def __init__(self, engine: Engine, guard: Guard, surroundings: Surroundings) -> None:
        self._engine = engine
        self._guard = guard
        self._surroundings = surroundings
        paths: dict[str, dict[str, Operation]] = {}
        for each in OPERATIONS:
            paths.setdefault(each.path, {})[each.method] = each
        routes = [Route(path, _Resource(self, methods)) for path, methods in paths.items()]
        routes.append(Route(OPENAPI_PATH, _Document(surroundings.version)))
        self._router = Router(routes, redirect_slashes=False, default=_nowhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Routed as it was sent: a name with a slash comes as %2F, which parts nothing.
        raw: bytes | None = scope.get("raw_path")
        routed = {**scope, "path": raw.decode("latin-1")} if raw is not None else scope
        # Gone before it was answered: there is nobody to tell.
        with contextlib.suppress(Gone):
            await self._router(routed, receive, send)

    async def answer(self, operation: Operation, request: Request) -> Response:
        """Read the request, check it, do it."""
        check_origin(request)
        caller: Caller = request.scope["state"]["caller"]
        call = Call(
            request.scope["state"].get("engine", self._engine),
            self._guard,
            self._surroundings,
            caller,
            path=read_path(request.path_params, operation.parameters),
            query=read_query(request.scope["query_string"], operation.query),
            body=None,
        )
        if operation.body is not None:
            call = call._replace(body=await self._content(operation, operation.body, call, request))
        with self._told(operation, call, request):
            if caller.is_bound:
                check(caller, _access(operation, call), operation.named(call))
            answered = await operation.handle(call)
        status, value = operation.status, answered
        if isinstance(answered, Answer):
            status, value = answered
        if operation.answer is None:
            return Response(status_code=status, headers=_NO_STORE)
        if isinstance(value, Packed):
            return _in_pieces(status, value)
        return _json(status, value)

    async def _content(
        self, operation: Operation, kind: type[msgspec.Struct], call: Call, request: Request
    ) -> msgspec.Struct:
        """The body. What is for admins is read from admins alone, and then whatever its length:
        they import definitions by the thousand."""
        if not operation.is_for_admins:
            return await read_content(request, kind, ADMIN_JSON_VALUES_MAX)
        try:
            call.caller.check_admin()
        except NexoError:
            with self._told(operation, call, request):
                raise
        return await read_content(request, kind, None)

    def _told(
        self, operation: Operation, call: Call, request: Request
    ) -> contextlib.AbstractContextManager[None]:
        """What changes something is told to the audit log, however it ends."""
        if not _access(operation, call).is_audited:
            return contextlib.nullcontext()
        peer = request.client.host if request.client is not None else ""
        return self._guard.tell(call.caller, peer, DOOR, operation.name, _resource(call))


class _Resource:
    """All that can be done at one path; an ASGI app, as routes take it."""

    def __init__(self, app: AdminApp, methods: dict[str, Operation]) -> None:
        self._app = app
        self._methods = methods
        self._allowed = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        # A HEAD is a GET of which only the head is sent; the server sees to that.
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._methods.get(method)
        try:
            if operation is None:
                raise WrongMethod(
                    f"there is no {request.method:.20} here", f"there is {self._allowed}"
                )
            response = await self._app.answer(operation, request)
        except NexoError as error:
            response = refusal(error)
            if isinstance(error, WrongMethod):
                response.headers["allow"] = self._allowed
        await response(scope, receive, send)


def api_document(version: str) -> bytes:
    """The OpenAPI document as JSON, for this door and for the console's page of it."""
    return encode(openapi_document(OPERATIONS, version))


class _Document:
    """The OpenAPI document, made when somebody first asks: a start does without its 30 ms."""

    def __init__(self, version: str) -> None:
        self._version = version

    @cached_property
    def _document(self) -> Response:
        return Response(api_document(self._version), media_type=JSON)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            response = self._document
        else:
            response = refusal(WrongMethod("this can only be read", "there is GET"))
            response.headers["allow"] = "GET"
        await response(scope, receive, send)


def refusal(error: NexoError) -> Response:
    return _json(error.http_status, Refused(refusal_of(error)))


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    error = NoSuchResource("there is nothing here", f"see {OPENAPI_PATH}")
    await refusal(error)(scope, receive, send)


def _json(status: int, value: Any) -> Response:
    return Response(encode(value), status, headers=_NO_STORE, media_type=JSON)


def _in_pieces(status: int, packed: Packed) -> Response:
    async def pieces() -> AsyncIterator[bytes | memoryview]:
        for piece in packed.pieces:
            yield piece

    size = sum(map(len, packed.pieces))
    headers = {**_NO_STORE, "content-length": str(size)}
    return StreamingResponse(pieces(), status, headers=headers, media_type=JSON)


def _access(operation: Operation, call: Call) -> operations.Operation:
    """What an operation needs. To try an import changes nothing: that is another one."""
    is_tried = getattr(call.query, "dry_run", False)
    return operation_of("compare_definitions" if is_tried else operation.name)


def _resource(call: Call) -> str:
    """What an operation is about, for the audit log."""
    named = [getattr(call.path, "name", ""), getattr(call.body, "name", "")]
    named += [getattr(each, "queue", "") for each in (call.query, call.body)]
    node = getattr(call.body, "node", None)
    if node is not None:
        return f"node {node}"
    number = getattr(call.path, "number", None)
    if number is not None:
        return f"connection {number}"
    task = getattr(call.path, "task", None)
    return f"task {task}" if task is not None else " ".join(filter(None, named))
