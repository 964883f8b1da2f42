"""What is known of a node outside of its shards, and of the cluster around it: for the admin API,
the console and `/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.cluster.node import describe
from nexo.cluster.questions import ToldNode, refusal_told
from nexo.telemetry import families as f
from nexo.telemetry.families import header, sample

if TYPE_CHECKING:
    from nexo.cluster.far import Far
    from nexo.cluster.node import Moved, Node
    from nexo.cluster.whole import Whole
    from nexo.wire.answers import ClusterFigures


class Cluster:
    """The cluster as pages and programs see it at this node."""

    def __init__(self, node: Node, far: Far) -> None:
        self._node, self._far = node, far

    @property
    def node(self) -> str:
        return self._node.name

    @property
    def silent(self) -> list[str]:
        """Nodes that have not told what they have: pages show what they told before."""
        return self._far.silent

    def now(self) -> ClusterFigures:
        """Without what only the database knows; what waits for other shards as it was told last."""
        engines = self._node.engines.items()
        backlogs = {shard: engine.transfers.backlog() for shard, engine in engines}
        for told in self._far.nodes.values():
            backlogs |= told.backlogs
        return describe(self._node, {}, backlogs)

    async def figures(self) -> ClusterFigures:
        node = self._node
        return describe(node, await node.epochs(), await node.post.backlogs())

    def moves(self) -> list[Moved]:
        """The latest first."""
        return list(reversed(self._node.moves))

    async def drain(self, node: str) -> None:
        await self._node.drain(node)

    async def rebalance(self) -> None:
        await self._node.rebalance()


class NodeSurroundings:
    """`own` is what a broker alone would know: of this process. Where a whole is told, other nodes
    are counted in."""

    def __init__(self, own: Any, node: Node, far: Far) -> None:
        self.own, self._node, self._far = own, node, far
        self.cluster = Cluster(node, far)

    @property
    def version(self) -> str:
        return str(self.own.version)

    @property
    def region(self) -> str:
        return str(self.own.region)

    @property
    def rpc_port(self) -> int:
        return int(self.own.rpc_port)

    def api_document(self) -> bytes:
        document: bytes = self.own.api_document()
        return document

    def disk_free_bytes(self) -> int | None:
        return None

    def connections(self) -> dict[str, int]:
        found: dict[str, int] = dict(self.own.connections())
        for told in self._far.nodes.values():
            for door, count in told.connections.items():
                found[door] = found.get(door, 0) + count
        return found

    def resident_bytes(self) -> int:
        others = sum(told.resident_bytes for told in self._far.nodes.values())
        return int(self.own.resident_bytes()) + others

    def metrics(self) -> str:
        """The lines of a node, besides those of a broker."""
        node = self._node
        lines = []
        for family, value in (
            (f.NODE_UP, node.is_held),
            (f.NODE_SHARDS, len(node.engines)),
            (f.NODE_LEASE, max(0.0, round(node.lease_left_s, 3))),
            (f.CLUSTER_NODES, len(node.state.living())),
            (f.CLUSTER_SHARDS, node.shards),
            (f.CLUSTER_UNOWNED, node.unowned),
            (f.CLUSTER_MOVES, node.moved_count),
            (f.CLUSTER_PASSED, node.passed_frames),
            (f.CLUSTER_REDIRECTS, node.redirects),
        ):
            lines += [header(family), sample(family, value)]
        return "".join(lines)

    def told(self, here: Whole) -> ToldNode:
        """What this node tells others of itself; `here` are its shards alone."""
        return ToldNode(
            queues=len(here.own_queues),
            topics=len(here.own_topics),
            connections=dict(self.own.connections()),
            resident_bytes=self.own.resident_bytes(),
            payload_bytes=here.memory.resident_bytes,
            payload_limit_bytes=here.memory.payload_limit_bytes,
            unsettled_bytes=max(0, here.committer.unsettled_bytes),
            backlogs=dict(here.transfers.by_shard()),
            refusal=refusal_told(here.refusal),
        )
