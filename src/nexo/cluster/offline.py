"""The tokens of a cluster of which no node runs: whoever may write its database is its admin."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from nexo.cluster.tokens import TOKENS_SHARD, encode_tokens
from nexo.engine.engine import Engine
from nexo.journal.postgresql_cluster import ClusterTables, has_cluster
from nexo.journal.postgresql_shards import Shards
from nexo.vocabulary.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nexo.vocabulary.changes import TokenDefined

_NAME = "nexo token"  # no node can have it: of a blank


class _Alone(Engine):
    """The engine of the shard that holds the tokens; closing it tells the nodes of them."""

    store: Shards
    tables: ClusterTables

    async def close(self) -> None:
        tokens: Mapping[str, TokenDefined] = {each.name: each for each in self.tokens.all()}
        await super().close()
        await asyncio.to_thread(self.tables.publish_tokens, encode_tokens(tokens))
        await asyncio.to_thread(self.tables.forget)
        await asyncio.to_thread(self.store.end)
        await asyncio.to_thread(self.tables.close)


async def open_tokens(url: str) -> Engine | None:
    """The engine that holds the tokens; None if there is no cluster in this database."""
    if not await asyncio.to_thread(has_cluster, url):
        return None
    draw = random.SystemRandom()
    run = draw.getrandbits(62)
    tables = ClusterTables(url, _NAME, run)
    owner = await asyncio.to_thread(_take, tables)
    if owner is not None:
        await asyncio.to_thread(tables.close)
        raise NotReady(
            f"node {owner!r} of the cluster is running",
            "leave out --data, and ask the nodes as an admin",
        )
    store = Shards(url, _NAME, run)
    engine = _Alone(
        store.journal(TOKENS_SHARD),
        runner=store,
        events=None,
        new_incarnation=lambda: draw.getrandbits(64),
    )
    engine.store, engine.tables = store, tables
    await engine.open_apart()
    return engine


def _take(tables: ClusterTables) -> str | None:
    """Take the shard of the tokens; returns the node that has it, if one does."""
    if not tables.join("", "", ""):
        return _NAME
    tables.set_draining(_NAME, True)  # it wants this shard and no other
    owner = tables.read().owners[TOKENS_SHARD]
    if tables.take(TOKENS_SHARD, owner):
        return None
    tables.forget()
    return owner or ""
