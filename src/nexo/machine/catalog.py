"""The catalog: which queues and topics there are, and what is bound to what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary import changes as c
from nexo.vocabulary.errors import (
    InvalidArgument,
    QueueExists,
    QueueNotFound,
    TokenExists,
    TokenNotFound,
    TopicExists,
    TopicNotFound,
)
from nexo.vocabulary.limits import TOKENS_MAX
from nexo.vocabulary.names import check_name
from nexo.vocabulary.settings import (
    QueueSettings,
    TopicSettings,
    check_queue_settings,
    check_topic_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class CatalogImage(msgspec.Struct):
    next_owner: int = 1
    queues: dict[str, c.QueueDefined] = {}
    topics: dict[str, c.TopicDefined] = {}
    bindings: list[c.Bound] = []
    tokens: dict[str, c.TokenDefined] = {}


encode_catalog_image = msgspec.msgpack.Encoder().encode
decode_catalog_image = msgspec.msgpack.Decoder(CatalogImage).decode


class Catalog:
    """Definitions by name. Owner numbers are never used twice."""

    __slots__ = ("bindings", "changes", "next_owner", "queues", "tokens", "topics")

    def __init__(self, image: CatalogImage | None = None) -> None:
        image = image or CatalogImage()
        self.next_owner = image.next_owner
        self.queues = image.queues
        self.topics = image.topics
        self.bindings = image.bindings
        self.tokens = image.tokens
        self.changes: list[c.CatalogChange] = []

    def image(self) -> CatalogImage:
        return CatalogImage(self.next_owner, self.queues, self.topics, self.bindings, self.tokens)

    def queue(self, name: str) -> c.QueueDefined:
        found = self.queues.get(name)
        if found is None:
            raise QueueNotFound(f"there is no queue {name!r:.100}", "create it first")
        return found

    def topic(self, name: str) -> c.TopicDefined:
        found = self.topics.get(name)
        if found is None:
            raise TopicNotFound(f"there is no topic {name!r:.100}", "create it first")
        return found

    def define_queue(
        self, name: str, settings: QueueSettings, incarnation: int, now_ms: int
    ) -> c.QueueDefined:
        """Create a queue. The same name with the same settings is the same queue."""
        check_name(name)
        check_queue_settings(name, settings)
        known = self.queues.get(name)
        if known is not None:
            since_ms = known.settings.deduplication_scope_since_ms  # no wish of whoever asks
            settings = msgspec.structs.replace(settings, deduplication_scope_since_ms=since_ms)
            if known.settings == settings:
                return known
            fields = settings.__struct_fields__
            other = [f for f in fields if getattr(settings, f) != getattr(known.settings, f)]
            raise QueueExists(
                f"queue {name!r} exists with another {', '.join(other)}",
                "use its settings, or edit the queue",
            )
        defined = c.QueueDefined(self.next_owner, name, incarnation, settings, now_ms, now_ms)
        self._define(defined)
        return defined

    def edit_queue(self, name: str, settings: QueueSettings, now_ms: int) -> c.QueueDefined:
        known = self.queue(name)
        check_queue_settings(name, settings)
        if settings.fifo != known.settings.fifo:
            raise InvalidArgument(
                f"queue {name!r} cannot change between FIFO and standard",
                "create another queue and redrive into it",
            )
        defined = msgspec.structs.replace(known, settings=settings, modified_ms=now_ms)
        self._define(defined)
        return defined

    def define_topic(
        self, name: str, settings: TopicSettings, now_ms: int, system: bool = False
    ) -> c.TopicDefined:
        """Create a topic; only the broker itself may use a reserved name."""
        if not system:
            check_name(name, "topic")
        check_topic_settings(settings)
        known = self.topics.get(name)
        if known is not None:
            if known.settings == settings:
                return known
            raise TopicExists(
                f"topic {name!r} exists with other settings", "use its settings, or edit it"
            )
        defined = c.TopicDefined(self.next_owner, name, settings, now_ms, now_ms)
        self._define(defined)
        return defined

    def edit_topic(self, name: str, settings: TopicSettings, now_ms: int) -> c.TopicDefined:
        known = self.topic(name)
        check_topic_settings(settings)
        defined = msgspec.structs.replace(known, settings=settings, modified_ms=now_ms)
        self._define(defined)
        return defined

    def drop_queue(self, name: str) -> int:
        owner = self.queue(name).owner
        self._drop(owner)
        return owner

    def drop_topic(self, name: str) -> int:
        owner = self.topic(name).owner
        self._drop(owner)
        return owner

    def bind(self, topic: str, queue: str, where: dict[str, str] | None = None) -> bool:
        """What is published to the topic arrives in the queue from now on. Bound again it only
        gets another filter; returns whether it was not bound before."""
        bound = c.Bound(self.topic(topic).owner, self.queue(queue).owner, where)
        if bound in self.bindings:
            return False
        is_new = not self.is_bound(topic, queue)
        self.apply(bound)
        self.changes.append(bound)
        return is_new

    def is_bound(self, topic: str, queue: str) -> bool:
        if queue not in self.queues:
            return False
        owners = (self.topic(topic).owner, self.queues[queue].owner)
        return any((bound.topic, bound.queue) == owners for bound in self.bindings)

    def unbind(self, topic: str, queue: str) -> None:
        unbound = c.Unbound(self.topic(topic).owner, self.queue(queue).owner)
        self._unbind(unbound.topic, unbound.queue)
        self.changes.append(unbound)

    def bound_to(self, topic_owner: int) -> list[c.Bound]:
        return [bound for bound in self.bindings if bound.topic == topic_owner]

    def define_token(self, defined: c.TokenDefined) -> None:
        if defined.name in self.tokens:
            raise TokenExists(
                f"there is a token {defined.name!r} already", "revoke it, or choose another name"
            )
        if len(self.tokens) >= TOKENS_MAX:
            raise InvalidArgument(f"there are {TOKENS_MAX} tokens already", "revoke some")
        self._define(defined)

    def revoke_token(self, name: str) -> None:
        if name not in self.tokens:
            raise TokenNotFound(f"there is no token {name!r:.100}", "see nexo token list")
        revoked = c.TokenRevoked(name)
        self.apply(revoked)
        self.changes.append(revoked)

    def apply(self, change: c.CatalogChange) -> None:
        """Bring the catalog forward by a change; recovery and the living catalog share this."""
        if isinstance(change, c.QueueDefined):
            self.queues[change.name] = change
            self.next_owner = max(self.next_owner, change.owner + 1)
        elif isinstance(change, c.TopicDefined):
            self.topics[change.name] = change
            self.next_owner = max(self.next_owner, change.owner + 1)
        elif isinstance(change, c.Dropped):
            self.queues = {n: q for n, q in self.queues.items() if q.owner != change.owner}
            self.topics = {n: t for n, t in self.topics.items() if t.owner != change.owner}
            self.bindings = [b for b in self.bindings if change.owner not in (b.topic, b.queue)]
        elif isinstance(change, c.Bound):
            self._unbind(change.topic, change.queue)
            self.bindings.append(change)
        elif isinstance(change, c.TokenDefined):
            self.tokens[change.name] = change
        elif isinstance(change, c.TokenRevoked):
            self.tokens.pop(change.name, None)
        else:
            self._unbind(change.topic, change.queue)

    def _define(self, defined: c.QueueDefined | c.TopicDefined | c.TokenDefined) -> None:
        self.apply(defined)
        self.changes.append(defined)

    def _drop(self, owner: int) -> None:
        dropped = c.Dropped(owner)
        self.apply(dropped)
        self.changes.append(dropped)

    def _unbind(self, topic: int, queue: int) -> None:
        self.bindings = [b for b in self.bindings if (b.topic, b.queue) != (topic, queue)]


def fold_catalog(image: CatalogImage, records: Iterable[Sequence[c.CatalogChange]]) -> CatalogImage:
    catalog = Catalog(image)
    for record in records:
        for change in record:
            catalog.apply(change)
    return catalog.image()
