"""The definitions of a broker as one document: queues and topics with all their settings, and what
is bound to what. Neither messages nor tokens are in it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nexo.vocabulary.limits import (
    DEFINITIONS_MAX,
    NAME_CHARS_MAX,
    WHERE_MAX,
    WHERE_NAME_CHARS_MAX,
    WHERE_VALUE_CHARS_MAX,
)
from nexo.vocabulary.sns import Subscription
from nexo.vocabulary.user_settings import GivenQueueSettings, GivenTopicSettings

_Name = Annotated[str, Meta(min_length=1, max_length=2 * NAME_CHARS_MAX)]  # all of a queue's name
_WhereName = Annotated[str, Meta(min_length=1, max_length=WHERE_NAME_CHARS_MAX)]
_WhereValue = Annotated[str, Meta(max_length=WHERE_VALUE_CHARS_MAX)]
Where = Annotated[dict[_WhereName, _WhereValue], Meta(max_length=WHERE_MAX)]
_Many = Meta(max_length=DEFINITIONS_MAX)


class QueueDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that are not given have their defaults."""

    name: _Name
    settings: GivenQueueSettings = GivenQueueSettings()


class TopicDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Name
    settings: GivenTopicSettings = GivenTopicSettings()


class BindingDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`where`: only messages with these attributes; null: all. `sns`: it is a subscription that was
    made through SNS, with a filter of its own."""

    topic: _Name
    queue: _Name
    where: Where | None = None
    sns: Subscription | None = None


class Definitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # A newer document is refused rather than taken in part.
    version: Literal[1] = 1
    queues: Annotated[list[QueueDefinition], _Many] = []
    topics: Annotated[list[TopicDefinition], _Many] = []
    bindings: Annotated[list[BindingDefinition], _Many] = []


class Imported(msgspec.Struct, frozen=True):
    """What an import did with one definition, or would do. `settings` are those that differ."""

    kind: Literal["queue", "topic", "binding"]
    name: str  # of a binding: TOPIC QUEUE
    outcome: Literal["created", "changed", "unchanged"]
    settings: list[str] = []
