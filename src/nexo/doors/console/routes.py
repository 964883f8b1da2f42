"""Every address of the console, and what is done there. What has no row here does not exist.

An address names its operation, and `access.operations` says what that needs of a token and whether
it is audited: here stands only which names are in a request. No page checks anything by itself.
What a page shows of buttons and forms is another matter: it asks the caller, so that nobody is
offered what would be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nexo.access import operations
from nexo.access.operations import Named, Operation, check_redrive_known, dead_letters_elsewhere
from nexo.doors.console import (
    access,
    api,
    cluster,
    consumers,
    dead_letters,
    message,
    overview,
    queues,
    search,
    spark,
    topics,
)
from nexo.doors.console.settings_form import changed_dead_letter
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import CONSOLE_FORM_BYTES_MAX, CONSOLE_MESSAGE_FORM_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.doors.console.request import Call, Handle

# Besides those of all doors: for everybody, and of no queue or topic.
_OWN = {each.name: each for each in (Operation("sign_in"), Operation("sign_out"))}


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
    Route("GET", "", "list_queues", overview.overview),
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
    Route(
        "POST",
        "/queues/{name}/messages/{id}/resend",
        "resend",
        message.resend,
        CONSOLE_MESSAGE_FORM_BYTES_MAX,
    ),
    Route("GET", "/dead-letters", "list_queues", dead_letters.dead_letters),
    Route("GET", "/live/dead-letters", "list_queues", dead_letters.live_dead_letters),
    Route("GET", "/dead-letters/{name}", "peek", dead_letters.letters),
    Route("GET", "/live/dead-letters/{name}", "peek", dead_letters.live_letters),
    Route("POST", "/dead-letters/{name}/redrive", "redrive", dead_letters.redrive),
    Route("POST", "/dead-letters/{name}/discard", "discard", dead_letters.discard),
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
    Route("GET", "/search", "list_queues", search.search),
    Route("GET", "/api", "list_queues", api.api),
    Route("GET", "/spark", "overview", spark.spark),
    Route("GET", "/live/spark", "overview", spark.live_spark),
    Route("GET", "/consumers", "list_connections", consumers.consumers),
    Route("GET", "/live/consumers", "list_connections", consumers.live_consumers),
    Route("POST", "/consumers/close", "close_connection", consumers.close),
    Route("GET", "/cluster", "cluster_info", cluster.cluster),
    Route("GET", "/live/cluster", "cluster_info", cluster.live_cluster),
    Route("POST", "/cluster/drain", "drain_node", cluster.drain),
    Route("POST", "/cluster/rebalance", "rebalance_cluster", cluster.rebalance),
    Route("GET", "/access", "audit", access.access),
    Route("POST", "/access/tokens", "create_token", access.create_token),
    Route("POST", "/access/revoke", "revoke_token", access.revoke_token),
    Route("POST", "/logout", "sign_out", access.logout),
)


def operation_of(route: Route) -> Operation:
    return _OWN.get(route.operation) or operations.operation_of(route.operation)


def check(call: Call) -> None:
    """Raise unless the caller may do this. Who may not change something stands in the audit log."""
    named_of = _NAMED.get(call.operation.name, _by_path)
    try:
        operations.check(call.caller, call.operation, named_of(call))
    except NexoError:
        if not call.operation.is_audited:
            raise
        with call.told():
            raise


def _by_path(call: Call) -> Named:
    """A queue or a topic, whichever the operation is about."""
    name = call.path.get("name")
    return Named(queue=name, topic=name)


def _create(call: Call) -> Named:
    return Named(queue=call.field("name"), topic=call.field("name"))


def _edit_queue(call: Call) -> Named:
    name, template = call.path["name"], changed_dead_letter(call.form)
    elsewhere = None if template is None else dead_letters_elsewhere(name, template)
    return Named(queue=name, dead_letters=elsewhere)


def _redrive(call: Call) -> Named:
    return Named(queue=call.path["name"], target=call.field("to") or None)


def _resend(call: Call) -> Named:
    name, to = call.path["name"], call.field("to") or None
    sources = call.engine.hands.targets_of(name) if to is None else ()
    return Named(queue=name, target=to, sources=sources)


def _redrive_cancel(call: Call) -> Named:
    source = call.engine.tasks.source_of(call.task)
    check_redrive_known(call.caller, source, call.task)
    return Named(queue=source)


def _bind(call: Call) -> Named:
    return Named(topic=call.path["name"], queue=call.field("queue"))


_NAMED: dict[str, Callable[[Call], Named]] = {
    "create_queue": _create,
    "create_topic": _create,
    "edit_queue": _edit_queue,
    "redrive": _redrive,
    "resend": _resend,
    "redrive_cancel": _redrive_cancel,
    "bind": _bind,
    "unbind": _bind,
}
