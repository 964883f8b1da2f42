"""The definitions of a broker as one document: queues and topics with all their settings, and what
is bound to what. Neither messages nor tokens are in it."""

from __future__ import annotations

from typing import Literal

import msgspec

from nexo.vocabulary.given import GivenQueueSettings, GivenTopicSettings


class QueueDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that are not given have their defaults."""

    name: str
    settings: GivenQueueSettings = GivenQueueSettings()


class TopicDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: GivenTopicSettings = GivenTopicSettings()


class BindingDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`where`: only messages with these attributes; null: all."""

    topic: str
    queue: str
    where: dict[str, str] | None = None


class Definitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # A newer document is refused rather than taken in part.
    version: Literal[1] = 1
    queues: list[QueueDefinition] = []
    topics: list[TopicDefinition] = []
    bindings: list[BindingDefinition] = []


class Imported(msgspec.Struct, frozen=True):
    """What an import did with one definition, or would do. `settings` are those that differ."""

    kind: Literal["queue", "topic", "binding"]
    name: str  # of a binding: TOPIC QUEUE
    outcome: Literal["created", "changed", "unchanged"]
    settings: list[str] = []
