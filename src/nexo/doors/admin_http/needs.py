"""What operations need of a token, in the words of `access.permissions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from nexo.access.permissions import ANY, READ, Action
from nexo.doors.admin_http.operation import Need
from nexo.vocabulary.errors import RedriveNotFound
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call, Needs
    from nexo.vocabulary.given import GivenQueueSettings

METRICS = "nexo.metrics"  # the figures of the whole broker, here as at /metrics
PUSH, PEEK, MANAGE = (frozenset({each}) for each in (Action.PUSH, Action.PEEK, Action.MANAGE))
_DEAD_LETTER_DEFAULT = QueueSettings().dead_letter


def on(actions: frozenset[Action]) -> Needs:
    """One of these, on what the path names."""
    return lambda call: [Need(actions, call.path.name)]


def nothing(call: Call) -> list[Need]:
    """Only what the caller knows is in the answer."""
    return []


def figures(call: Call) -> list[Need]:
    return [Need(PEEK, METRICS)]


def create_queue(call: Call) -> list[Need]:
    return [Need(MANAGE, call.body.name), *_dead_letters(call.body.name, call.body.settings)]


def edit_queue(call: Call) -> list[Need]:
    return [Need(MANAGE, call.path.name), *_dead_letters(call.path.name, call.body.settings)]


def _dead_letters(name: str, settings: GivenQueueSettings) -> list[Need]:
    """Who sends dead letters to a queue of another name pushes there."""
    template = settings.dead_letter
    if template is UNSET or template == _DEAD_LETTER_DEFAULT:
        return []
    return [Need(PUSH, dead_letter_name(name, str(template)))]


def create_topic(call: Call) -> list[Need]:
    return [Need(MANAGE, call.body.name)]


def redrive(call: Call) -> list[Need]:
    needs = [Need(MANAGE, call.path.name)]
    return needs if call.body.to is None else [*needs, Need(PUSH, call.body.to)]


def redrive_task(call: Call) -> list[Need]:
    source = call.engine.tasks.source_of(call.path.task)
    if not call.caller.knows(source):
        # As if there were none: its number is guessed, and the refusal would name the queue.
        raise RedriveNotFound(f"there is no redrive {call.path.task}", "it ended long ago")
    return [Need(MANAGE, source)]


def bind(call: Call) -> list[Need]:
    return [Need(READ | MANAGE, call.path.name), Need(MANAGE, call.body.queue)]


def unbind(call: Call) -> list[Need]:
    return [Need(READ | MANAGE, call.path.name), Need(MANAGE, call.query.queue)]


KNOW = on(ANY)  # whoever may do anything with it may see its settings and figures
READ_TOPIC = on(READ)
