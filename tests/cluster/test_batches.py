"""What a page shows of the batches of other nodes, while those answer and while they do not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster import batches
from nexo.cluster.batches import ClusterBatches
from nexo.cluster.questions import ToldBatches
from nexo.doors.console.batches import Batch
from nexo.vocabulary.errors import NotReady

if TYPE_CHECKING:
    import pytest

B, C = SimpleNamespace(name="b"), SimpleNamespace(name="c")


class Nodes:
    """Nodes that tell what they are given to; None: they do not answer."""

    def __init__(self, told: dict[str, ToldBatches | None]) -> None:
        self.told = told
        self.asked = 0

    def owners(self) -> list[Any]:
        return [each for each in (B, C) if each.name in self.told]

    async def ask(self, node: Any, question: Any) -> bytes:
        self.asked += 1
        told = self.told[node.name]
        if told is None:
            raise NotReady("it hung up")
        return msgspec.msgpack.encode(told)


def test_what_was_told_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CLUSTER_FRESH_S", -1.0)
    asyncio.run(_stays())


async def _stays() -> None:
    early, late = Batch(1, "q", "x", 10, 5), Batch(2, "r", "y", 20, 5)
    others = Nodes({"b": ToldBatches([early], [("q", "x", 2.5)]), "c": ToldBatches([late], [])})
    node: Any = SimpleNamespace(
        engines={},
        shard_of={"q": 0, "r": 1}.get,
        state=SimpleNamespace(owners={0: "b", 1: "c"}),
    )
    looked: Any = others
    found = ClusterBatches(node, looked)
    await found.read()
    assert found.last(5) == [late, early]
    assert found.last(1) == [late]
    assert (found.rate("q", "x"), found.rate("r", "y")) == (2.5, None)
    others.told["b"] = None  # it is silent: what it told is shown
    await found.read()
    assert found.last(5) == [late, early]
    assert found.rate("q", "x") == 2.5
    del others.told["b"]  # it has no shards any more: whoever has them tells
    others.told["c"] = ToldBatches([late, early], [])
    await found.read()
    assert found.last(5) == [late, early]
    assert found.rate("q", "x") is None


def test_many_pages_ask_once() -> None:
    async def look() -> None:
        others: Any = Nodes({"b": ToldBatches([], [])})
        node: Any = SimpleNamespace(engines={})
        found = ClusterBatches(node, others)
        await asyncio.gather(*[found.read() for _ in range(5)])
        await found.read()
        assert others.asked == 1

    asyncio.run(look())
