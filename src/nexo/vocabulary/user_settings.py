# Generated from src/nexo/vocabulary/settings.py: edit it and run python -m scripts.user_settings.
"""The settings of queues and topics as users see them, with times in seconds.

`QueueSettings` and the like have them all, with their defaults. `QueueOptions` are some, as the
clients take them. `GivenQueueSettings` are some, as a JSON document gives them: what is not given
is not there, so that an edit changes only what it names; what is no setting, or out of range, is
refused by name.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType


class Backoff(Struct, frozen=True):
    """How long a failed message waits, in seconds: `initial`, then times `factor` up
    to `max`; `jitter` is the share of the wait that is spread out."""

    initial: float = 1.0
    factor: float = 2.0
    max: float = 3600.0
    jitter: float = 0.0


class QueueSettings(Struct, frozen=True):
    """What a queue does; times in seconds."""

    visibility_timeout: float = 30.0
    retransmit_timeout: float = 10.0
    max_attempts: int | None = 5
    dead_letter: str = "{name}_dlq"
    delay: float = 0.0
    retention: float = 345600.0
    deduplication: Literal["off", "id", "content"] = "off"
    deduplication_window: float = 300.0
    max_receive_rate: float | None = None
    backoff: Backoff | None = None
    fifo: bool = False
    max_message_bytes: int = 1048576
    max_depth: int | None = None
    archive: bool = False
    archive_retention: float = 604800.0
    events: bool = True
    receive_wait: float = 0.0
    deduplication_scope: Literal["queue", "group"] = "queue"
    tags: dict[str, str] = {}
    aws: dict[str, str] = {}


class TopicSettings(Struct, frozen=True):
    """What a topic keeps; None is without limit."""

    retention_messages: int | None = None
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    max_message_bytes: int = 1048576
    deduplication: Literal["off", "id", "content"] = "off"
    deduplication_scope: Literal["topic", "group"] = "topic"
    tags: dict[str, str] = {}
    aws: dict[str, str] = {}


class QueueOptions(TypedDict, total=False):
    """What `create_queue` and `edit` take: some of the fields of `QueueSettings`."""

    visibility_timeout: float
    retransmit_timeout: float
    max_attempts: int | None
    dead_letter: str
    delay: float
    retention: float
    deduplication: Literal["off", "id", "content"]
    deduplication_window: float
    max_receive_rate: float | None
    backoff: Backoff | dict[str, float] | None
    fifo: bool
    max_message_bytes: int
    max_depth: int | None
    archive: bool
    archive_retention: float
    events: bool
    receive_wait: float
    deduplication_scope: Literal["queue", "group"]
    tags: dict[str, str]
    aws: dict[str, str]


class TopicOptions(TypedDict, total=False):
    """What `create_topic` takes: some of the fields of `TopicSettings`."""

    retention_messages: int | None
    retention_seconds: float | None
    retention_bytes: int | None
    max_message_bytes: int
    deduplication: Literal["off", "id", "content"]
    deduplication_scope: Literal["topic", "group"]
    tags: dict[str, str]
    aws: dict[str, str]


class GivenBackoff(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a failed message waits, in seconds: `initial`, then times `factor` up
    to `max`; `jitter` is the share of the wait that is spread out."""

    initial: Annotated[
        Annotated[float, Meta(ge=0, le=2_592_000)] | UnsetType,
        Meta(description="delay before the first retry of a failed message"),
    ] = UNSET
    factor: Annotated[
        Annotated[float, Meta(ge=1, le=1_000)] | UnsetType,
        Meta(description="factor by which the retry delay grows with every failure"),
    ] = UNSET
    max: Annotated[
        Annotated[float, Meta(ge=0, le=2_592_000)] | UnsetType,
        Meta(description="longest delay before a retry"),
    ] = UNSET
    jitter: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | UnsetType,
        Meta(description="random share of the retry delay, 0 to 1, so that retries spread out"),
    ] = UNSET


class GivenQueueSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Some settings of a queue; times in seconds."""

    visibility_timeout: Annotated[
        Annotated[float, Meta(ge=0, le=2_592_000)] | UnsetType,
        Meta(
            description="how long a consumer has to process a message before it is delivered again"
        ),
    ] = UNSET
    retransmit_timeout: Annotated[
        Annotated[float, Meta(ge=0.001, le=2_592_000)] | UnsetType,
        Meta(
            description="how long a consumer has to confirm receipt before a message is sent again"
        ),
    ] = UNSET
    max_attempts: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None,
        Meta(description="failed deliveries after which a message becomes a dead letter"),
    ] = UNSET
    dead_letter: Annotated[
        Annotated[str, Meta(min_length=1, max_length=160)] | UnsetType,
        Meta(description="name of the dead-letter queue; {name} stands for this queue's name"),
    ] = UNSET
    delay: Annotated[
        Annotated[float, Meta(ge=0, le=315_360_000)] | UnsetType,
        Meta(description="how long a new message waits before it can be delivered"),
    ] = UNSET
    retention: Annotated[
        Annotated[float, Meta(ge=1, le=630_720_000)] | UnsetType,
        Meta(description="how long a message is kept before it expires"),
    ] = UNSET
    deduplication: Annotated[
        Literal["off", "id", "content"] | UnsetType,
        Meta(description="how duplicates are recognised: by deduplication id, by content, or not"),
    ] = UNSET
    deduplication_window: Annotated[
        Annotated[float, Meta(ge=0.001, le=630_720_000)] | UnsetType,
        Meta(description="how long a message is remembered to recognise duplicates of it"),
    ] = UNSET
    max_receive_rate: Annotated[
        Annotated[float, Meta(ge=0.001, le=1_000_000_000)] | UnsetType | None,
        Meta(description="maximum number of messages delivered per second"),
    ] = UNSET
    backoff: Annotated[
        GivenBackoff | UnsetType | None,
        Meta(description="delay before a failed message is retried; without it there is none"),
    ] = UNSET
    fifo: Annotated[
        bool | UnsetType, Meta(description="deliver the messages of each group in order")
    ] = UNSET
    max_message_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=16_777_216)] | UnsetType,
        Meta(description="largest message allowed, body and attributes together"),
    ] = UNSET
    max_depth: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | UnsetType | None,
        Meta(description="maximum number of messages in the queue; more are refused"),
    ] = UNSET
    archive: Annotated[
        bool | UnsetType,
        Meta(
            description="keep pushed messages readable in an archive, the topic nexo.archive.NAME"
        ),
    ] = UNSET
    archive_retention: Annotated[
        Annotated[float, Meta(ge=1, le=630_720_000)] | UnsetType,
        Meta(description="how long the archive keeps a message"),
    ] = UNSET
    events: Annotated[
        bool | UnsetType,
        Meta(description="record what happens to each message as events in the topic nexo.events"),
    ] = UNSET
    receive_wait: Annotated[
        Annotated[float, Meta(ge=0, le=20)] | UnsetType,
        Meta(description="default long-poll time of the SQS call ReceiveMessage"),
    ] = UNSET
    deduplication_scope: Annotated[
        Literal["queue", "group"] | UnsetType,
        Meta(description="where duplicates are looked for: in the whole queue or in each group"),
    ] = UNSET
    tags: Annotated[
        dict[str, str] | UnsetType,
        Meta(description="labels for you and your tools, each name=value"),
    ] = UNSET
    aws: Annotated[
        dict[str, str] | UnsetType,
        Meta(
            description="SQS attributes that have no effect here, kept for clients that read them"
        ),
    ] = UNSET


class GivenTopicSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Some settings of a topic; null is without limit."""

    retention_messages: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | UnsetType | None,
        Meta(description="maximum number of messages kept; the oldest are deleted first"),
    ] = UNSET
    retention_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=630_720_000)] | UnsetType | None,
        Meta(description="how long a message is kept"),
    ] = UNSET
    retention_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=1_152_921_504_606_846_976)] | UnsetType | None,
        Meta(description="maximum total size of the messages kept; the oldest are deleted first"),
    ] = UNSET
    max_message_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=16_777_216)] | UnsetType,
        Meta(description="largest message allowed, body and attributes together"),
    ] = UNSET
    deduplication: Annotated[
        Literal["off", "id", "content"] | UnsetType,
        Meta(description="how duplicates are recognised: by deduplication id, by content, or not"),
    ] = UNSET
    deduplication_scope: Annotated[
        Literal["topic", "group"] | UnsetType,
        Meta(description="where duplicates are looked for: in the whole topic or in each group"),
    ] = UNSET
    tags: Annotated[
        dict[str, str] | UnsetType,
        Meta(description="labels for you and your tools, each name=value"),
    ] = UNSET
    aws: Annotated[
        dict[str, str] | UnsetType,
        Meta(
            description="SNS attributes that have no effect here, kept for clients that read them"
        ),
    ] = UNSET
