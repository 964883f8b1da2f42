"""What each request needs, as one table: every kind of frame and every named call has a row.

What has no row is refused, and a test fails. A row says which actions will do and on which name;
`tests/access/` tries each of them with every kind of wrong credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nexo.access.permissions import ANY, READ, Action
from nexo.vocabulary.errors import Forbidden
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import QueueSettings
from nexo.wire import commands
from nexo.wire.frame import Frame, Kind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.access.caller import Caller
    from nexo.engine.engine import Engine

    Actions = frozenset[Action]
    NameOf = Callable[[bytes], str]
    Needs = Callable[[Engine, Any], Iterable["Need"]]

_PUSH, _POP, _PEEK, _MANAGE = (
    frozenset({each}) for each in (Action.PUSH, Action.POP, Action.PEEK, Action.MANAGE)
)
_DEAD_LETTER_DEFAULT = QueueSettings().dead_letter


class Need(NamedTuple):
    """One of these actions, on this queue or topic."""

    actions: Actions
    name: str


class CallRow(NamedTuple):
    """`needs` None: it is for admins. What is `told` goes to the audit log."""

    needs: Needs | None
    told: bool = False


def _first_name(head: bytes) -> str:
    """The name that a fixed head begins with."""
    try:
        return head[1 : 1 + head[0]].decode()
    except (IndexError, UnicodeDecodeError):
        raise ProtocolError("the name is cut off, or not UTF-8") from None


def _unpacked(kind: type[Any], field: str) -> NameOf:
    return lambda head: str(getattr(commands.unpack(head, kind), field))


# None: it is only about what the connection itself has opened, or the call's own row decides.
FRAMES: dict[Kind, tuple[Actions, NameOf] | None] = {
    Kind.PUSH: (_PUSH, _first_name),
    Kind.POP: (_POP, _first_name),
    Kind.ACK: (_POP, _first_name),
    Kind.RECEIVED: (_POP, _first_name),
    Kind.GIVE_BACK: (_POP, _first_name),
    Kind.NACK: (_POP, _unpacked(commands.Nack, "queue")),
    Kind.EXTEND: (_POP, _unpacked(commands.Extend, "queue")),
    Kind.SUBSCRIBE: (_POP, _unpacked(commands.Subscribe, "queue")),
    Kind.UNSUBSCRIBE: None,
    Kind.CREDIT: None,
    Kind.PUBLISH: (_PUSH, _unpacked(commands.Publish, "topic")),
    Kind.READ: (READ, _unpacked(commands.Read, "topic")),
    Kind.FOLLOW: None,  # it finds only topics that the caller may read
    Kind.CALL: None,
}


def _on(actions: Actions) -> Needs:
    return lambda engine, wanted: [Need(actions, wanted.name)]


def _nothing(engine: Engine, wanted: Any) -> list[Need]:
    """Only what the caller knows is in the answer."""
    return []


def _create_queue(engine: Engine, wanted: Any) -> list[Need]:
    if wanted.exist_ok and wanted.name in engine.queues:
        return [Need(ANY, wanted.name)]  # nothing is created
    needs = [Need(_MANAGE, wanted.name)]
    if wanted.settings is not None:
        needs += _dead_letters(wanted.name, wanted.settings.dead_letter)
    return needs


def _edit_queue(engine: Engine, wanted: Any) -> list[Need]:
    template = wanted.settings.get("dead_letter", _DEAD_LETTER_DEFAULT)
    return [Need(_MANAGE, wanted.name), *_dead_letters(wanted.name, str(template))]


def _dead_letters(name: str, template: str) -> list[Need]:
    """Who sends dead letters to a queue of another name pushes there."""
    if template == _DEAD_LETTER_DEFAULT:
        return []
    return [Need(_PUSH, dead_letter_name(name, template))]


def _create_topic(engine: Engine, wanted: Any) -> list[Need]:
    exists = wanted.exist_ok and wanted.name in engine.topics
    return [Need(ANY if exists else _MANAGE, wanted.name)]


def _redrive(engine: Engine, wanted: Any) -> list[Need]:
    needs = [Need(_MANAGE, wanted.name)]
    return needs if wanted.to is None else [*needs, Need(_PUSH, wanted.to)]


def _redrive_chosen(engine: Engine, wanted: Any) -> list[Need]:
    """With other bodies they are other messages: who sends them back pushes to their sources."""
    needs = _redrive(engine, wanted)
    if wanted.bodies is not None and wanted.to is None:
        needs += [
            Need(_PUSH, name)
            for name, actor in engine.queues.items()
            if dead_letter_name(name, actor.queue.settings.dead_letter) == wanted.name
        ]
    return needs


def _redrive_task(engine: Engine, wanted: Any) -> list[Need]:
    return [Need(_MANAGE, engine.tasks.source_of(wanted.task))]


def _bind(engine: Engine, wanted: Any) -> list[Need]:
    return [Need(READ | _MANAGE, wanted.topic), Need(_MANAGE, wanted.queue)]


CALLS: dict[str, CallRow] = {
    "create_queue": CallRow(_create_queue, told=True),
    "edit_queue": CallRow(_edit_queue, told=True),
    "delete_queue": CallRow(_on(_MANAGE), told=True),
    "list_queues": CallRow(_nothing),
    "queue_info": CallRow(_on(ANY)),
    "purge": CallRow(_on(_MANAGE), told=True),
    "pause": CallRow(_on(_MANAGE), told=True),
    "resume": CallRow(_on(_MANAGE), told=True),
    "peek": CallRow(_on(_PEEK)),
    "redrive": CallRow(_redrive, told=True),
    "redrive_chosen": CallRow(_redrive_chosen, told=True),
    "redrive_progress": CallRow(_redrive_task),
    "redrive_cancel": CallRow(_redrive_task, told=True),
    "release": CallRow(_on(_MANAGE), told=True),
    "create_topic": CallRow(_create_topic, told=True),
    "delete_topic": CallRow(_on(_MANAGE), told=True),
    "list_topics": CallRow(_nothing),
    "topic_info": CallRow(_on(ANY)),
    "bind": CallRow(_bind, told=True),
    "unbind": CallRow(_bind, told=True),
    "starts": CallRow(_nothing),
    "claim_open": CallRow(_on(_POP)),
    "claim": CallRow(_on(_POP)),
    "claim_seal": CallRow(_on(_POP)),
    "claim_keep": CallRow(_on(_POP)),
    "claim_ack": CallRow(_on(_POP)),
    "claim_read": CallRow(_on(_POP)),
    "snapshot_open": CallRow(_on(_PEEK)),
    "snapshot_read": CallRow(_on(_PEEK)),
    "snapshot_close": CallRow(_on(_PEEK)),
    "backup": CallRow(None, told=True),
    "backup_progress": CallRow(None),
    "backup_read": CallRow(None),
    "backup_end": CallRow(None),
    "create_token": CallRow(None, told=True),
    "list_tokens": CallRow(None),
    "revoke_token": CallRow(None, told=True),
    "export_definitions": CallRow(None),
    "import_definitions": CallRow(None, told=True),
}


def check_frame(caller: Caller, received: Frame) -> None:
    """Raise unless the caller may send this. Only for callers that are bound to permissions."""
    try:
        row = FRAMES[received.kind]
    except KeyError:
        raise Forbidden(f"nobody was ever allowed {received.kind.name}") from None
    if row is None:
        caller.check_live()
        return
    actions, name_of = row
    name = name_of(received.head)
    for action in actions:
        if caller.may(action, name):
            return
    caller.check_any(actions, name)


def check_call(caller: Caller, engine: Engine, method: str, wanted: Any) -> None:
    """Raise unless the caller may call this with these parameters."""
    row = CALLS.get(method)
    if row is None:
        raise Forbidden(f"nobody was ever allowed {method!r:.80}")
    caller.check_live()
    if row.needs is None:
        caller.check_admin()
        return
    for need in row.needs(engine, wanted):
        caller.check_any(need.actions, need.name)


def visible(caller: Caller, method: str, result: Any) -> Any:
    """The answer to a call that lists, without what the caller does not know of."""
    if method == "starts":
        return {name: at for name, at in result.items() if caller.may_read(name)}
    return result


def is_told(engine: Engine, method: str, wanted: Any) -> bool:
    """Whether a call goes to the audit log. To find that a queue is there changes nothing."""
    row = CALLS.get(method)
    if row is None or not row.told or getattr(wanted, "dry_run", False):
        return False
    if getattr(wanted, "exist_ok", False):
        known = engine.queues if method == "create_queue" else engine.topics
        return wanted.name not in known
    return True


def resource_of(wanted: Any) -> str:
    """What a call is about, for the audit log."""
    named = getattr(wanted, "name", "")
    if hasattr(wanted, "topic"):
        named = f"{wanted.topic} {wanted.queue}"
    elif hasattr(wanted, "task"):
        named = f"task {wanted.task}"
    return str(named)
