"""The other nodes, as one asks them for itself: see `questions`. Only who knows the secret of the
cluster is answered.

What is asked of all may be about shards on their way from one node to the next, and each node knows
in its own time who has them. So whoever makes one list of many says to each which shards it is
asked for, and it tells of all of these or of nothing: a list lacks no queue, and has none twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import CLUSTER_AGAIN_S, CLUSTER_PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from nexo.cluster.links import Links
    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState
    from nexo.engine.engine import Engine

Answer = TypeVar("Answer")
METHOD = "nexo_node"  # of the call that carries a question


class Others:
    def __init__(self, node: Node, links: Links) -> None:
        self._node, self._links = node, links

    def owners(self) -> list[NodeState]:
        """The nodes that have shards, besides this one."""
        state = self._node.state
        owners = {owner for owner in state.owners.values() if owner} - {self._node.name}
        return [state.nodes[owner] for owner in sorted(owners) if owner in state.nodes]

    async def ask(self, node: NodeState, question: msgspec.Struct) -> bytes:
        """The answer of another node, as it was packed there. It is given to whoever this node
        admits, so a node that may not know who was shut out asks nothing."""
        if not self._node.is_held:
            raise self._node.postgresql_away()
        return await self._links.call(node, METHOD, msgspec.msgpack.encode(question))

    async def ask_all(self, question: msgspec.Struct) -> dict[str, bytes]:
        """The answers of all other nodes that have shards, by name."""
        owners = self.owners()
        found = await asyncio.gather(*[self.ask(each, question) for each in owners])
        return {each.name: answer for each, answer in zip(owners, found, strict=True)}


class Shards(NamedTuple):
    """Each shard once: the engines of those that are here, and the others by their nodes."""

    here: dict[int, Engine]
    there: list[tuple[NodeState, list[int]]]


def all_shards(node: Node) -> Shards:
    """As far as this node knows. Raises if nobody has one of them."""
    here: dict[int, Engine] = {}
    there: dict[str, list[int]] = {}
    for shard, owner in node.state.owners.items():
        if owner == node.name and shard in node.engines:
            here[shard] = node.engines[shard]
        elif owner is not None and owner != node.name and owner in node.state.nodes:
            there.setdefault(owner, []).append(shard)
        else:
            raise moving()
    return Shards(here, [(node.state.nodes[name], shards) for name, shards in there.items()])


async def gathered(node: Node, gather: Callable[[Shards], Awaitable[Answer]]) -> Answer:
    """What is made of all shards. While some of them move it takes a moment until all nodes know
    who has them."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + CLUSTER_PATIENCE_S
    while True:
        try:
            return await gather(all_shards(node))
        except NotReady:
            if loop.time() > give_up_s:
                raise
        await asyncio.sleep(CLUSTER_AGAIN_S)


@contextlib.contextmanager
def telling(node: Node, shards: Sequence[int]) -> Iterator[None]:
    """What is told inside of this is of all these shards of this node. Raises if one of them is
    not here, or goes meanwhile."""
    engines = [node.engines.get(shard) for shard in shards]
    if None in engines:
        raise moving()
    yield
    if engines != [node.engines.get(shard) for shard in shards]:
        raise moving()


def moving() -> NotReady:
    return NotReady("shards are on their way from one node to another", "try again")


def joined(packed: Iterable[bytes], kind: Any) -> list[Any]:
    """Lists of several nodes as one."""
    return [each for answer in packed for each in msgspec.msgpack.decode(answer, type=kind)]
