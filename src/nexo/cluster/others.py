"""The other nodes, as one asks them for itself: see `questions`. Only who knows the secret of the
cluster is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.cluster.links import Links
    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState

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


def joined(packed: Iterable[bytes], kind: Any) -> list[Any]:
    """Lists of several nodes as one."""
    return [each for answer in packed for each in msgspec.msgpack.decode(answer, type=kind)]
