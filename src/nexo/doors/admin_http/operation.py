"""An operation of the API: one row of the table that routes, checks, decodes and documents; what
it needs of a token, in the words of `access.permissions`; and what only HTTP can get wrong, as
errors like all others:

InvalidArgument
├── NoSuchResource    404    the path leads nowhere
├── WrongMethod       405
├── TooSlow           408    the body took too long to arrive; of `doors.http`
└── WrongContentType  415    a body that is not JSON
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from nexo.access.permissions import ANY, READ, Action
from nexo.vocabulary.errors import InvalidArgument, RedriveNotFound
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.engine.engine import Engine
    from nexo.vocabulary.given import GivenQueueSettings

METRICS = "nexo.metrics"  # the figures of the whole broker, here as at /metrics
PUSH, PEEK, MANAGE = (frozenset({each}) for each in (Action.PUSH, Action.PEEK, Action.MANAGE))
_DEAD_LETTER_DEFAULT = QueueSettings().dead_letter


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


def needs_on(actions: frozenset[Action]) -> Needs:
    """One of these, on what the path names."""
    return lambda call: [Need(actions, call.path.name)]


def needs_nothing(call: Call) -> list[Need]:
    """Only what the caller knows is in the answer."""
    return []


def needs_metrics(call: Call) -> list[Need]:
    return [Need(PEEK, METRICS)]


def needs_of_create_queue(call: Call) -> list[Need]:
    return [Need(MANAGE, call.body.name), *_dead_letters(call.body.name, call.body.settings)]


def needs_of_edit_queue(call: Call) -> list[Need]:
    return [Need(MANAGE, call.path.name), *_dead_letters(call.path.name, call.body.settings)]


def _dead_letters(name: str, settings: GivenQueueSettings) -> list[Need]:
    """Who sends dead letters to a queue of another name pushes there."""
    template = settings.dead_letter
    if template is UNSET or template == _DEAD_LETTER_DEFAULT:
        return []
    return [Need(PUSH, dead_letter_name(name, str(template)))]


def needs_of_create_topic(call: Call) -> list[Need]:
    return [Need(MANAGE, call.body.name)]


def needs_of_redrive(call: Call) -> list[Need]:
    needs = [Need(MANAGE, call.path.name)]
    return needs if call.body.to is None else [*needs, Need(PUSH, call.body.to)]


def needs_of_redrive_task(call: Call) -> list[Need]:
    source = call.engine.tasks.source_of(call.path.task)
    if not call.caller.knows(source):
        # As if there were none: its number is guessed, and the refusal would name the queue.
        raise RedriveNotFound(f"there is no redrive {call.path.task}", "it ended long ago")
    return [Need(MANAGE, source)]


def needs_of_bind(call: Call) -> list[Need]:
    return [Need(READ | MANAGE, call.path.name), Need(MANAGE, call.body.queue)]


def needs_of_unbind(call: Call) -> list[Need]:
    return [Need(READ | MANAGE, call.path.name), Need(MANAGE, call.query.queue)]


NEEDS_ANY = needs_on(ANY)  # whoever may do anything with it may see its settings and figures
NEEDS_READ = needs_on(READ)


class NoSuchResource(InvalidArgument):
    code = "not_found"
    http_status = 404


class WrongMethod(InvalidArgument):
    code = "wrong_method"
    http_status = 405


class WrongContentType(InvalidArgument):
    code = "wrong_content_type"
    http_status = 415
