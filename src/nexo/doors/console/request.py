"""A request to the console as pages get it: with who makes it, and what every page is given."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlencode

from starlette.responses import RedirectResponse, Response

from nexo.access.operations import METRICS
from nexo.access.permissions import Action
from nexo.doors.http.body import read_form
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import CONSOLE_DIGITS_MAX, CONSOLE_QUERY_FIELDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard, Telling
    from nexo.access.operations import Operation
    from nexo.doors.console.batches import Finished
    from nexo.doors.console.cluster import Cluster
    from nexo.doors.console.history import Sampler
    from nexo.doors.console.pages import Templates
    from nexo.doors.console.session import Notices
    from nexo.doors.console.spark import LakeTables
    from nexo.doors.console.streams import Pulse
    from nexo.engine.engine import Engine

ROOT = "/console"
_QUERY = "console.query"  # where it is kept, so that it is read once
DOOR = "console"
DEFAULT_RPC_PORT = 9325
# A name or an address, maybe with a port.
_HOST = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class Surroundings(Protocol):
    """What is known outside of the engine."""

    @property
    def version(self) -> str: ...

    @property
    def rpc_port(self) -> int: ...

    @property
    def region(self) -> str:
        """That SQS clients are to name."""

    def disk_free_bytes(self) -> int | None:
        """Room left on the disk; None without one."""

    @property
    def cluster(self) -> Cluster | None:
        """That this broker is a node of; None: it is alone."""

    def api_document(self) -> bytes:
        """The OpenAPI document of the admin API, as JSON."""


class Place(NamedTuple):
    """Where programs find this broker, as whoever reads the page does: by the same host. `is_usual`
    is whether a client finds it without being told."""

    url: str
    http: str
    region: str
    is_required: bool
    is_usual: bool


class Shared(NamedTuple):
    """What all requests share."""

    engine: Engine
    guard: Guard
    surroundings: Surroundings
    sampler: Sampler
    templates: Templates
    notices: Notices
    pulse: Pulse
    batches: Finished
    lake: LakeTables | None = None


class Call(NamedTuple):
    """One request: what it is to do, and who makes it."""

    operation: Operation
    shared: Shared
    request: Request
    caller: Caller
    csrf: str
    path: dict[str, str]
    form: dict[str, list[str]]

    @property
    def engine(self) -> Engine:
        return self.shared.engine

    @property
    def place(self) -> Place:
        given = self.request.headers.get("host", "localhost")
        found = _HOST.fullmatch(given)  # it is printed in commands: nothing else gets there
        host = found[1] if found is not None else "localhost"
        address = found[0] if found is not None else host
        is_tls = self.request.scope.get("scheme") == "https"
        port, safe = self.shared.surroundings.rpc_port, "s" if is_tls else ""
        return Place(
            url=f"nexo{safe}://{host}:{port}",
            http=f"http{safe}://{address}",
            region=self.shared.surroundings.region,
            is_required=self.shared.guard.is_required,
            is_usual=not is_tls and port == DEFAULT_RPC_PORT and host in ("localhost", "127.0.0.1"),
        )

    @property
    def sees_metrics(self) -> bool:
        return self.caller.may(Action.PEEK, METRICS)

    def known(self, names: Iterable[str]) -> list[str]:
        """Those of these names that are no secret to the caller, sorted."""
        return sorted(name for name in names if self.caller.knows(name))

    def leads_to(self, queue: str) -> bool:
        """Whether there is such a queue, and the caller may see it."""
        return queue in self.engine.queues and self.caller.knows(queue)

    def query(self, name: str, default: str = "") -> str:
        """Of the address; the last one if it stands there more than once."""
        return query_of(self.request).get(name, default)

    @property
    def query_string(self) -> str:
        """All parameters of the address, for another one."""
        return urlencode(query_of(self.request))

    def field(self, name: str) -> str:
        """What was written into a field of the form; empty if nothing was."""
        return self.form.get(name, [""])[0].strip()

    def told(self) -> Telling:
        """What changes something is told to the audit log, however it ends."""
        client = self.request.client
        peer = client.host if client is not None else ""
        return self.shared.guard.tell(self.caller, peer, DOOR, self.operation.name, self.about)

    @property
    def about(self) -> str:
        """What is done something with, as the audit log tells it."""
        if self.operation.name in ("bind", "unbind"):
            return f"{self.path['name']} {self.field('queue')}"
        if self.operation.name == "drain_node":
            return f"node {self.field('node')}"
        if self.operation.name == "close_connection":
            return f"connection {self.field('number')}"
        if self.operation.name == "redrive_cancel":
            return f"task {self.task}"
        return self.path.get("name") or self.field("name")

    @property
    def task(self) -> int:
        """The number of the redrive that a form is about; 0, which none has, if it says none."""
        return whole_number(self.field("task"), 0, 0, 2**53)

    async def page(
        self,
        template: str,
        parts: dict[str, str] | None = None,
        status: int = 200,
        **values: Any,
    ) -> Response:
        """The page, or one of its parts by the name of its element: an open page asks for those
        anew, at the address of the whole."""
        part = (parts or {}).get(self.request.headers.get("hx-target", ""))
        return await self.shared.templates.page(self, part or template, values, status)

    def back(self, path: str, notice: str) -> Response:
        """What was asked for is done: go and see."""
        number = self.shared.notices.put(notice)
        joint = "&" if "?" in path else "?"
        return RedirectResponse(f"{path}{joint}notice={number}", 303)


Handle = Callable[[Call], Awaitable[Response]]


def at(*parts: str) -> str:
    """The address of a page."""
    return "/".join((ROOT, *(quote(part, safe="") for part in parts)))


def query_of(request: Request) -> dict[str, str]:
    """The parameters of an address. People edit addresses: what cannot be read is not there."""
    state = request.scope.setdefault("state", {})
    if _QUERY not in state:
        try:
            state[_QUERY] = dict(read_form(request.scope["query_string"], CONSOLE_QUERY_FIELDS_MAX))
        except InvalidArgument:
            state[_QUERY] = {}
    found: dict[str, str] = state[_QUERY]
    return found


def plain(given: dict[str, Any]) -> dict[str, str]:
    """Parameters in the path, in which a slash is written as %2F."""
    try:
        return {name: unquote(value, errors="strict") for name, value in given.items()}
    except UnicodeDecodeError:
        raise InvalidArgument("the address is not UTF-8") from None


def whole_number(text: str, default: int, low: int, high: int) -> int:
    """A number of an address; what is none is the default, since people edit addresses."""
    if not (text.isascii() and text.isdigit()):
        return default
    return max(low, min(high, int(text[:CONSOLE_DIGITS_MAX])))


def as_number(text: str, what: str) -> float | None:
    """A number of a form; None if it was left empty."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{what} is {text!r:.40}, not a number")
    return number


def as_pairs(text: str) -> dict[str, str]:
    """Names with values, a line each: name=value."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (equals and name.strip()):
            raise InvalidArgument(
                f"{line!r:.60} is not name=value", "write one name=value per line"
            )
        if equals:
            found[name.strip()] = value.strip()
    return found
