"""The console as an ASGI app: who comes, whether they may, and the page that answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette import routing
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nexo.access.caller import ANYONE
from nexo.access.operations import METRICS
from nexo.access.permissions import Action
from nexo.doors.console.batches import Batches, Finished
from nexo.doors.console.history import Sampler
from nexo.doors.console.pages import HEADERS, Files, Templates
from nexo.doors.console.request import ROOT, Call, Shared, plain, query_of
from nexo.doors.console.routes import LOGIN, ROUTES, check, operation_of
from nexo.doors.console.session import Notices, Sessions, SignedNotices, cookie_of, sign_out
from nexo.doors.console.streams import Pulse
from nexo.doors.http.body import Gone, decoded, fields_of, read_body
from nexo.vocabulary.errors import Forbidden, InvalidArgument, NexoError, Unauthorized
from nexo.vocabulary.limits import (
    CONSOLE_FORM_FIELDS_MAX,
    CONSOLE_LOGIN_BYTES_MAX,
    CONSOLE_LOGIN_S,
    HTTP_BODY_S,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.doors.console.request import Surroundings
    from nexo.doors.console.routes import Route
    from nexo.doors.console.spark import LakeTables
    from nexo.engine.engine import Engine

    Form = dict[str, list[str]]


class ConsoleApp:
    """To be made where the event loop runs; `close` ends what it keeps running there."""

    def __init__(
        self,
        engine: Engine,
        guard: Guard,
        surroundings: Surroundings,
        lake: LakeTables | None = None,
        sampler: Sampler | None = None,
        secret: bytes | None = None,
        batches: Finished | None = None,
    ) -> None:
        """`secret` signs what pages carry, where others know it too: a page of one node may be
        answered by another. There may be an engine in `scope["state"]`, for one request alone."""
        self._files = Files()
        self._sessions = Sessions(guard, secret)
        has_cluster = surroundings.cluster is not None
        self._templates = Templates(self._files, surroundings.version, has_cluster)
        sampler = sampler or Sampler(engine)
        self._pulse = Pulse(sampler)
        self._shared = Shared(
            engine,
            guard,
            surroundings,
            sampler,
            self._templates,
            Notices() if secret is None else SignedNotices(secret),
            self._pulse,
            batches or Batches(engine),
            lake,
        )
        paths: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            paths.setdefault(ROOT + route.path, {})[route.method] = route
        routes = [routing.Route(path, _Address(self, methods)) for path, methods in paths.items()]
        routes.append(routing.Route(f"{ROOT}/login", self._login, methods=["GET", "POST"]))
        routes.append(routing.Route(f"{ROOT}/static/{{name:path}}", self._file))
        self._router = routing.Router(routes, redirect_slashes=False, default=self._nowhere)

    def close(self) -> None:
        self._pulse.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Routed as it was sent: a name with a slash comes as %2F, which parts nothing.
        raw: bytes | None = scope.get("raw_path")
        path = (raw or scope["path"].encode()).decode("latin-1")
        if path != ROOT and path.endswith("/"):
            path = path.rstrip("/")
        # Gone before it was answered: there is nobody to tell.
        with contextlib.suppress(Gone):
            await self._router({**scope, "path": path}, receive, send)

    async def answer(self, route: Route, request: Request) -> Response:
        caller = ANYONE  # whose tabs are shown, should nobody be let in
        try:
            self._sessions.check_host(request)
            caller = self._sessions.caller(request)
            form: Form = {}
            if request.method == "POST":
                form = await self._form(request, route.form_bytes_max, HTTP_BODY_S)
            path = plain(request.path_params)
            csrf = self._sessions.proof(request)
            operation = operation_of(route)
            shared, state = self._shared, request.scope.get("state", {})
            if "engine" in state:
                shared = shared._replace(engine=state["engine"])
            call = Call(operation, shared, request, caller, csrf, path, form)
            check(call)
            return await route.handle(call)
        except Unauthorized:
            return self._to_login(request)
        except NexoError as error:
            return self._refused(request, error, caller)

    async def _form(self, request: Request, bytes_max: int, seconds: float) -> Form:
        """A form that a page of ours has sent. It is read once that can be so, and decoded once it
        is: before, it costs no more than its bytes."""
        self._sessions.check_origin(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Forbidden(
                "this request does not come from the console",
                "open the console and try again there",
            )
        headers = request.scope["headers"]
        body = await read_body(request.receive, headers, bytes_max, seconds)
        fields = fields_of(body, CONSOLE_FORM_FIELDS_MAX)
        proof = next((each.value for each in fields if each.name == b"csrf"), b"")
        self._sessions.check_proof(request, proof.decode("latin-1"))
        form: Form = {}
        for each in fields:
            form.setdefault(decoded(each.name), []).append(decoded(each.value))
        return form

    def _to_login(self, request: Request) -> Response:
        # Not from `request.url`, which cannot be read if the header `Host` is nonsense.
        path, query = str(request.scope["path"]), request.scope["query_string"].decode("latin-1")
        wanted = path + (f"?{query}" if query else "")
        if request.method != "GET" or "/live/" in path:
            wanted = ROOT
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            # A link from elsewhere comes without the cookie; a step of our own brings it along.
            return self._templates.refusal(200, {"template": "onward.html", "next": wanted})
        response = RedirectResponse(f"{ROOT}/login?next={quote(wanted, safe='')}", 303)
        if cookie_of(request):  # it is no longer good
            sign_out(response)
        return response

    def _refused(self, request: Request, error: NexoError, caller: Caller) -> Response:
        path, is_change = str(request.scope["path"]), request.method == "POST"
        values = {
            "template": "refused.html",
            "error": error,
            "back": _above(path) if is_change else path,
            "is_change": is_change,
            "csrf": self._sessions.proof(request),
            "is_signed_in": self._shared.guard.is_required and bool(cookie_of(request)),
            "sees_metrics": caller.may(Action.PEEK, METRICS),
            "is_admin": caller.may(Action.ADMIN, METRICS),
            "queues_badge": None,
            "dead_letters_badge": None,
        }
        return self._templates.refusal(error.http_status, values)

    async def _login(self, request: Request) -> Response:
        error: NexoError | None = None
        wanted = query_of(request).get("next", ROOT)
        try:
            self._sessions.check_host(request)
            if request.method == "POST":
                form = await self._form(request, CONSOLE_LOGIN_BYTES_MAX, CONSOLE_LOGIN_S)
                wanted = form.get("next", [ROOT])[0]
                operation = operation_of(LOGIN)
                call = Call(operation, self._shared, request, ANYONE, "", {}, form)
                return await LOGIN.handle(call)
        except NexoError as refused:
            error = refused
        values = {
            "template": "login.html",
            "error": error,
            "next": wanted,
            "csrf": self._sessions.proof(request),
            "is_required": self._shared.guard.is_required,
        }
        # Nothing is shown here to whoever has no token, and programs are to hear so too.
        asks = 401 if self._shared.guard.is_required else 200
        return self._templates.refusal(asks if error is None else error.http_status, values)

    async def _file(self, request: Request) -> Response:
        return self._files.answer(request, str(request.path_params["name"]))

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = _NoSuchPage("this page does not exist", "use the links above")
        request, caller = Request(scope), ANYONE
        with contextlib.suppress(NexoError):
            caller = self._sessions.caller(request)
        await self._refused(request, error, caller)(scope, receive, send)


class _NoSuchPage(InvalidArgument):
    code = "no_such_page"
    http_status = 404


class _Address:
    """All that can be done at one address; an ASGI app, as routes take it."""

    def __init__(self, app: ConsoleApp, methods: dict[str, Route]) -> None:
        self._app = app
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            headers = {**HEADERS, "allow": ", ".join(sorted(self._methods))}
            response = Response("method not allowed", 405, headers=headers)
        else:
            response = await self._app.answer(route, request)
        await response(scope, receive, send)


def _above(path: str) -> str:
    """Where a refused form came from: the address above what it was sent to."""
    parts = path.split("/")
    depth = 4 if len(parts) > 4 and parts[2] in ("queues", "topics", "dead-letters") else 3
    return "/".join(parts[:depth])
