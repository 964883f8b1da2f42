"""Consumer groups: what both twins need to share the work on a topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nexo.client.held import HeldMessage
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.patterns import is_pattern

if TYPE_CHECKING:
    from datetime import datetime

_GROUP = re.compile(r"[A-Za-z0-9_-]+")


def group_queue(topic: str, group: str) -> str:
    """The queue of a consumer group: it is bound to the topic and named after both."""
    if is_pattern(topic):
        raise InvalidArgument(
            f"a group follows one topic, not {topic!r:.80}", "bind a queue to each of them"
        )
    if not _GROUP.fullmatch(str(group)):
        raise InvalidArgument(
            f"{group!r:.40} is not the name of a group", "use the characters A-Z a-z 0-9 _ -"
        )
    return f"{topic}.{group}"


class GroupContent(HeldMessage):
    """What an event has besides, for the messages of a consumer group."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The queue of the group is named after the topic and the group."""
        return self._delivery.queue.rpartition(".")[0]

    @property
    def published_at(self) -> datetime:
        return self.created_at

    @property
    def offset(self) -> None:
        """A group counts for itself: its messages have ids and acks, not offsets."""
        return
