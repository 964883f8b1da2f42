"""The tokens of a cluster at one node. They live in the catalog of one shard; its owner publishes
each change in the tables, and every node adopts what it finds there.

Whoever made or revoked a token is answered once every living node has adopted that. A node that
does not answer is waited for until its lease has ended: adopting is part of a renewal, so that a
node with a lease knows all tokens that were published before it was renewed, and one without does
nothing for anybody.

Nobody who shows a wrong token makes a node look into the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.changes import TokenDefined
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_RENEW_S, CLUSTER_SPREAD_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.cluster.node import Node
    from nexo.cluster.store import NodeTables

    Adopt = Callable[[Mapping[str, TokenDefined]], None]

TOKENS_SHARD = 0  # whose catalog holds the tokens of the cluster
KNOWN = "tokens_known"  # what another node is asked: to answer once it knows a version of them
_AGAIN_S = 0.25  # before something that failed is tried again


class ClusterTokens:
    def __init__(self, node: Node, hands: NodeTables) -> None:
        self._node, self._hands = node, hands
        self._adopt: Adopt | None = None
        self.known = -1  # the version in the tables that was adopted last
        self._wanted = b""  # what is to be published, while the shard is here …
        self._published = -1  # … and the version that it is, or is known to be superseded by
        self._publishing: asyncio.Task[None] | None = None

    def guard_with(self, adopt: Adopt) -> None:
        """Tell the tokens whenever they change, wherever that was."""
        self._adopt = adopt

    # -- Adopting -----------------------------------------------------------------------------

    def learn(self, version: int, data: bytes | None) -> None:
        """What the tables hold; None: as before. The owner of the shard goes by its catalog. If
        that is not what they hold, it has yet to publish, or to hear that it is no owner."""
        if data is None or version <= self.known:
            return
        if self._node.owns(TOKENS_SHARD):
            if data != self._wanted:
                return
        elif self._adopt is not None:
            self._adopt(decode_tokens(data))
        self.known = version

    async def look(self) -> None:
        self.learn(*await self._hands.call(lambda tables: tables.tokens()))

    async def serve(self, params: bytes) -> bytes:
        """Another node waits until this one knows a version. It is told of it by the tables too;
        this is sooner."""
        try:
            version = msgspec.msgpack.decode(params, type=int)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"a node of another version asked: {error}") from None
        if self.known < version:
            await self.look()
        if self.known < version:  # a standby that is behind
            raise NotReady(f"the tokens are at version {self.known}, not {version}")
        return b""

    # -- Publishing ---------------------------------------------------------------------------

    def publish(self, tokens: Mapping[str, TokenDefined]) -> None:
        """Shard 0 is here, and its tokens are these."""
        if self._adopt is not None:
            self._adopt(tokens)
        self._wanted = encode_tokens(tokens)
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        """The latest, until the tables hold it: written from here, or by who has the shard now."""
        loop, version = asyncio.get_running_loop(), self.known
        give_up_s = loop.time() + CLUSTER_SPREAD_S
        while self._node.owns(TOKENS_SHARD) or loop.time() < give_up_s:
            wanted, expected = self._wanted, version
            try:
                version, stored = await self._store(wanted, expected)
            except NexoError:
                await asyncio.sleep(_AGAIN_S)
                continue
            if stored == wanted:
                self._published = version
                if wanted is self._wanted:
                    return
            elif version == expected:  # the shard is another's, who has not published it yet
                await asyncio.sleep(_AGAIN_S)

    async def _store(self, data: bytes, expected: int) -> tuple[int, bytes]:
        """Unless the tables hold a later version than is expected; what they hold then."""
        return await self._hands.call(lambda tables: tables.publish_tokens(data, expected))

    async def spread(self) -> None:
        """Wait until all nodes know the tokens as they are now, but no longer than a lease lasts:
        who knows nothing of them by then has none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLUSTER_SPREAD_S):
                if self._publishing is not None:
                    await asyncio.shield(self._publishing)
                version, names = self._published, self._node.state.living()
                others = [each for each in names if each != self._node.name]
                await asyncio.gather(*[self._until_known(each, version) for each in others])

    async def _until_known(self, name: str, version: int) -> None:
        while (node := self._node.state.nodes.get(name)) is not None and node.is_living:
            try:
                async with asyncio.timeout(CLUSTER_RENEW_S):
                    await self._node.post.call(node, KNOWN, msgspec.msgpack.encode(version))
                return
            except (NotReady, TimeoutError):
                await asyncio.sleep(_AGAIN_S)
            except NexoError:  # of an older version: it knows a moment later
                return

    async def end(self) -> None:
        if self._publishing is not None:
            await asyncio.gather(self._publishing, return_exceptions=True)


def encode_tokens(tokens: Mapping[str, TokenDefined]) -> bytes:
    return msgspec.msgpack.encode([tokens[name] for name in sorted(tokens)])


def decode_tokens(data: bytes) -> dict[str, TokenDefined]:
    found = msgspec.msgpack.decode(data, type=list[TokenDefined]) if data else []
    return {token.name: token for token in found}
