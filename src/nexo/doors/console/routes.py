"""Every address of the console. What has no row here does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.console import access, dead_letters, message, overview, queues, spark, topics

if TYPE_CHECKING:
    from nexo.doors.console.request import Handle

# Method and path below /console, in which a name is one segment.
ROUTES: dict[tuple[str, str], Handle] = {
    ("GET", ""): overview.overview,
    ("GET", "/queues"): queues.queues,
    ("POST", "/queues"): queues.create_queue,
    ("GET", "/queues/{name}"): queues.queue,
    ("POST", "/queues/{name}/send"): queues.send,
    ("POST", "/queues/{name}/settings"): queues.edit,
    ("POST", "/queues/{name}/release"): queues.release,
    ("POST", "/queues/{name}/act/{action}"): queues.act,
    ("GET", "/queues/{name}/messages/{id}"): message.message,
    ("GET", "/queues/{name}/messages/{id}/body"): message.download,
    ("GET", "/dead-letters"): dead_letters.dead_letters,
    ("GET", "/dead-letters/{name}"): dead_letters.letters,
    ("POST", "/dead-letters/{name}/redrive"): dead_letters.redrive,
    ("POST", "/dead-letters/{name}/cancel"): dead_letters.cancel_redrive,
    ("GET", "/topics"): topics.topics,
    ("POST", "/topics"): topics.create_topic,
    ("GET", "/topics/{name}"): topics.topic,
    ("POST", "/topics/{name}/settings"): topics.edit_topic,
    ("POST", "/topics/{name}/delete"): topics.delete_topic,
    ("POST", "/topics/{name}/publish"): topics.publish,
    ("POST", "/topics/{name}/bind"): topics.bind,
    ("POST", "/topics/{name}/unbind"): topics.unbind,
    ("GET", "/spark"): spark.spark,
    ("GET", "/access"): access.access,
    ("POST", "/access/tokens"): access.create_token,
    ("POST", "/access/revoke"): access.revoke_token,
    ("POST", "/logout"): access.logout,
    ("GET", "/live/overview"): overview.live_overview,
    ("GET", "/live/queues"): queues.live_queues,
    ("GET", "/live/queues/{name}"): queues.live_queue,
    ("GET", "/live/dead-letters"): dead_letters.live_dead_letters,
    ("GET", "/live/dead-letters/{name}"): dead_letters.live_letters,
    ("GET", "/live/topics"): topics.live_topics,
    ("GET", "/live/topics/{name}"): topics.live_topic,
    ("GET", "/live/spark"): spark.live_spark,
}
