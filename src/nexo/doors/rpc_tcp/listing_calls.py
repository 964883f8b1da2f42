"""The named calls that list queues and topics, in the order of their names."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from nexo.engine.listing import steps
from nexo.vocabulary import allowed
from nexo.vocabulary.limits import LIST_PAGE_MAX
from nexo.wire import commands

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.engine.listing import Named
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor

    Knows = Callable[[str], bool]
    Listed = list[bytes | memoryview]

_ARRAY_HEAD = Struct(">BI")  # in msgpack, in the form that fits any number
_ARRAY = 0xDD


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to `limit` of those behind the name `after`; nil: all of them, which may be more than a
    frame takes."""

    after: allowed.Name = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_PAGE_MAX)] | None = None


async def list_queues(engine: Engine, wanted: Listing, knows: Knows) -> Listed:
    return await _listed(engine.queues, described, wanted, knows)


async def list_topics(engine: Engine, wanted: Listing, knows: Knows) -> Listed:
    return await _listed(engine.topics, _topic_info, wanted, knows)


def described(actor: QueueActor) -> dict[str, Any]:
    """A queue as all calls tell of it."""
    return {
        "name": actor.name,
        "settings": actor.queue.settings,
        "consumers": actor.room.consumers,
        **msgspec.structs.asdict(actor.info()),
    }


def _topic_info(actor: TopicActor) -> Any:
    return actor.info()


async def _listed(
    named: Named[Any], describe: Callable[[Any], Any], wanted: Listing, knows: Knows
) -> Listed:
    """An array of what is known, encoded piece by piece between which others have their turn."""
    pieces: Listed = []
    count, limit = 0, wanted.limit
    async for actors in steps(named, wanted.after):
        known = [actor for actor in actors if knows(actor.name)]
        if limit is not None:
            del known[limit - count :]
        pieces.append(b"".join([commands.pack(describe(actor)) for actor in known]))
        count += len(known)
        if count == limit:
            break
    return [_ARRAY_HEAD.pack(_ARRAY, count), *pieces]


LISTING_CALLS: dict[str, Callable[[Engine, Listing, Knows], Awaitable[Listed]]] = {
    "list_queues": list_queues,
    "list_topics": list_topics,
}
