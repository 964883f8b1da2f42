"""Settings as a JSON document gives them: some of the words of `vocabulary.spoken`, each with the
values that it takes. What is not given is not there, so that an edit changes only what it names;
what is no setting, or out of range, is refused by name. Tests hold each range to
`vocabulary.settings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nexo.vocabulary import limits, spoken
from nexo.vocabulary import settings as broker
from nexo.vocabulary.errors import InvalidArgument

Settings = TypeVar("Settings", broker.QueueSettings, broker.TopicSettings)

_TIMEOUT_S = limits.TIMEOUT_MS_MAX / 1000
_RETENTION_S = limits.RETENTION_MS_MAX / 1000

_NAME_CHARS = 2 * limits.NAME_CHARS_MAX  # with its account and region, or around `{name}`

_Timeout = Annotated[float, Meta(ge=0, le=_TIMEOUT_S)]
_Retention = Annotated[float, Meta(ge=1, le=_RETENTION_S)]
_Size = Annotated[int, Meta(ge=1, le=limits.MESSAGE_BYTES_CEILING)]
_Depth = Annotated[int, Meta(ge=1, le=limits.DEPTH_MAX)]


class GivenBackoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a failed message waits, in seconds: `initial`, then times `factor` up to `max`;
    `jitter` is the share of the wait that is spread out."""

    initial: _Timeout | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    max: _Timeout | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET


class GivenQueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some settings of a queue; times in seconds."""

    visibility_timeout: _Timeout | UnsetType = UNSET
    retransmit_timeout: Annotated[float, Meta(ge=0.001, le=_TIMEOUT_S)] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] | UnsetType | None = UNSET
    dead_letter: Annotated[str, Meta(min_length=1, max_length=_NAME_CHARS)] | UnsetType = UNSET
    delay: Annotated[float, Meta(ge=0, le=limits.DELAY_MS_MAX / 1000)] | UnsetType = UNSET
    retention: _Retention | UnsetType = UNSET
    deduplication: Literal["off", "id", "content"] | UnsetType = UNSET
    deduplication_window: Annotated[float, Meta(ge=0.001, le=_RETENTION_S)] | UnsetType = UNSET
    max_receive_rate: (
        Annotated[float, Meta(ge=0.001, le=limits.RECEIVE_RATE_MAX)] | UnsetType | None
    ) = UNSET
    backoff: GivenBackoff | UnsetType | None = UNSET
    fifo: bool | UnsetType = UNSET
    max_message_bytes: _Size | UnsetType = UNSET
    max_depth: _Depth | UnsetType | None = UNSET
    archive: bool | UnsetType = UNSET
    archive_retention: _Retention | UnsetType = UNSET
    events: bool | UnsetType = UNSET
    receive_wait: Annotated[float, Meta(ge=0, le=limits.RECEIVE_WAIT_MS_MAX / 1000)] | UnsetType = (
        UNSET
    )
    deduplication_scope: Literal["queue", "group"] | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    aws: dict[str, str] | UnsetType = UNSET


class GivenTopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some settings of a topic; null is without limit."""

    retention_messages: _Depth | UnsetType | None = UNSET
    retention_seconds: _Retention | UnsetType | None = UNSET
    retention_bytes: Annotated[int, Meta(ge=1, le=2**60)] | UnsetType | None = UNSET
    max_message_bytes: _Size | UnsetType = UNSET


def queue_settings_of(
    given: GivenQueueSettings, now: broker.QueueSettings | None = None
) -> broker.QueueSettings:
    """What a queue is to do from now on: as given, for the rest as it is now or by default."""
    return _settings(spoken.queue_params(msgspec.to_builtins(given)), now or broker.QueueSettings())


def topic_settings_of(
    given: GivenTopicSettings, now: broker.TopicSettings | None = None
) -> broker.TopicSettings:
    return _settings(spoken.topic_params(msgspec.to_builtins(given)), now or broker.TopicSettings())


def given_queue_settings(settings: broker.QueueSettings) -> GivenQueueSettings:
    """All settings of a queue, as a document that gives them."""
    told = spoken.queue_settings(msgspec.to_builtins(settings))
    return msgspec.convert(told, GivenQueueSettings, from_attributes=True)


def given_topic_settings(settings: broker.TopicSettings) -> GivenTopicSettings:
    told = spoken.topic_settings(msgspec.to_builtins(settings))
    return msgspec.convert(told, GivenTopicSettings, from_attributes=True)


def _settings(params: dict[str, Any], now: Settings) -> Settings:
    try:
        return msgspec.convert({**msgspec.to_builtins(now), **params}, type(now))
    except msgspec.ValidationError as error:
        raise InvalidArgument(str(error)) from None
