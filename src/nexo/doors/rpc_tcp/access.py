"""Which operation a request is, and which names stand in it; `access.operations` has what each
needs. Every kind of frame has a row here, and every named call is the operation of its name: what
has no row is refused, and a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.access import operations
from nexo.access.operations import OPERATIONS, Named, Operation, operation_of
from nexo.vocabulary.errors import Forbidden
from nexo.vocabulary.settings import QueueSettings
from nexo.wire import calls, commands
from nexo.wire.frame import Frame, Kind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.access.caller import Caller
    from nexo.access.permissions import Action
    from nexo.engine.engine import Engine

    NameOf = Callable[[bytes], str]
    Wanted = calls.Request[Any]
    NamedOf = Callable[[Engine, Caller, Any], Named]


# -- Frames -----------------------------------------------------------------------------------


def _first_name(head: bytes) -> str:
    """The name that a fixed head begins with."""
    try:
        return head[1 : 1 + head[0]].decode()
    except (IndexError, UnicodeDecodeError):
        raise ProtocolError("the name is cut off, or not UTF-8") from None


def _unpacked(kind: type[Any], field: str) -> NameOf:
    return lambda head: str(getattr(commands.unpack(head, kind), field))


def _frame(operation: str, name_of: NameOf) -> tuple[frozenset[Action], NameOf]:
    """The actions that will do, and where the name is: this is a hot path."""
    (need,) = OPERATIONS[operation].needs
    return need.actions, name_of


# None: it is only about what the connection itself has opened, or the call's own row decides.
FRAMES: dict[Kind, tuple[frozenset[Action], NameOf] | None] = {
    Kind.PUSH: _frame("push", _first_name),
    Kind.POP: _frame("pop", _first_name),
    Kind.ACK: _frame("ack", _first_name),
    Kind.RECEIVED: _frame("received", _first_name),
    Kind.GIVE_BACK: _frame("give_back", _first_name),
    Kind.NACK: _frame("nack", _unpacked(commands.Nack, "queue")),
    Kind.EXTEND: _frame("extend", _unpacked(commands.Extend, "queue")),
    Kind.SUBSCRIBE: _frame("subscribe", _unpacked(commands.Subscribe, "queue")),
    Kind.UNSUBSCRIBE: None,
    Kind.CREDIT: None,
    Kind.PUBLISH: _frame("publish", _unpacked(commands.Publish, "topic")),
    Kind.READ: _frame("read", _unpacked(commands.Read, "topic")),
    Kind.FOLLOW: None,  # it finds only topics that the caller may read
    Kind.CALL: None,
}


def check_frame(caller: Caller, received: Frame) -> None:
    """Raise unless the caller may send this. Only for callers that are bound to permissions."""
    try:
        row = FRAMES[received.kind]
    except KeyError:
        raise Forbidden(f"the operation {received.kind.name} is not allowed") from None
    if row is None:
        caller.check_live()
        return
    actions, name_of = row
    name = name_of(received.head)
    for action in actions:
        if caller.may(action, name):
            return
    caller.check_any(actions, name)


# -- Named calls ------------------------------------------------------------------------------


def operation_of_call(engine: Engine, method: str, wanted: Wanted) -> Operation:
    """To find that a queue or topic is there creates nothing, and to try an import changes
    nothing: these are other operations."""
    if isinstance(wanted, calls.CreateQueue) and wanted.exist_ok and wanted.name in engine.queues:
        method = "queue_info"
    elif isinstance(wanted, calls.CreateTopic) and wanted.exist_ok and wanted.name in engine.topics:
        method = "topic_info"
    elif isinstance(wanted, calls.ImportDefinitions) and wanted.dry_run:
        method = "compare_definitions"
    return operation_of(method)


def check_call(caller: Caller, engine: Engine, operation: Operation, wanted: Wanted) -> None:
    """Raise unless the caller may call this with these parameters."""
    caller.check_live()
    named_of = _NAMED.get(type(wanted), _name)
    operations.check(caller, operation, named_of(engine, caller, wanted))


def visible(caller: Caller, wanted: Wanted, result: Any) -> Any:
    """The answer to a call that lists, without what the caller does not know of."""
    if isinstance(wanted, calls.Starts):
        return {name: at for name, at in result.items() if caller.may_read(name)}
    return result


def resource_of(wanted: Wanted) -> str:
    """What a call is about, for the audit log."""
    if isinstance(wanted, (calls.Bind, calls.Unbind)):
        return f"{wanted.topic} {wanted.queue}"
    if isinstance(wanted, calls.CloseConnection):
        return f"connection {wanted.number}"
    if isinstance(wanted, calls.AwaitRedrive):
        return f"task {wanted.task}"
    if isinstance(wanted, calls.DrainNode):
        return f"node {wanted.node}"
    return str(getattr(wanted, "name", ""))


def _name(engine: Engine, caller: Caller, wanted: Wanted) -> Named:
    """A queue or a topic, whichever the operation is about."""
    name = getattr(wanted, "name", None)
    return Named(queue=name, topic=name)


def _create_queue(engine: Engine, caller: Caller, wanted: calls.CreateQueue) -> Named:
    template = (wanted.settings or QueueSettings()).dead_letter
    elsewhere = operations.dead_letters_elsewhere(wanted.name, template)
    return Named(queue=wanted.name, dead_letters=elsewhere)


def _edit_queue(engine: Engine, caller: Caller, wanted: calls.EditQueue) -> Named:
    template = wanted.settings.get("dead_letter", QueueSettings().dead_letter)
    elsewhere = operations.dead_letters_elsewhere(wanted.name, str(template))
    return Named(queue=wanted.name, dead_letters=elsewhere)


def _redrive(engine: Engine, caller: Caller, wanted: calls.Redrive) -> Named:
    return Named(queue=wanted.name, target=wanted.to)


def _redrive_chosen(engine: Engine, caller: Caller, wanted: calls.RedriveChosen) -> Named:
    """With other bodies they are other messages: who sends them back pushes to their sources."""
    sources: tuple[str, ...] = ()
    if wanted.bodies is not None and wanted.to is None:
        sources = engine.hands.sources_of(wanted.name)
    return Named(queue=wanted.name, target=wanted.to, sources=sources)


def _resend(engine: Engine, caller: Caller, wanted: calls.Resend) -> Named:
    sources = engine.hands.targets_of(wanted.name) if wanted.to is None else ()
    return Named(queue=wanted.name, target=wanted.to, sources=sources)


def _redrive_task(engine: Engine, caller: Caller, wanted: calls.AwaitRedrive) -> Named:
    source = engine.tasks.source_of(wanted.task)
    operations.check_redrive_known(caller, source, wanted.task)
    return Named(queue=source)


def _bind(engine: Engine, caller: Caller, wanted: calls.Bind | calls.Unbind) -> Named:
    return Named(queue=wanted.queue, topic=wanted.topic)


_NAMED: dict[type[Wanted], NamedOf] = {
    calls.CreateQueue: _create_queue,
    calls.EditQueue: _edit_queue,
    calls.Redrive: _redrive,
    calls.RedriveChosen: _redrive_chosen,
    calls.Resend: _resend,
    calls.AwaitRedrive: _redrive_task,
    calls.CancelRedrive: _redrive_task,
    calls.Bind: _bind,
    calls.Unbind: _bind,
}
