"""A visit: one request to the console with who makes it, and what every page is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response

from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from starlette.requests import Request

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard, Telling
    from nexo.doors.console.history import Sampler
    from nexo.doors.console.lake import LakeTables
    from nexo.doors.console.live import Pulse
    from nexo.doors.console.notices import Notices
    from nexo.doors.console.rendering import Templates
    from nexo.engine.engine import Engine

ROOT = "/console"
DOOR = "console"


class Surroundings(Protocol):
    """What is known outside of the engine."""

    @property
    def version(self) -> str: ...

    def disk_free_bytes(self) -> int | None:
        """Room left on the disk; None without one."""


class House(NamedTuple):
    """What all visits share."""

    engine: Engine
    guard: Guard
    surroundings: Surroundings
    sampler: Sampler
    templates: Templates
    notices: Notices
    pulse: Pulse
    lake: LakeTables | None = None


class Visit(NamedTuple):
    house: House
    request: Request
    caller: Caller
    csrf: str
    path: dict[str, str]
    form: dict[str, list[str]]

    @property
    def engine(self) -> Engine:
        return self.house.engine

    def query(self, name: str, default: str = "") -> str:
        return str(self.request.query_params.get(name, default))

    def field(self, name: str) -> str:
        """What was written into a field of the form; empty if nothing was."""
        return self.form.get(name, [""])[0].strip()

    def told(self, action: str, resource: str) -> Telling:
        """What changes something is told to the audit log, however it ends."""
        client = self.request.client
        peer = client.host if client is not None else ""
        return self.house.guard.tell(self.caller, peer, DOOR, action, resource)

    async def page(self, template: str, **values: Any) -> Response:
        return await self.house.templates.page(self, template, values)

    def back(self, path: str, notice: str) -> Response:
        """What was asked for is done: go and see."""
        number = self.house.notices.put(notice)
        joint = "&" if "?" in path else "?"
        return RedirectResponse(f"{path}{joint}notice={number}", 303)


Handle = Callable[[Visit], Awaitable[Response]]


def at(*parts: str) -> str:
    """The address of a page."""
    return "/".join((ROOT, *(quote(part, safe="") for part in parts)))


def plain(given: dict[str, Any]) -> dict[str, str]:
    """Parameters in the path, in which a slash is written as %2F."""
    try:
        return {name: unquote(value, errors="strict") for name, value in given.items()}
    except UnicodeDecodeError:
        raise InvalidArgument("the address is not UTF-8") from None


def whole_number(text: str, default: int, low: int, high: int) -> int:
    """A number of an address; what is none is the default, since people edit addresses."""
    return max(low, min(high, int(text))) if text.isascii() and text.isdigit() else default


def as_number(text: str, what: str) -> float | None:
    """A number of a form; None if it was left empty."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{what} is {text!r:.40}, not a number") from None
