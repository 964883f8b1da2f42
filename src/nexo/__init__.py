"""Nexo: a durable message broker. Queues with SQS semantics, topics, and a Spark pipeline.

Lives here: the rooms of the product, one package each, its version, and the names that users need.
May import: nothing; what users need is loaded on first use, so opening the package stays free.
Never: rules, I/O or state of its own.
Enter at: `nexo.connect()`; `nexo.testing.broker()` for a broker in your own process.
Tests: `tests/`, in folders by kind; `tests/tidy/` holds the tree itself to the house rules.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nexo.client.aio.client import AsyncClient
    from nexo.client.aio.message import AsyncMessage
    from nexo.client.aio.queue import AsyncQueue
    from nexo.client.aio.topic import AsyncTopic
    from nexo.client.blocking.client import Client
    from nexo.client.blocking.message import Message
    from nexo.client.blocking.queue import Queue
    from nexo.client.blocking.topic import Topic
    from nexo.client.chosen import LifeEvent, MessageDetails, ReasonGroup
    from nexo.client.connect import connect, connect_async
    from nexo.client.info import ConnectionInfo, ConsumerInfo, Progress, QueueInfo, TopicInfo
    from nexo.client.message import DeadLetter, Messages, PeekedMessage
    from nexo.client.middleware import Middleware
    from nexo.client.sql import sql
    from nexo.client.tokens import NewToken, TokenInfo
    from nexo.client.topics import Event
    from nexo.client.worker.worker import Worker
    from nexo.vocabulary.definitions import Definitions, Imported
    from nexo.vocabulary.errors import (
        ConnectionNotFound,
        DataCorrupt,
        Fenced,
        Forbidden,
        InvalidArgument,
        InvalidBody,
        LeaseLost,
        MessageNotFound,
        MessageTooLarge,
        NexoError,
        NotReady,
        NumberReused,
        OffsetExpired,
        QueueExists,
        QueueFull,
        QueueNotFound,
        RateLimited,
        ReadOnly,
        RedriveNotFound,
        StaleReceipt,
        Timeout,
        TokenExists,
        TokenNotFound,
        TopicExists,
        TopicNotFound,
        Unauthorized,
        Unreachable,
        VersionMismatch,
        WrongState,
    )
    from nexo.vocabulary.states import State
    from nexo.vocabulary.user_settings import Backoff, QueueSettings, TopicSettings

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "AsyncQueue",
    "AsyncTopic",
    "Backoff",
    "Client",
    "ConnectionInfo",
    "ConnectionNotFound",
    "ConsumerInfo",
    "DataCorrupt",
    "DeadLetter",
    "Definitions",
    "Event",
    "Fenced",
    "Forbidden",
    "Imported",
    "InvalidArgument",
    "InvalidBody",
    "LeaseLost",
    "LifeEvent",
    "Message",
    "MessageDetails",
    "MessageNotFound",
    "MessageTooLarge",
    "Messages",
    "Middleware",
    "NewToken",
    "NexoError",
    "NotReady",
    "NumberReused",
    "OffsetExpired",
    "PeekedMessage",
    "Progress",
    "Queue",
    "QueueExists",
    "QueueFull",
    "QueueInfo",
    "QueueNotFound",
    "QueueSettings",
    "RateLimited",
    "ReadOnly",
    "ReasonGroup",
    "RedriveNotFound",
    "StaleReceipt",
    "State",
    "Timeout",
    "TokenExists",
    "TokenInfo",
    "TokenNotFound",
    "Topic",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "TopicSettings",
    "Unauthorized",
    "Unreachable",
    "VersionMismatch",
    "Worker",
    "WrongState",
    "connect",
    "connect_async",
    "sql",
]

# Where each name that is not an error lives; the errors are all in one module.
_HOMES = {
    "AsyncClient": "client.aio.client",
    "AsyncMessage": "client.aio.message",
    "AsyncQueue": "client.aio.queue",
    "AsyncTopic": "client.aio.topic",
    "Backoff": "vocabulary.user_settings",
    "Client": "client.blocking.client",
    "ConnectionInfo": "client.info",
    "ConsumerInfo": "client.info",
    "DeadLetter": "client.message",
    "Definitions": "vocabulary.definitions",
    "Event": "client.topics",
    "Imported": "vocabulary.definitions",
    "LifeEvent": "client.chosen",
    "MessageDetails": "client.chosen",
    "ReasonGroup": "client.chosen",
    "Message": "client.blocking.message",
    "Messages": "client.message",
    "Middleware": "client.middleware",
    "NewToken": "client.tokens",
    "PeekedMessage": "client.message",
    "Progress": "client.info",
    "Queue": "client.blocking.queue",
    "QueueInfo": "client.info",
    "QueueSettings": "vocabulary.user_settings",
    "State": "vocabulary.states",
    "TokenInfo": "client.tokens",
    "Topic": "client.blocking.topic",
    "TopicInfo": "client.info",
    "TopicSettings": "vocabulary.user_settings",
    "Worker": "client.worker.worker",
    "connect": "client.connect",
    "connect_async": "client.connect",
    "sql": "client.sql",
}


if not TYPE_CHECKING:  # a misspelt name is an error to type checkers, not anything

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'nexo' has no attribute {name!r}")
        from importlib import import_module

        home = import_module(f"nexo.{_HOMES.get(name, 'vocabulary.errors')}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
