"""Who may do what: every operation, what it needs of a token, and whether it is audited.

This is the one table of it. A door says which operation a request is and which names stand in it,
and asks here; what has no row cannot be done by anyone who is bound to permissions. The tables of
`docs/access.md` are made from it (`scripts/access_page.py`), and `tests/access/` tries each row
through the doors with every kind of wrong credentials.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.access.permissions import ANY, EVERYTHING, READ, Action
from nexo.vocabulary.errors import Forbidden, RedriveNotFound
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.access.caller import Caller

METRICS = "nexo.metrics"  # the figures of the whole broker are read under this name

_PUSH, _POP, _PEEK, _MANAGE, _ADMIN = (
    frozenset({each})
    for each in (Action.PUSH, Action.POP, Action.PEEK, Action.MANAGE, Action.ADMIN)
)
_DEAD_LETTER_DEFAULT = QueueSettings().dead_letter


class On(StrEnum):
    """What a permission has to be for. Which names these are in a request, its door says."""

    QUEUE = "the queue"
    TOPIC = "the topic"
    TARGET = "the queue that `to` names, if any"
    DEAD_LETTERS = "the dead-letter queue, if it is not `<queue>_dlq`"
    SOURCES = "the queues that the messages go back to, if they are changed and `to` names none"
    METRICS = f"`{METRICS}`"
    BROKER = f"`{EVERYTHING}`"


class Need(NamedTuple):
    """One of these actions."""

    actions: frozenset[Action]
    on: On


class Operation(NamedTuple):
    """`needs` are all needed; with none, the answer holds only what the caller knows."""

    name: str
    needs: tuple[Need, ...] = ()
    is_audited: bool = False

    def actions_on(self, on: On) -> frozenset[Action]:
        """One of these is needed there. If it has no such need it is not about such a name, and
        nobody is let through by asking for it."""
        return next((need.actions for need in self.needs if need.on is on), frozenset())


class Named(msgspec.Struct, frozen=True):
    """The names that stand in one request."""

    queue: str | None = None
    topic: str | None = None
    target: str | None = None
    dead_letters: str | None = None
    sources: tuple[str, ...] = ()

    def of(self, on: On) -> Iterable[str]:
        """The names that a permission has to be for. Some operations may leave some of them out;
        a queue, or topic, that is needed and not named is refused."""
        match on:
            case On.QUEUE:
                return (_given(self.queue, on),)
            case On.TOPIC:
                return (_given(self.topic, on),)
            case On.TARGET:
                return () if self.target is None else (self.target,)
            case On.DEAD_LETTERS:
                return () if self.dead_letters is None else (self.dead_letters,)
            case On.SOURCES:
                return self.sources
            case On.METRICS:
                return (METRICS,)
            case On.BROKER:
                return (EVERYTHING,)


_ON_QUEUE = {actions: Need(actions, On.QUEUE) for actions in (_PUSH, _POP, _PEEK, _MANAGE, ANY)}
_ON_TOPIC = {actions: Need(actions, On.TOPIC) for actions in (_PUSH, READ, _MANAGE, ANY)}
_FOR_ADMINS = Need(_ADMIN, On.BROKER)
_TO_TARGET = Need(_PUSH, On.TARGET)
_TO_DEAD_LETTERS = Need(_PUSH, On.DEAD_LETTERS)
_BIND = (Need(READ | _MANAGE, On.TOPIC), _ON_QUEUE[_MANAGE])

_ROWS = (
    # -- Messages of queues -------------------------------------------------------------------
    Operation("push", (_ON_QUEUE[_PUSH],)),
    Operation("pop", (_ON_QUEUE[_POP],)),
    Operation("subscribe", (_ON_QUEUE[_POP],)),
    Operation("received", (_ON_QUEUE[_POP],)),
    Operation("ack", (_ON_QUEUE[_POP],)),
    Operation("nack", (_ON_QUEUE[_POP],)),
    Operation("extend", (_ON_QUEUE[_POP],)),
    Operation("give_back", (_ON_QUEUE[_POP],)),
    Operation("claim_open", (_ON_QUEUE[_POP],)),
    Operation("claim", (_ON_QUEUE[_POP],)),
    Operation("claim_seal", (_ON_QUEUE[_POP],)),
    Operation("claim_keep", (_ON_QUEUE[_POP],)),
    Operation("claim_ack", (_ON_QUEUE[_POP],)),
    Operation("claim_read", (_ON_QUEUE[_POP],)),
    Operation("peek", (_ON_QUEUE[_PEEK],)),
    Operation("search", (_ON_QUEUE[_PEEK],)),
    Operation("reasons", (_ON_QUEUE[_PEEK],)),
    Operation("message", (_ON_QUEUE[_PEEK],)),
    Operation("snapshot_open", (_ON_QUEUE[_PEEK],)),
    Operation("snapshot_read", (_ON_QUEUE[_PEEK],)),
    Operation("snapshot_close", (_ON_QUEUE[_PEEK],)),
    # -- Queues -------------------------------------------------------------------------------
    Operation("list_queues"),
    Operation("queue_info", (_ON_QUEUE[ANY],)),
    Operation("create_queue", (_ON_QUEUE[_MANAGE], _TO_DEAD_LETTERS), is_audited=True),
    Operation("edit_queue", (_ON_QUEUE[_MANAGE], _TO_DEAD_LETTERS), is_audited=True),
    Operation("delete_queue", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("purge", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("pause", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("resume", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("release", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("redrive", (_ON_QUEUE[_MANAGE], _TO_TARGET), is_audited=True),
    Operation(
        "redrive_chosen",
        (_ON_QUEUE[_MANAGE], _TO_TARGET, Need(_PUSH, On.SOURCES)),
        is_audited=True,
    ),
    Operation("discard", (_ON_QUEUE[_MANAGE],), is_audited=True),
    Operation("resend", (_ON_QUEUE[_MANAGE], _TO_TARGET, Need(_PUSH, On.SOURCES)), is_audited=True),
    Operation("redrive_progress", (_ON_QUEUE[_MANAGE],)),
    Operation("redrive_cancel", (_ON_QUEUE[_MANAGE],), is_audited=True),
    # -- Topics -------------------------------------------------------------------------------
    Operation("publish", (_ON_TOPIC[_PUSH],)),
    Operation("read", (_ON_TOPIC[READ],)),
    Operation("follow"),
    Operation("starts"),
    Operation("list_topics"),
    Operation("topic_info", (_ON_TOPIC[ANY],)),
    Operation("list_bindings", (_ON_TOPIC[ANY],)),
    Operation("create_topic", (_ON_TOPIC[_MANAGE],), is_audited=True),
    Operation("edit_topic", (_ON_TOPIC[_MANAGE],), is_audited=True),
    Operation("delete_topic", (_ON_TOPIC[_MANAGE],), is_audited=True),
    Operation("bind", _BIND, is_audited=True),
    Operation("unbind", _BIND, is_audited=True),
    # -- The broker ---------------------------------------------------------------------------
    Operation("metrics", (Need(_PEEK, On.METRICS),)),
    Operation("overview", (Need(_PEEK, On.METRICS),)),
    Operation("list_connections", (_FOR_ADMINS,)),
    Operation("close_connection", (_FOR_ADMINS,), is_audited=True),
    Operation("cluster_info", (_FOR_ADMINS,)),
    Operation("drain_node", (_FOR_ADMINS,), is_audited=True),
    Operation("rebalance_cluster", (_FOR_ADMINS,), is_audited=True),
    Operation("create_token", (_FOR_ADMINS,), is_audited=True),
    Operation("revoke_token", (_FOR_ADMINS,), is_audited=True),
    Operation("backup", (_FOR_ADMINS,), is_audited=True),
    Operation("import_definitions", (_FOR_ADMINS,), is_audited=True),
    Operation("compare_definitions", (_FOR_ADMINS,)),  # an import that is only tried
    Operation("export_definitions", (_FOR_ADMINS,)),
    Operation("list_tokens", (_FOR_ADMINS,)),
    Operation("audit", (_FOR_ADMINS,)),
    Operation("backup_progress", (_FOR_ADMINS,)),
    Operation("backup_read", (_FOR_ADMINS,)),
    Operation("backup_end", (_FOR_ADMINS,)),
)
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}


def operation_of(name: str) -> Operation:
    """The row of this name. What has none is refused."""
    found = OPERATIONS.get(name)
    if found is None:
        raise Forbidden(f"the operation {name!r:.80} is not allowed")
    return found


def check(caller: Caller, operation: Operation, named: Named) -> None:
    """Raise unless the caller may do this with what is named."""
    caller.check_live()
    for need in operation.needs:
        for name in named.of(need.on):
            caller.check_any(need.actions, name)


def dead_letters_elsewhere(queue: str, template: str) -> str | None:
    """The dead-letter queue that a setting names, if it is not the one that a queue has by default:
    who sends dead letters there pushes to it."""
    named = dead_letter_name(queue, template)
    return None if named == dead_letter_name(queue, _DEAD_LETTER_DEFAULT) else named


def check_redrive_known(caller: Caller, source: str, task: int) -> None:
    """A redrive of a queue that the caller does not know is as if it were not there: its number is
    guessed, and a refusal would name the queue."""
    if not caller.knows(source):
        raise RedriveNotFound(f"there is no redrive {task}", "it may have ended long ago")


def _given(name: str | None, on: On) -> str:
    if name is None:
        raise Forbidden(f"the request does not name {on}")
    return name
