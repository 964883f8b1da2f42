"""An operation of the API: one row of the table that routes, checks, decodes and documents. What it
needs of a token is in `access.operations` under its name; here stands only which names are in a
request. And what only HTTP can get wrong, as errors like all others:

InvalidArgument
├── NoSuchResource    404    the path leads nowhere
├── NoCluster         404    this broker is no node of one; of `cluster`
├── WrongMethod       405
├── TooSlow           408    the body took too long to arrive; of `doors.http`
└── WrongContentType  415    a body that is not JSON
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from nexo.access.operations import Named, On, operation_of
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
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

    @property
    def cluster(self) -> Cluster | None:
        """That this broker is a node of; None: it is alone."""


class Cluster(Protocol):
    async def figures(self) -> Any: ...

    async def drain(self, node: str) -> None: ...

    async def rebalance(self) -> None: ...


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


class Answer(NamedTuple):
    """An answer with another status than the operation usually has."""

    status: int
    value: Any


Handle = Callable[[Call], Awaitable[Any]]
NamedOf = Callable[[Call], Named]


def named_by_path(call: Call) -> Named:
    """A queue or a topic, whichever the operation is about."""
    name = getattr(call.path, "name", None)
    return Named(queue=name, topic=name)


def named_by_body(call: Call) -> Named:
    """What is not there yet has its name in the body."""
    return Named(queue=call.body.name, topic=call.body.name)


class Operation(NamedTuple):
    """`name` is what the audit log, the OpenAPI document and `access.operations` call it. `answer`
    None: there is nothing to say but that it is done."""

    name: str
    method: str
    path: str
    summary: str
    handle: Handle
    answer: Any = None
    status: int = 200
    parameters: type[msgspec.Struct] = Nothing  # in the path
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    refusals: tuple[int, ...] = ()  # statuses, besides those that any operation may have
    also: int | None = None  # another status with the same answer
    named: NamedOf = named_by_path  # what stands in a request

    @property
    def is_for_admins(self) -> bool:
        return any(need.on is On.BROKER for need in operation_of(self.name).needs)

    @property
    def group(self) -> str:
        """The first word of its path, as `queues`."""
        return self.path.split("/")[3]


class NoSuchResource(InvalidArgument):
    code = "not_found"
    http_status = 404


class WrongMethod(InvalidArgument):
    code = "wrong_method"
    http_status = 405


class WrongContentType(InvalidArgument):
    code = "wrong_content_type"
    http_status = 415
