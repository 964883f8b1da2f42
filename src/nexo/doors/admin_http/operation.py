"""An operation of the API: one row of the table that routes, checks, decodes and documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.access.permissions import Action
    from nexo.engine.engine import Engine


class Surroundings(Protocol):
    """What is known outside of the engine."""

    @property
    def version(self) -> str: ...

    def connections(self) -> dict[str, int]:
        """Open connections by door."""

    def disk_free_bytes(self) -> int | None:
        """Room left on the disk; None without one."""

    def resident_bytes(self) -> int:
        """The memory of the process."""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Call(NamedTuple):
    """One request: `path`, `query` and `body` are of the types that its operation names."""

    engine: Engine
    guard: Guard
    surroundings: Surroundings
    caller: Caller
    path: Any
    query: Any
    body: Any


class Need(NamedTuple):
    """One of these actions, on this queue or topic."""

    actions: frozenset[Action]
    name: str


class Answer(NamedTuple):
    """An answer with another status than the operation usually has."""

    status: int
    value: Any


Handle = Callable[[Call], Awaitable[Any]]
Needs = Callable[[Call], Iterable[Need]]


class Operation(NamedTuple):
    """`name` is what the audit log and the OpenAPI document call it. `needs` None: it is for
    admins. `answer` None: there is nothing to say but that it is done."""

    name: str
    method: str
    path: str
    summary: str
    handle: Handle
    needs: Needs | None
    answer: Any = None
    status: int = 200
    parameters: type[msgspec.Struct] = Nothing  # in the path
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    refusals: tuple[int, ...] = ()  # statuses, besides those that any operation may have
    also: int | None = None  # another status with the same answer
    told: bool = False  # to the audit log

    @property
    def group(self) -> str:
        """The first word of its path, as `queues`."""
        return self.path.split("/")[3]
