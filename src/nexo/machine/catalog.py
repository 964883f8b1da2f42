"""The catalog: which queues and topics there are, what is bound to what, and which redrives are
under way or have ended."""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.machine.bind import filter_of
from nexo.vocabulary import changes as c
from nexo.vocabulary import limits
from nexo.vocabulary.errors import (
    InvalidArgument,
    QueueExists,
    QueueNotFound,
    TokenExists,
    TokenNotFound,
    TopicExists,
    TopicNotFound,
)
from nexo.vocabulary.filter_policy import Policy
from nexo.vocabulary.names import check_name
from nexo.vocabulary.settings import (
    QueueSettings,
    TopicSettings,
    check_queue_settings,
    check_topic_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nexo.vocabulary.sns import Subscription


class CatalogImage(msgspec.Struct):
    next_owner: int = 1
    queues: dict[str, c.QueueDefined] = {}
    topics: dict[str, c.TopicDefined] = {}
    bindings: list[c.Bound] = []
    tokens: dict[str, c.TokenDefined] = {}
    moves: dict[int, c.MoveNoted] = {}
    next_move: int = 1
    retired: list[str] = []


_encode = msgspec.msgpack.Encoder().encode
_HEAD = Struct(">BI")  # of a map or an array in msgpack, in the form that fits any number
_MAP, _ARRAY = 0xDF, 0xDD
decode_catalog_image = msgspec.msgpack.Decoder(CatalogImage).decode


class Catalog:
    """Definitions by name, and bindings by the owner numbers of either side: whatever is defined,
    bound or deleted costs what is its own, however much there is besides. Owner numbers are never
    used twice."""

    __slots__ = (
        "_names",
        "_policies_of",
        "_queues_of",
        "_sources",
        "_topics_of",
        "binding_count",
        "changes",
        "moves",
        "next_move",
        "next_owner",
        "queues",
        "retired",
        "tokens",
        "topics",
    )

    def __init__(self, image: CatalogImage | None = None) -> None:
        image = image or CatalogImage()
        self.next_owner = image.next_owner
        self.queues = image.queues
        self.topics = image.topics
        self.tokens = image.tokens
        self.moves = image.moves
        self.next_move = image.next_move
        self.retired = dict.fromkeys(image.retired)  # dead-letter queues that were deleted
        self._sources: dict[str, int] = {}  # how many queues name one as their dead-letter queue
        for each in self.queues.values():
            self._count_source(each, 1)
        self.changes: list[c.CatalogChange] = []
        self._names = {each.owner: each.name for each in self.queues.values()}
        self._names |= {each.owner: each.name for each in self.topics.values()}
        self._queues_of: dict[int, dict[int, c.Bound]] = {}  # topic → queue → how it is bound
        self._topics_of: dict[int, dict[int, None]] = {}  # queue → topics
        self._policies_of: dict[int, list[Policy]] = {}  # by topic, of those that were asked for
        self.binding_count = 0
        for bound in image.bindings:
            self._bind(bound)

    def image(self) -> CatalogImage:
        """The definitions as they are now; later ones do not change it."""
        bindings = [bound for queues in self._queues_of.values() for bound in queues.values()]
        return CatalogImage(
            self.next_owner,
            dict(self.queues),
            dict(self.topics),
            bindings,
            dict(self.tokens),
            dict(self.moves),
            self.next_move,
            list(self.retired),
        )

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

    def definition(self, owner: int) -> c.QueueDefined | c.TopicDefined | None:
        """The queue or topic that an owner number stands for."""
        name = self._names.get(owner, "")
        known = (self.queues.get(name), self.topics.get(name))  # which may share a name
        return next((each for each in known if each is not None and each.owner == owner), None)

    def define_queue(
        self,
        name: str,
        settings: QueueSettings,
        incarnation: int,
        now_ms: int,
        system: bool = False,
    ) -> c.QueueDefined:
        """Create a queue. The same name with the same settings is the same queue. Only the broker
        itself may use a reserved name."""
        if not system:
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
                f"queue {name!r} already exists with a different {', '.join(other)}",
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
                f"topic {name!r} already exists with different settings",
                "use its settings, or edit it",
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

    def drop_queue(self, name: str, retired: bool = False) -> int:
        owner = self.queue(name).owner
        self._drop(owner, retired)
        return owner

    def drop_topic(self, name: str) -> int:
        owner = self.topic(name).owner
        self._drop(owner)
        return owner

    def bind(
        self,
        topic: str,
        queue: str,
        where: dict[str, str] | None = None,
        sns: Subscription | None = None,
    ) -> bool:
        """What is published to the topic arrives in the queue from now on. Bound again it only
        gets another filter; returns whether it was not bound before."""
        bound = c.Bound(self.topic(topic).owner, self.queue(queue).owner, where, sns)
        known = self._queues_of.get(bound.topic, {}).get(bound.queue)
        if known == bound:
            return False
        self.apply(bound)
        self.changes.append(bound)
        return known is None

    def is_bound(self, topic: str, queue: str) -> bool:
        if queue not in self.queues:
            return False
        return self.queues[queue].owner in self._queues_of.get(self.topic(topic).owner, ())

    def unbind(self, topic: str, queue: str) -> None:
        unbound = c.Unbound(self.topic(topic).owner, self.queue(queue).owner)
        self._unbind(unbound.topic, unbound.queue)
        self.changes.append(unbound)

    def bound_to(self, topic_owner: int) -> list[c.Bound]:
        """The bindings of a topic."""
        return list(self._queues_of.get(topic_owner, {}).values())

    def policies_of(self, topic_owner: int) -> list[Policy]:
        """The filter policies of a topic's bindings."""
        found = self._policies_of.get(topic_owner)
        if found is None:
            filters = (filter_of(each) for each in self._queues_of.get(topic_owner, {}).values())
            found = [each for each in filters if isinstance(each, Policy)]
            self._policies_of[topic_owner] = found = list(dict.fromkeys(found))
        return found

    def topics_of(self, queue: str) -> list[str]:
        """The topics that a queue is bound to."""
        return [self._names[topic] for topic in self._topics_of.get(self.queue(queue).owner, ())]

    def define_token(self, defined: c.TokenDefined) -> None:
        if defined.name in self.tokens:
            raise TokenExists(
                f"token {defined.name!r} already exists", "revoke it, or choose another name"
            )
        if len(self.tokens) >= limits.TOKENS_MAX:
            raise InvalidArgument(
                f"the limit of {limits.TOKENS_MAX} tokens is reached", "revoke some"
            )
        self._define(defined)

    def revoke_token(self, name: str) -> None:
        if name not in self.tokens:
            raise TokenNotFound(f"there is no token {name!r:.100}", "see nexo token list")
        revoked = c.TokenRevoked(name)
        self.apply(revoked)
        self.changes.append(revoked)

    def note_move(self, noted: c.MoveNoted) -> None:
        """How far a redrive is. Of one whose queue is gone nothing is kept."""
        if self.definition(noted.source) is not None:
            self.apply(noted)
            self.changes.append(noted)

    def apply(self, change: c.CatalogChange) -> None:
        """Bring the catalog forward by a change; recovery and the living catalog share this."""
        if isinstance(change, c.QueueDefined):
            self._count_source(change, 1)
            known = self.queues.get(change.name)
            if known is not None:
                self._count_source(known, -1)
            self.retired.pop(change.name, None)
            self.queues[change.name] = change
            self._number(change)
        elif isinstance(change, c.TopicDefined):
            self.topics[change.name] = change
            self._number(change)
        elif isinstance(change, c.Dropped):
            self._forget(change.owner, change.retired)
        elif isinstance(change, c.Bound):
            self._unbind(change.topic, change.queue)  # with another filter it goes to the end
            self._bind(change)
        elif isinstance(change, c.TokenDefined):
            self.tokens[change.name] = change
        elif isinstance(change, c.TokenRevoked):
            self.tokens.pop(change.name, None)
        elif isinstance(change, c.MoveNoted):
            self._note(change)
        else:
            self._unbind(change.topic, change.queue)

    def _note(self, noted: c.MoveNoted) -> None:
        self.moves[noted.number] = noted
        self.next_move = max(self.next_move, noted.number + 1)
        if len(self.moves) > limits.REDRIVES_KEPT:
            ended = (number for number, each in self.moves.items() if not each.is_under_way)
            oldest = next(ended, None)
            if oldest is not None:
                del self.moves[oldest]

    def _define(self, defined: c.QueueDefined | c.TopicDefined | c.TokenDefined) -> None:
        self.apply(defined)
        self.changes.append(defined)

    def _drop(self, owner: int, retired: bool = False) -> None:
        dropped = c.Dropped(owner, retired)
        self.apply(dropped)
        self.changes.append(dropped)

    def _number(self, defined: c.QueueDefined | c.TopicDefined) -> None:
        self._names[defined.owner] = defined.name
        self.next_owner = max(self.next_owner, defined.owner + 1)

    def _count_source(self, defined: c.QueueDefined, by: int) -> None:
        """A queue names another as its dead-letter queue, or does so no more. One that is named
        after the queue itself is made when it is needed, however often it was deleted."""
        target = defined.settings.dead_letter
        if defined.settings.max_attempts is None or "{name}" in target:
            return
        count = self._sources.get(target, 0) + by
        if count:
            self._sources[target] = count
        else:
            del self._sources[target]
            self.retired.pop(target, None)

    def _forget(self, owner: int, retired: bool = False) -> None:
        known = self.definition(owner)
        if known is None:
            return
        del self._names[owner]
        if isinstance(known, c.QueueDefined):
            del self.queues[known.name]
            self._count_source(known, -1)
            if retired or known.name in self._sources:
                self.retired[known.name] = None
            for number in [each.number for each in self.moves.values() if each.source == owner]:
                del self.moves[number]
        else:
            del self.topics[known.name]
        self._policies_of.pop(owner, None)
        for queue in list(self._queues_of.get(owner, ())):
            self._unbind(owner, queue)
        for topic in list(self._topics_of.get(owner, ())):
            self._unbind(topic, owner)

    def _bind(self, bound: c.Bound) -> None:
        self._policies_of.pop(bound.topic, None)
        self._queues_of.setdefault(bound.topic, {})[bound.queue] = bound
        self.binding_count += 1
        self._topics_of.setdefault(bound.queue, {})[bound.topic] = None

    def _unbind(self, topic: int, queue: int) -> None:
        if self._queues_of.get(topic, {}).pop(queue, None) is None:
            return
        self._policies_of.pop(topic, None)
        del self._topics_of[queue][topic]
        self.binding_count -= 1
        if not self._queues_of[topic]:
            del self._queues_of[topic]
        if not self._topics_of[queue]:
            del self._topics_of[queue]


def encoded_in_steps(image: CatalogImage, count: int) -> Iterator[bytes]:
    """An image as snapshots have it, in pieces of up to `count` definitions: all of them together
    can be too much for one step of work."""
    yield _HEAD.pack(_MAP, len(image.__struct_fields__))
    for field in image.__struct_fields__:
        value = getattr(image, field)
        yield _encode(field)
        if isinstance(value, dict):
            yield _HEAD.pack(_MAP, len(value))
            entries = iter(value.items())
            while some := dict(islice(entries, count)):
                yield _without_head(some)
        elif isinstance(value, list):
            yield _HEAD.pack(_ARRAY, len(value))
            for start in range(0, len(value), count):
                yield _without_head(value[start : start + count])
        else:
            yield _encode(value)


def _without_head(some: dict[str, Any] | list[Any]) -> bytes:
    """The entries of a msgpack map or array; how long its head is depends on how many they are."""
    return _encode(some)[1 if len(some) < 2**4 else 3 if len(some) < 2**16 else 5 :]


def fold_catalog(image: CatalogImage, records: Iterable[Sequence[c.CatalogChange]]) -> CatalogImage:
    catalog = Catalog(image)
    for record in records:
        for change in record:
            catalog.apply(change)
    return catalog.image()
