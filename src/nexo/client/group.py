"""Consumer groups and where to begin: what both twins need to follow a topic."""

from __future__ import annotations

from nexo.client.held import HeldMessage
from nexo.vocabulary.errors import InvalidArgument


def group_queue(topic: str, group: str) -> str:
    """The queue of a consumer group: it is bound to the topic and named after both."""
    return f"{topic}.{group}"


def check_start(start: str | int) -> None:
    if isinstance(start, str) and start in ("latest", "earliest"):
        return
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return
    raise InvalidArgument(f"start is {start!r:.40}", "write 'latest', 'earliest' or an offset")


def check_bind_start(start: str) -> None:
    if start != "latest":
        raise InvalidArgument(
            f"a queue is bound from now on, not from {start!r:.40}",
            "read what came before with topic.read(), and push it",
        )


class GroupContent(HeldMessage):
    """What an event has besides, for the messages of a consumer group."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The queue of the group is named after the topic and the group."""
        return self._delivery.queue.rpartition(".")[0]

    published_at = HeldMessage.created_at

    @property
    def offset(self) -> None:
        """A group counts for itself: its messages have ids and acks, not offsets."""
        return
