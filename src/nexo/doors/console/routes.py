"""Every address of the console, what is done there, and who may. What has no row here does not
exist.

An address names its operation, and `OPERATIONS` says what that needs of a token: pages and their
streams need the same, and no page checks anything by itself. What a page shows of buttons and forms
is another matter: it asks the caller, so that nobody is offered what would be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nexo.access.permissions import ANY, READ, Action
from nexo.doors.console import access, dead_letters, message, overview, queues, spark, topics
from nexo.doors.console.dead_letters import task_of
from nexo.doors.console.request import METRICS, Call, Handle, Need, Needs, Operation
from nexo.doors.console.settings_form import changed_dead_letter
from nexo.vocabulary.limits import CONSOLE_FORM_BYTES_MAX, CONSOLE_MESSAGE_FORM_BYTES_MAX
from nexo.vocabulary.names import dead_letter_name

if TYPE_CHECKING:
    from collections.abc import Iterator

PUSH, PEEK, MANAGE = (frozenset({each}) for each in (Action.PUSH, Action.PEEK, Action.MANAGE))

# What operations need. One need is asked for after the other, so that what is looked up for the
# second tells nothing to those who lack the first.


def _nothing(call: Call) -> list[Need]:
    """It is for everybody, or shows only what the caller knows."""
    return []


def _on(actions: frozenset[Action]) -> Needs:
    """One of these, on what the address names."""
    return lambda call: [Need(actions, call.path["name"])]


def _figures(call: Call) -> list[Need]:
    return [Need(PEEK, METRICS)]


def _create(call: Call) -> list[Need]:
    return [Need(MANAGE, call.field("name"))]


def _edit_queue(call: Call) -> Iterator[Need]:
    """Who sends dead letters to a queue of another name pushes there."""
    name = call.path["name"]
    yield Need(MANAGE, name)
    template = changed_dead_letter(call.form, call.engine.definition(name).settings)
    if template is not None:
        yield Need(PUSH, dead_letter_name(name, template))


def _redrive(call: Call) -> list[Need]:
    needs, to = [Need(MANAGE, call.path["name"])], call.field("to")
    return [*needs, Need(PUSH, to)] if to else needs


def _redrive_cancel(call: Call) -> list[Need]:
    return [Need(MANAGE, call.engine.tasks.source_of(task_of(call)))]


def _bind(call: Call) -> list[Need]:
    return [Need(READ | MANAGE, call.path["name"]), Need(MANAGE, call.field("queue"))]


# What the audit log is told that they are about.


def _path_name(call: Call) -> str:
    return call.path["name"]


def _field_name(call: Call) -> str:
    return call.field("name")


def _topic_and_queue(call: Call) -> str:
    return f"{call.path['name']} {call.field('queue')}"


def _task(call: Call) -> str:
    return f"task {task_of(call)}"


# Named as in the other doors and in the audit log.
_OPERATIONS = (
    Operation("home", _nothing),  # who may not see the figures is led to the queues
    Operation("sign_in", _nothing),
    Operation("sign_out", _nothing),
    Operation("overview", _figures),
    Operation("list_queues", _nothing),
    Operation("create_queue", _create, _field_name),
    Operation("queue_info", _on(ANY)),
    Operation("edit_queue", _edit_queue, _path_name),
    Operation("delete_queue", _on(MANAGE), _path_name),
    Operation("purge", _on(MANAGE), _path_name),
    Operation("pause", _on(MANAGE), _path_name),
    Operation("resume", _on(MANAGE), _path_name),
    Operation("release", _on(MANAGE), _path_name),
    Operation("peek", _on(PEEK)),
    Operation("push", _on(PUSH)),
    Operation("redrive", _redrive, _path_name),
    Operation("redrive_cancel", _redrive_cancel, _task),
    Operation("list_topics", _nothing),
    Operation("create_topic", _create, _field_name),
    Operation("topic_info", _on(ANY)),
    Operation("edit_topic", _on(MANAGE), _path_name),
    Operation("delete_topic", _on(MANAGE), _path_name),
    Operation("publish", _on(PUSH)),
    Operation("bind", _bind, _topic_and_queue),
    Operation("unbind", _bind, _topic_and_queue),
    Operation("audit", None),
    Operation("create_token", None, _field_name),
    Operation("revoke_token", None, _field_name),
)
OPERATIONS = {each.name: each for each in _OPERATIONS}


class Route(NamedTuple):
    """One thing that can be done at an address: a path below /console, in which a name is one
    segment. The forms that carry the body of a message may be long; all others are short."""

    method: str
    path: str
    operation: str
    handle: Handle
    form_bytes_max: int = CONSOLE_FORM_BYTES_MAX


LOGIN = Route("POST", "/login", "sign_in", access.login)

ROUTES = (
    Route("GET", "", "home", overview.overview),
    Route("GET", "/live/overview", "overview", overview.live_overview),
    Route("GET", "/queues", "list_queues", queues.queues),
    Route("GET", "/live/queues", "list_queues", queues.live_queues),
    Route("POST", "/queues", "create_queue", queues.create_queue),
    Route("GET", "/queues/{name}", "queue_info", queues.queue),
    Route("GET", "/live/queues/{name}", "queue_info", queues.live_queue),
    Route("POST", "/queues/{name}/send", "push", queues.send, CONSOLE_MESSAGE_FORM_BYTES_MAX),
    Route("POST", "/queues/{name}/settings", "edit_queue", queues.edit),
    Route("POST", "/queues/{name}/release", "release", queues.release),
    Route("POST", "/queues/{name}/act/pause", "pause", queues.pause),
    Route("POST", "/queues/{name}/act/resume", "resume", queues.resume),
    Route("POST", "/queues/{name}/act/purge", "purge", queues.purge),
    Route("POST", "/queues/{name}/act/delete", "delete_queue", queues.delete),
    Route("GET", "/queues/{name}/messages/{id}", "peek", message.message),
    Route("GET", "/queues/{name}/messages/{id}/body", "peek", message.download),
    Route("GET", "/dead-letters", "list_queues", dead_letters.dead_letters),
    Route("GET", "/live/dead-letters", "list_queues", dead_letters.live_dead_letters),
    Route("GET", "/dead-letters/{name}", "peek", dead_letters.letters),
    Route("GET", "/live/dead-letters/{name}", "peek", dead_letters.live_letters),
    Route("POST", "/dead-letters/{name}/redrive", "redrive", dead_letters.redrive),
    Route("POST", "/dead-letters/{name}/cancel", "redrive_cancel", dead_letters.cancel_redrive),
    Route("GET", "/topics", "list_topics", topics.topics),
    Route("GET", "/live/topics", "list_topics", topics.live_topics),
    Route("POST", "/topics", "create_topic", topics.create_topic),
    Route("GET", "/topics/{name}", "topic_info", topics.topic),
    Route("GET", "/live/topics/{name}", "topic_info", topics.live_topic),
    Route("POST", "/topics/{name}/settings", "edit_topic", topics.edit_topic),
    Route("POST", "/topics/{name}/delete", "delete_topic", topics.delete_topic),
    Route(
        "POST", "/topics/{name}/publish", "publish", topics.publish, CONSOLE_MESSAGE_FORM_BYTES_MAX
    ),
    Route("POST", "/topics/{name}/bind", "bind", topics.bind),
    Route("POST", "/topics/{name}/unbind", "unbind", topics.unbind),
    Route("GET", "/spark", "overview", spark.spark),
    Route("GET", "/live/spark", "overview", spark.live_spark),
    Route("GET", "/access", "audit", access.access),
    Route("POST", "/access/tokens", "create_token", access.create_token),
    Route("POST", "/access/revoke", "revoke_token", access.revoke_token),
    Route("POST", "/logout", "sign_out", access.logout),
)
